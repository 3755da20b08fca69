"""Following: the tasks that nobody drives here, read from the journal while somebody looks.

One thread, only while there is something to follow. The journal says what has grown: one in memory
by itself, one in a file when it is asked, ten times a second and once for all tasks. Only a task
that has grown is read. A followed task has a view like any other, so whoever waits for it or
watches it sees no difference. Nothing here changes a task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from time import monotonic

from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask
from endstop.errors import EndstopError
from endstop.store.growth import Growth
from endstop.store.protocol import Journal

log = logging.getLogger("endstop.a2a")

LOOK_S = 0.1
"""How often a journal is asked that does not tell by itself."""
UNUSED_S = 30.0
"""How long a task is followed, at least, that nobody waits for or watches; twice that at most."""
AGAIN_S = 1.0
"""When it is tried again to read what could not be read."""


class Follower:
    """Feeds the views of tasks that are not driven here."""

    def __init__(self, journal: Journal, hall: Hall) -> None:
        self._journal = journal
        self._hall = hall
        self._tasks: dict[str, tuple[LiveTask, float]] = {}
        self._lock = threading.Lock()
        self._nudge = threading.Event()
        self._thread: threading.Thread | None = None
        # What was not asked for yet: it may have grown before it was followed.
        self._fresh = False
        # When what could not be read is tried again; whether that was said.
        self._again_at: float | None = None
        self._warned = False
        self._closed = False

    def follow(self, task: LiveTask) -> LiveTask:
        """Follow a task from what its view has on; the one that is followed already, if any."""
        with self._lock:
            known = self._tasks.get(task.id)
            if known is not None:
                task = known[0]
            elif task.view.over:
                return task
            else:
                self._fresh = True
                self._nudge.set()
            self._tasks[task.id] = task, monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._work, name="endstop-a2a-follow", daemon=True
                )
                self._thread.start()
        return task

    def known(self, task_id: str) -> LiveTask | None:
        """The task of this id, where it is followed."""
        known = self._tasks.get(task_id)
        return known[0] if known is not None else None

    def release(self, task: LiveTask) -> None:
        """Follow a task no more: it is over, or driven here from now on."""
        with self._lock:
            if self.known(task.id) is task:
                del self._tasks[task.id]
            if not self._tasks:
                self._nudge.set()

    def nudge(self) -> None:
        """Look now; from any thread."""
        self._nudge.set()

    def close(self) -> None:
        """Follow nothing more."""
        with self._lock:
            self._closed = True
            self._tasks.clear()
        self._nudge.set()

    # -- the thread

    def _work(self) -> None:
        growth = growth_of(self._journal, self._nudge.set)
        sweep_at = monotonic() + UNUSED_S
        try:
            while self._goes_on():
                wait_s = self._look(growth)
                if monotonic() >= sweep_at:
                    self._sweep()
                    sweep_at = monotonic() + UNUSED_S
                if wait_s is None:
                    wait_s = max(0.0, sweep_at - monotonic())
                self._nudge.wait(wait_s)
                self._nudge.clear()
        finally:
            growth.close()
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._tasks:
                self._thread = None
            return bool(self._tasks)

    def _look(self, growth: Growth) -> float | None:
        """Bring the views up to date; how long it can be waited then, None where it is told."""
        with self._lock:
            fresh, self._fresh = self._fresh, False
        again = self._again_at is not None and monotonic() >= self._again_at
        try:
            # Asked in any case: what has changed until now is looked at now.
            if growth.changed() or fresh or again:
                self._catch_up(growth)
                self._again_at, self._warned = None, False
        except EndstopError as error:
            if not (self._closed or self._warned):
                log.warning("tasks cannot be followed: %s", error)
            self._again_at, self._warned = monotonic() + AGAIN_S, True
        if not growth.tells:
            return LOOK_S
        return AGAIN_S if self._again_at is not None else None

    def _catch_up(self, growth: Growth) -> None:
        """Read the tasks that have grown; where one cannot be read, the others are all the same."""
        with self._lock:
            tasks = {run: task for run, (task, _) in self._tasks.items()}
        problem: EndstopError | None = None
        for run in growth.grown({run: task.view.seq for run, task in tasks.items()}):
            task = tasks[run]
            try:
                recorded = list(self._journal.read(run, task.view.seq))
            except EndstopError as error:
                problem = error
                continue
            if self.known(run) is not task:
                # It is driven here since: the observer tells of it.
                continue
            self._hall.catch_up(task, recorded)
            if task.view.over:
                self.release(task)
        if problem is not None:
            raise problem

    def _sweep(self) -> None:
        """Let go of the tasks that nobody has waited for or watched for long."""
        now = monotonic()
        with self._lock:
            tasks = list(self._tasks.values())
        for task, since in tasks:
            with self._hall.lock:
                used = bool(task.waiters or task.streams)
            if task.view.over or (not used and now - since >= UNUSED_S):
                self.release(task)
            elif used:
                with self._lock:
                    if self.known(task.id) is task:
                        self._tasks[task.id] = task, now


class _Unknown:
    """The growth of a journal that cannot say what has grown: every run is looked at each time."""

    tells = False

    def changed(self) -> bool:
        """See `Growth`."""
        return True

    def grown(self, after: Mapping[str, int]) -> Collection[str]:
        """See `Growth`."""
        return list(after)

    def close(self) -> None:
        """See `Growth`."""


def growth_of(journal: Journal, told: Callable[[], object]) -> Growth:
    """What tells which runs of a journal have grown."""
    found = getattr(journal, "growth", None)
    growth: Growth = found(told) if callable(found) else _Unknown()
    return growth
