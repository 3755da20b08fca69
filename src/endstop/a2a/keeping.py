"""Keeping: tasks are taken up where their server is gone, and put away where nothing happens.

A task that nobody drives any more goes on here if it had not begun, and else ends, honestly: what
had begun is lost, and said to be (law 16 survives-restart). One that waits for its user is let go
after a while and costs no memory; the next message brings it back, here or elsewhere. One timer
does it all; nothing here decides how a run ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from a2a.utils.errors import InternalError

from endstop.a2a.livetask import LiveTask
from endstop.a2a.task import TaskView
from endstop.a2a.weighing import weigh
from endstop.core.events import RunOpened
from endstop.core.terms import Reason
from endstop.errors import CallerError, EndstopError, JournalError, NotFound, StaleWriter
from endstop.store.protocol import Recorded

if TYPE_CHECKING:
    from endstop.a2a.tasks import Tasks

log = logging.getLogger("endstop.a2a")

TICK_S = 0.5
SWEEP_S = 2.0
"""How often it is looked for tasks whose server is gone."""
BROKEN = "the server cannot record the task any more, and has stopped it; ask for it again later"
"""What a client reads whose task the journal takes nothing more of."""
CLOSELY = 15
"""At every so many of these looks, tasks that rested are looked at again."""


class Keeper:
    """Looks after the tasks of one agent; see this module."""

    def __init__(self, tasks: Tasks, *, park_s: float, sweep_s: float = SWEEP_S) -> None:
        self._tasks = tasks
        self._park_s = park_s
        self._sweep_s = sweep_s
        self._journal = tasks.runtime.engine.journal
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        # Tasks at rest that nobody drives, as they were when they were looked at.
        self._resting: dict[str, float | None] = {}
        self._sweeps = 0
        self._look_closely = False
        # What was taken up at the start.
        self.taken: list[str] = []
        self._keeping: asyncio.Task[None] | None = None

    # -- taking up

    async def take_up(self, task_id: str, task: LiveTask | None = None) -> LiveTask:
        """Drive a task from here on. Raises CallerError where somebody else does.

        `task` is one that was followed: who waits for it and watches it stays with it.
        """
        taking = self._tasks.spawn(self._take_up_alone(task_id, task))
        # Whoever asked for it may leave in the middle of it: it is brought to its end all the same,
        # else the run would be driven here and nobody would know its task (law 18 audience-free).
        taking.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({taking})
        taken: LiveTask = taking.result()
        return taken

    async def settled(self, task_id: str) -> LiveTask | None:
        """A task that is just being taken up or put away, as it is driven here after that.

        None where it was let go, and somebody else was faster.
        """
        try:
            return await self.take_up(task_id)
        except CallerError:
            return None

    async def _take_up_alone(self, task_id: str, task: LiveTask | None) -> LiveTask:
        async with self._alone(task_id):
            known = self._tasks.hall.tasks.get(task_id)
            return known if known is not None else await self._take_up(task_id, task)

    @asynccontextmanager
    async def _alone(self, task_id: str) -> AsyncIterator[None]:
        """One after the other takes a task up or puts it away."""
        lock, users = self._locks.get(task_id, (asyncio.Lock(), 0))
        self._locks[task_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[task_id]
            if users > 1:
                self._locks[task_id] = lock, users - 1
            else:
                del self._locks[task_id]

    async def _take_up(self, task_id: str, task: LiveTask | None) -> LiveTask:
        tasks, hall = self._tasks, self._tasks.hall
        if task is None:
            task = LiveTask(task_id, tasks.limits)
        was_remote = task.remote
        hall.begin_joining(task)
        try:
            task.run = await tasks.resume(task_id)
            recorded, weight = await tasks.off_loop(lambda: self._read(task_id))
            task.bytes = weight
            hall.join(task, recorded)
        finally:
            if task.joining is not None:
                # It did not come to that: somebody else drives it, or this was broken off.
                hall.drop(task)
                task.joining, task.remote = None, was_remote
            # A body may have begun already: it waits for what it is to be told.
            assert task.joined is not None, "joining was begun"
            task.joined.set_result(None)
        tasks.follower.release(task)
        self._resting.pop(task_id, None)
        task.spoken = True
        tasks.go_on(task)
        return task

    def _read(self, task_id: str) -> tuple[list[Recorded], int]:
        """All that is recorded of a task, and what its executor has added to it so far.

        From the beginning also where the view is further: what was added is in the record alone.
        """
        recorded = list(self._journal.read(task_id))
        assert recorded, "what is driven has a record"
        opened = recorded[0].event
        context = opened.labels.get("context", "") if isinstance(opened, RunOpened) else ""
        return recorded, weigh(recorded, context)

    async def sweep(self) -> list[str]:
        """Take up the tasks of this agent whose server is gone; returns those that were."""
        taken = []
        for task_id in await self._tasks.off_loop(self._orphans):
            try:
                await self.take_up(task_id, self._tasks.follower.known(task_id))
            except (NotFound, CallerError):
                # Somebody else was faster, or it is over.
                continue
            except EndstopError as error:
                # One whose record cannot be read must not keep the others waiting (law 16).
                log.warning("task %s cannot be taken up: %s", task_id, error)
                continue
            taken.append(task_id)
        return taken

    def _orphans(self) -> list[str]:
        found = self._journal.orphans()
        if not found:
            self._resting.clear()
            return []
        self._sweeps += 1
        self._look_closely = self._sweeps % CLOSELY == 0
        mine = set(self._journal.labelled({"agent": self._tasks.agent}))
        live = self._tasks.hall.tasks
        return [run for run in found if run in mine and run not in live and self._needs_care(run)]

    def _needs_care(self, run: str) -> bool:
        """Whether a task that nobody drives has something to do, or an ending to get."""
        if run in self._resting and not self._look_closely:
            return False
        last_at = self._journal.last_at(run)
        if run in self._resting and self._resting[run] == last_at:
            return False
        try:
            view = self._tasks.read(run)
        except JournalError as error:
            # Until it changes, it stays like that: said once, and no other waits for it (law 16).
            log.warning("task %s cannot be read: %s", run, error)
            self._resting[run] = last_at
            return False
        if view.over or _is_parked(view):
            self._resting[run] = last_at
            return False
        return True

    # -- putting away, and the rest

    async def begin(self) -> None:
        """Take up what an earlier server left, and look after the tasks from then on."""
        try:
            self.taken = await self.sweep()
        except EndstopError as error:
            log.warning("tasks of an earlier server cannot be taken up: %s", error)
        self._keeping = self._tasks.spawn(self._keep())

    def close(self) -> None:
        """Look after nothing more."""
        if self._keeping is not None:
            self._keeping.cancel()

    async def _keep(self) -> None:
        sweep_at = monotonic() + self._sweep_s
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._end_lingering()
                await self._give_up_lost()
                await self._park()
                if monotonic() >= sweep_at:
                    await self.sweep()
                    sweep_at = monotonic() + self._sweep_s
            except EndstopError as error:
                log.warning("tasks cannot be looked after: %s", error)
            except Exception:
                log.exception("tasks cannot be looked after")

    def _end_lingering(self) -> None:
        """Stop executors that go on after they have said that their task is over."""
        tasks = self._tasks
        due = monotonic() - tasks.grace_s
        for task in tuple(tasks.hall.tasks.values()):
            if task.closed_at is None or task.closed_at > due:
                continue
            task.closed_at = None
            for call in tuple(task.view.executing):
                tasks.stop_now(call, Reason.SUPERSEDED)

    async def _give_up_lost(self) -> None:
        """Follow the tasks that somebody else took: what is shown of them is what he records.

        Where the journal takes nothing more of one, for another reason, nobody is left waiting.
        """
        tasks = self._tasks
        engine = tasks.runtime.engine
        for task in tuple(tasks.hall.tasks.values()):
            run = engine.state.runs.get(task.id)
            if task.unsettled or (run is not None and not run.fenced):
                continue
            error = engine.fences.get(task.id)
            if isinstance(error, JournalError) and not isinstance(error, StaleWriter):
                log.error("task %s cannot be recorded any more: %s", task.id, error)
                tasks.hall.give_up(task, InternalError(BROKEN))
                with suppress(NotFound):
                    engine.promise(task.id).then(partial(engine.forget, task.id))
                continue
            try:
                view = await tasks.view(task.id)
            except JournalError as error:
                log.debug("task %s cannot be read: %s", task.id, error)
                continue
            if not view.opened or tasks.hall.tasks.get(task.id) is not task:
                continue
            log.warning("task %s was taken over by another server", task.id)
            tasks.hall.lose(task, view)
            if not view.over:
                tasks.follower.follow(task)

    async def _park(self) -> None:
        now = asyncio.get_running_loop().time()
        for task in tuple(self._tasks.hall.tasks.values()):
            if task.idle_at is None or now - task.idle_at < self._park_s:
                continue
            if task.waiters or task.streams or task.waiting or task.busy:
                continue
            await self._let_go(task)

    async def _let_go(self, task: LiveTask) -> None:
        task.idle_at, task.leaving = None, True
        async with self._alone(task.id):
            try:
                if await self._tasks.runtime.suspend(task.id):
                    self._tasks.hall.drop(task)
            except NotFound:
                self._tasks.hall.drop(task)
            finally:
                task.leaving = False


def _is_parked(view: TaskView) -> bool:
    """Whether a task waits for its user and has nothing else to do."""
    lost = view.failed_call is not None
    return view.at_rest and not view.executing and not view.waiting and not lost
