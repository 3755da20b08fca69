"""Stopping: the protocol's cancel is the engine's, one ladder however many ask.

The answer waits, bounded, for the recorded ending of the run, whoever drives it; whatever an
executor does beside that is a courtesy and changes nothing (laws 3 one-ending, 6 bounded-stop).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext

from endstop.a2a.elsewhere import Elsewhere, Gone, Silent
from endstop.a2a.executor import Courtesy, ExecutorBodies
from endstop.a2a.following import LOOK_S, Follower
from endstop.a2a.keeping import Keeper
from endstop.a2a.limits import TaskLimits
from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask
from endstop.a2a.task import TaskView
from endstop.core import inputs as i
from endstop.core.events import Event
from endstop.core.terms import Mode, Reason
from endstop.errors import CallerError, EndstopError, NotFound
from endstop.run.runtime import Runtime
from endstop.run.takeover import stopping
from endstop.store.protocol import Recorded

log = logging.getLogger("endstop.a2a")

CANCEL_MARGIN_S = 2.0
"""How much longer than the stop ladder a cancel waits for the record of the ending."""
RETURN_S = 0.5
"""How long a shutdown waits for an executor that has asked its user to return."""
AGAIN = 3
"""How often it is looked who drives a task, should that change meanwhile."""


class Stops:
    """The part of the tasks of an agent that stops them."""

    runtime: Runtime
    hall: Hall
    limits: TaskLimits
    grace_s: float
    elsewhere: Elsewhere
    follower: Follower
    keeper: Keeper
    _executor: AgentExecutor | None
    _bodies: ExecutorBodies
    _background: set[asyncio.Task[Any]]
    _unobserve: Callable[[], None]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """See `tasks.Tasks`."""
        raise NotImplementedError

    async def off_loop(self, read: Any) -> Any:
        """See `tasks.Tasks`."""
        raise NotImplementedError

    def stop_now(self, target: str, reason: Reason) -> bool:
        """Accept a stop of a run or call; false where it is over, or was stopped before."""
        try:
            return self.runtime.engine.tell(
                i.Cancel(target=target, reason=reason, mode=Mode.INTERRUPT)
            )
        except NotFound:
            return False

    async def cancel(self, task: LiveTask, context: ServerCallContext) -> None:
        """Stop a task by the one ladder, and wait, bounded, for its recorded ending (law 6)."""
        if task.remote:
            await self._cancel_elsewhere(task, context.user.user_name)
            return
        self.stop_now(task.id, Reason.CANCELLED_BY_USER)
        if self._executor is not None and not task.courtesy:
            task.courtesy = True
            _ = self.spawn(self._be_courteous(task))
        over = await self.until_over(task, self.grace_s + CANCEL_MARGIN_S)
        if not over and task.remote:
            # It was taken over by another server in between.
            await self._cancel_elsewhere(task, context.user.user_name)

    async def until_over(self, task: LiveTask, bound_s: float) -> bool:
        """Wait, at most `bound_s`, for the recorded ending of a task; whether it is there."""
        waiting = self.spawn(self.hall.until(task, lambda view: view.over))
        await asyncio.wait({waiting}, timeout=bound_s)
        waiting.cancel()
        return task.view.over

    async def _cancel_elsewhere(self, task: LiveTask, by: str) -> None:
        """Stop a task that another server drives; where that does not answer, it is ended here."""
        for _ in range(AGAIN):
            stuck = False
            try:
                await self.elsewhere.cancel(task, by)
                stuck = not await self.until_over(task, self.grace_s + CANCEL_MARGIN_S)
            except Silent:
                stuck = True
            except Gone:
                self.follower.nudge()
            if await self.until_over(task, 2 * LOOK_S):
                return
            try:
                await self.keeper.take_up(task.id, task)
            except CallerError:
                if not stuck:
                    continue
                # It lives and does not bring the stop to an end: the record is taken from it.
                await self.off_loop(lambda: end_by_force(self.runtime.engine.journal, task.id))
                self.follower.nudge()
            else:
                self.stop_now(task.id, Reason.CANCELLED_BY_USER)
            if await self.until_over(task, self.grace_s + CANCEL_MARGIN_S):
                return

    async def _be_courteous(self, task: LiveTask) -> None:
        """The executor's own `cancel()`, once: it may tidy up, and it changes nothing."""
        assert self._executor is not None, "only an executor has a cancel() of its own"
        try:
            context = await self._bodies.context(task, None)
            ending = self._executor.cancel(context, Courtesy(task, self.hall))
            await asyncio.wait_for(ending, self.limits.courtesy_s)
        except TimeoutError:
            log.warning("task %s: the executor's cancel() did not return in time", task.id)
        except Exception as error:  # noqa: BLE001 - foreign code; it may change nothing
            log.info("task %s: the executor's cancel() failed: %r", task.id, error)

    async def _let_return(self) -> None:
        """Let executors return that have just said that they wait for the user."""
        returning = [task for task in self.hall.tasks.values() if _returns(task.view)]
        waits = [
            self.spawn(self.hall.until(task, lambda view: not _returns(view))) for task in returning
        ]
        if waits:
            await asyncio.wait(waits, timeout=min(self.grace_s, RETURN_S))

    async def aclose(self) -> None:
        """Stop what runs, and let go of the rest for whoever comes; the runtime stays open.

        A task whose executor works ends here, and says that the server was shut down.
        """
        await self._let_return()
        working = [task for task in self.hall.tasks.values() if _works(task.view)]
        for task in working:
            self.stop_now(task.id, Reason.SHUTDOWN)
        if working:
            bound_s = self.grace_s + CANCEL_MARGIN_S
            await asyncio.gather(*[self.until_over(task, bound_s) for task in working])
        for task in tuple(self.hall.tasks.values()):
            with suppress(EndstopError):
                await self.runtime.suspend(task.id)
        self._unobserve()
        self.elsewhere.close()
        self.follower.close()
        for one in tuple(self._background):
            one.cancel()
        self.keeper.close()
        if self._background:
            await asyncio.wait(tuple(self._background), timeout=1.0)


def _returns(view: TaskView) -> bool:
    return bool(view.executing) and view.at_rest and not (view.approvals or view.questions)


def _works(view: TaskView) -> bool:
    return any(view.calls[call].started for call in view.executing)


def end_by_force(journal: Any, task_id: str) -> None:
    """End a task whose driver lives and does nothing: what it writes later is refused (law 3)."""

    def decide(recorded: list[Recorded]) -> list[Event]:
        events = [one.event for one in recorded]
        reason, mode = Reason.CANCELLED_BY_USER, Mode.INTERRUPT
        return stopping(events, task_id, reason, mode, may_live=True)

    if hasattr(journal, "take_over"):
        journal.take_over(task_id, decide, force=True)
