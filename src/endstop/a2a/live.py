"""The tasks that are driven here: their views, who waits for them, and who watches.

One observer sees every recorded event and applies it to the view of its task; whoever waits or
watches is woken by that and by nothing else, so that no answer is ahead of the record (law 15
record-first). What has ended leaves at once: its journal is the store.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic, time
from typing import Any

from endstop.a2a.limits import TaskLimits
from endstop.a2a.livetask import Holds, LiveTask, not_known, since_resumed
from endstop.a2a.states import (
    ARTIFACT_SHOWN,
    EXECUTE,
    NOTHING,
    OWNER,
    STATUS_SHOWN,
)
from endstop.a2a.streams import Moved, Stream, Update, resolve, soon
from endstop.a2a.task import TaskView
from endstop.core import events as e
from endstop.run.recording import TRANSIENT
from endstop.store.protocol import Recorded

log = logging.getLogger("endstop.a2a")


_QUIET = TRANSIENT | {
    e.BatchOpened,
    e.BatchClosed,
    e.CallQueued,
    e.CallGranted,
    e.CallPaused,
    e.CallResumed,
    e.CallSpent,
    e.CommitBegan,
    e.CommitEnded,
}
"""Events that change nothing of a task and wake nobody."""
_TOLD = frozenset({e.CallSettled, e.ApprovalAsked, e.RunClosing, e.RunEnded})
"""Events of which more has to be known than the view."""


class Hall:
    """All tasks that are driven here. Its methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: TaskLimits, agent: str) -> None:
        self._agent = agent
        self.tasks: dict[str, LiveTask] = {}
        self.lock = threading.Lock()
        self.limits = limits
        self.follower: Callable[[LiveTask], object] = lambda task: None
        # What the handler wants to be told of: a call is over, a task is over.
        self.on_settled: Callable[[LiveTask], None] = lambda task: None
        self.on_over: Callable[[LiveTask], None] = lambda task: None
        self.watcher: Callable[[str], object] | None = None
        self.suppressed = 0
        self._loop = loop
        self._posted: deque[Callable[[], Any]] = deque()
        self._post_pending = False
        self._thread = threading.get_ident()

    def open(self, run_id: str) -> LiveTask:
        """The task of a run that is driven here; made when it is first asked for."""
        with self.lock:
            task = self.tasks.get(run_id)
            if task is None:
                task = self.tasks[run_id] = LiveTask(run_id, self.limits)
            return task

    def drop(self, task: LiveTask) -> None:
        """Forget a task that is driven here no more."""
        with self.lock:
            if self.tasks.get(task.id) is task:
                del self.tasks[task.id]

    # -- taking up: what is recorded and what happens meanwhile, without a gap

    def begin_joining(self, task: LiveTask) -> None:
        """Keep what happens to a task until what was before it is read."""
        with self.lock:
            assert task.id not in self.tasks, "a task is taken up where it is not driven"
            task.joining = []
            task.joined = Future()
            task.remote = False
            self.tasks[task.id] = task

    def join(self, task: LiveTask, recorded: Sequence[Recorded]) -> None:
        """Bring the view up to date, from the record and from what happened meanwhile.

        Both have the event of taking up: by it they are laid over one another. The observer may be
        behind the record, and tells later of what the view has by then.
        """
        with self.lock:
            kept, task.joining = task.joining or [], None
            self._catch_up(task, recorded)
            resumed = [one.seq for one in recorded if type(one.event) is e.RunResumed]
            assert resumed or task.view.over, "what goes on was taken up"
            if resumed:
                told = since_resumed(kept)
                for seq, event in enumerate(told, resumed[-1]):
                    if seq > task.view.seq:
                        assert seq == task.view.seq + 1, "a run's numbers have no gap"
                        self._apply(task, event, time())
                task.ahead = task.view.seq - (resumed[-1] + len(told) - 1)
                task.early = not told
            woken = self._woken(task)
            over = task.view.over
        self._wake(woken)
        if over:
            self.drop(task)
            self.on_over(task)

    def catch_up(self, task: LiveTask, recorded: Sequence[Recorded]) -> None:
        """Apply what was read from the journal to a task that is driven elsewhere."""
        with self.lock:
            if not task.remote:
                # It is driven here since: the observer tells of the rest.
                return
            self._catch_up(task, recorded)
            woken = self._woken(task)
        self._wake(woken)

    def _catch_up(self, task: LiveTask, recorded: Sequence[Recorded]) -> None:
        for one in recorded:
            if one.seq == task.view.seq + 1:
                self._apply(task, one.event, one.at_s)

    def lose(self, task: LiveTask, view: TaskView) -> None:
        """Somebody else took the run of a task: from here on it is as the journal has it.

        What this side was told last may be in no record, so that a stream cannot go on from there.
        """
        with self.lock:
            if self.tasks.get(task.id) is task:
                del self.tasks[task.id]
            task.view, task.run, task.remote, task.busy = view, None, True, False
            for stream in task.streams:
                if not view.over:
                    stream.fail(Moved("another server drives the task now; subscribe again"))
                    continue
                if stream.key is not None:
                    stream.begin(view.task())
                else:
                    stream.put(view.status_update())
                stream.end()
            woken = self._woken(task)
        self._wake(woken)

    def give_up(self, task: LiveTask, error: Exception) -> None:
        """Nothing more of a task can be recorded: whoever waits for it, or watches, is told so."""
        with self.lock:
            if self.tasks.get(task.id) is task:
                del self.tasks[task.id]
            task.broken = error
            for stream in task.streams:
                stream.fail(error)
            woken, task.waiters = [future for _, future in task.waiters], []
        self._wake(woken)

    # -- the observer

    def see(self, events: Sequence[e.Event]) -> None:
        """Take in what was recorded of a run in one step; as an observer of the runtime."""
        first = events[0]
        task = self.tasks.get(first.run)
        if task is None:
            if type(first) is not e.RunOpened or OWNER not in first.labels:
                return
            if first.labels.get("agent") != self._agent:
                return
            task = self.open(first.run)
        told: list[e.Event] = []
        with self.lock:
            if task.joining is not None:
                task.joining += [one for one in events if type(one) not in TRANSIENT]
                return
            if task.ahead or task.early:
                events = not_known(task, events)
            now = time()
            for event in events:
                kind = type(event)
                if kind in _QUIET:
                    if kind not in TRANSIENT:
                        # Counted and nothing else: it says nothing of the task.
                        task.view.seq += 1
                    continue
                self._apply(task, event, now)
                if kind in _TOLD:
                    told.append(event)
            woken = self._woken(task)
            if task.view.over and self.tasks.get(task.id) is task:
                # Before anybody is told: whoever knows of the end finds it gone.
                del self.tasks[task.id]
        self._wake(woken)
        for event in told:
            self._tell(task, event)

    def _apply(self, task: LiveTask, event: e.Event, at_s: float) -> None:
        view = task.view
        shown = view.apply(event, at_s)
        if task.streams:
            if shown != NOTHING:
                self._show(task, shown)
            if type(event) is e.Noted:
                self._begin_streams(task)
            if view.over:
                for stream in task.streams:
                    stream.end()
        if shown != NOTHING and self.watcher is not None:
            self.watcher(task.id)

    def _woken(self, task: LiveTask) -> Sequence[asyncio.Future[None]]:
        """Who waited for what holds of a task now; they wait no more."""
        if not task.waiters:
            return ()
        woken = [future for holds, future in task.waiters if holds(task.view)]
        if woken:
            task.waiters = [one for one in task.waiters if one[1] not in woken]
        return woken

    def _show(self, task: LiveTask, shown: int) -> None:
        view = task.view
        updates: list[Update] = []
        if shown & ARTIFACT_SHOWN:
            updates.append(view.artifact_update())
        if shown & STATUS_SHOWN and view.seq > 1:
            updates.append(view.status_update())
        for update in updates:
            for stream in task.streams:
                if stream.key is None:
                    stream.put(update)

    def _begin_streams(self, task: LiveTask) -> None:
        """The readers who waited for their message begin with the task as it has it."""
        for stream in task.streams:
            if stream.key is not None and stream.key in task.view.message_ids:
                stream.begin(task.view.task())

    def _tell(self, task: LiveTask, event: e.Event) -> None:
        match event:
            case e.CallSettled() if task.view.calls[event.call].tool == EXECUTE:
                self.on_settled(task)
            case e.ApprovalAsked():
                task.idle_at = self._loop.time()
            case e.RunClosing():
                task.closed_at = monotonic()
            case e.RunEnded():
                self.on_over(task)
            case _:
                pass

    def _wake(self, woken: Sequence[asyncio.Future[None]]) -> None:
        for future in woken:
            if future.get_loop() is not self._loop:
                soon(future.get_loop(), partial(resolve, future))
            elif threading.get_ident() == self._thread:
                resolve(future)
            else:
                self.post(partial(resolve, future))

    def post(self, function: Callable[[], Any]) -> None:
        """Call a function on the handler's loop, soon; from any thread.

        What is posted together wakes the loop once: waking it costs more than most of what it does.
        """
        self._posted.append(function)
        if not self._post_pending:
            self._post_pending = True
            soon(self._loop, self._run_posted)

    def _run_posted(self) -> None:
        # First this and then the look: what is posted between the two wakes the loop again.
        self._post_pending = False
        while self._posted:
            function = self._posted.popleft()
            try:
                function()
            except Exception:
                # What was posted with it is of other tasks, and whoever waits for them.
                log.exception("a task cannot go on")

    def heard(self, task: LiveTask) -> None:
        """The executor said its first word: whoever watches may be shown the task."""
        task.spoken = True
        with self.lock:
            for stream in task.streams:
                stream.poke()

    def count_late(self, task: LiveTask) -> None:
        """Count an event that came after the ending and is shown to nobody (law 3)."""
        with self.lock:
            task.late += 1
            self.suppressed += 1
        if task.late == 1:
            log.info("task %s: what its executor publishes after the end is not shown", task.id)

    # -- who waits, who watches

    async def until(self, task: LiveTask, holds: Holds) -> None:
        """Wait until something holds of a task, on any loop; who stops waiting changes nothing.

        Raises what the task was given up for, where it was.
        """
        if task.remote:
            self.follower(task)
        with self.lock:
            if holds(task.view):
                return
            task.check()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entry = (holds, future)
            task.waiters.append(entry)
        try:
            await future
            if not holds(task.view):
                task.check()
        finally:
            if not future.done() or future.cancelled():
                with self.lock:
                    if entry in task.waiters:
                        task.waiters.remove(entry)

    def read(self, task: LiveTask, look: Callable[[TaskView], Any]) -> Any:
        """What a function says of a task's view, at one instant."""
        with self.lock:
            return look(task.view)

    def subscribe(self, task: LiveTask, snapshot: Callable[[TaskView], Update] | None) -> Stream:
        """A new reader; it begins with `snapshot`, and gets every update that comes after it."""
        if task.remote:
            self.follower(task)
        stream = Stream(self.limits, self._loop)
        with self.lock:
            if snapshot is not None:
                stream.put(snapshot(task.view))
            if task.view.over:
                stream.end()
            else:
                task.streams.append(stream)
        return stream

    def watch(self, task: LiveTask, key: str) -> Stream:
        """A reader of what becomes of a message; it begins with the task that has it.

        To be called before the message is given to the task, so that nothing is missed.
        """
        if task.remote:
            self.follower(task)
        stream = Stream(self.limits, self._loop, key)
        with self.lock:
            if task.view.over or key in task.view.message_ids:
                stream.begin(task.view.task())
            if task.view.over:
                stream.end()
            else:
                task.streams.append(stream)
        return stream

    def renew(self, task: LiveTask, stream: Stream) -> None:
        """Let a reader who has seen nothing yet begin with the task as it stands now."""
        with self.lock:
            if stream.untouched:
                stream.begin(task.view.task())

    def leave(self, task: LiveTask, stream: Stream) -> None:
        """A reader is gone."""
        with self.lock:
            if stream in task.streams:
                task.streams.remove(stream)
        stream.end()
