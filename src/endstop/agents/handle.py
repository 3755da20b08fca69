"""Handles: the caller's end of a delegated call. The ending is the call's; a handle only reads it.

Caller-driven, a failure raises `DelegationFailed` and a cancel `HandleCancelled`; neither is kept
from the code that awaits. Whatever an await did, the call has its one ending (laws 3 and 17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from endstop.agents.errors import DelegationFailed, HandleCancelled
from endstop.core.state import CallState
from endstop.core.terms import Mode, Outcome, Reason, StoppedBy
from endstop.errors import NotFound
from endstop.run.blocking import BlockingRuntime
from endstop.run.results import CallResult
from endstop.run.runtime import Runtime
from endstop.run.submitted import Submitted
from endstop.run.waiting import CtrlC

if TYPE_CHECKING:
    from endstop.agents.ledger import Ledger


class Proof(StrEnum):
    """What is known of the peer of a cancelled handle: it stopped, or nobody can say."""

    STOPPED = "stopped"
    UNKNOWN = "unknown"


class BaseHandle:
    """What the handles of both drivers share: everything that does not wait."""

    def __init__(
        self,
        runtime: Runtime | BlockingRuntime,
        ledger: Ledger,
        submitted: Submitted,
        index: int,
        *,
        agent: str,
        owner: str,
        detached: bool,
        together: bool,
    ) -> None:
        call = submitted.calls[index]
        self.id = call.id
        self.agent = agent
        self.owner = owner
        self.detached = detached
        self._ledger = ledger
        self._base: Runtime | BlockingRuntime = runtime
        self._submitted = submitted
        self._call: CallState = call
        self._over = submitted.promises[index]
        self._together = together
        self._asked_to_stop = False
        if not detached:
            ledger.enter(self)

    @property
    def sent(self) -> bool:
        """Whether the agent was sent the task; a deferred one is when it is first awaited."""
        return self._submitted.is_sent(self.id)

    @property
    def done(self) -> bool:
        """Whether the call has its one ending, and it is recorded (law 15 record-first)."""
        return self._over.done

    @property
    def answer(self) -> CallResult | None:
        """The call's one honest answer, or None while it is open. Never raises for a failure."""
        if not self._over.done:
            return None
        self._check()
        self._ledger.leave(self)
        return self._base.engine.result(self._call)

    @property
    def proof(self) -> Proof | None:
        """The verdict on a cancelled call; None for one that is open or ended otherwise."""
        ended = self._call.settled
        if not self._over.done or ended is None or not self._was_cancelled:
            return None
        gone = not ended.alive and ended.stopped_by is not StoppedBy.ABANDONED
        return Proof.STOPPED if gone or not self._call.alive else Proof.UNKNOWN

    @property
    def state(self) -> str:
        """Where the call is, in one word or two."""
        if self._over.done and self._call.settled is not None:
            return str(self._call.settled.outcome)
        return str(self._call.phase) if self.sent else "never sent"

    @property
    def excused(self) -> bool:
        """Whether nobody needs to take the answer: it was cancelled, or its owner was."""
        if self._asked_to_stop or self._call.run.cancelled is not None:
            return True
        return self._over.done and self._was_cancelled

    @property
    def _was_cancelled(self) -> bool:
        ended = self._call.settled
        return ended is not None and ended.outcome is Outcome.CANCELLED

    def send(self) -> None:
        """Send a deferred agent its task, without waiting; anything sent before is sent once.

        The calls of a group that bounds how many run at once are sent together.
        """
        for call in self._submitted.calls if self._together else (self._call,):
            self._submitted.send(call.id)

    def cancel(self, mode: Mode | str = Mode.INTERRUPT) -> bool:
        """Stop the call; from any thread. False if it was over or had been cancelled already.

        Await the handle, or close the turn, for the verdict on the peer: see `proof`.
        """
        if self._over.done:
            return False
        self._asked_to_stop = True
        accepted = self._stop(Reason.CANCELLED_BY_USER, mode)
        self._over.then(lambda: self._ledger.leave(self))
        return accepted

    def finalise(self) -> None:
        """Stop a call that nobody will take; for whoever closes the turn."""
        if not self._over.done:
            self._stop(Reason.PARENT_CANCELLED, Mode.INTERRUPT)

    def _stop(self, reason: Reason, mode: Mode | str) -> bool:
        # A run that was forgotten meanwhile is over: there is nothing left to stop.
        with suppress(NotFound):
            return self._base.cancel(self.id, reason, mode).accepted
        return False

    def _check(self) -> None:
        self._over.check()
        self._base._check_owned(self.id, [self._call])

    def _taken(self) -> CallResult:
        self._ledger.leave(self)
        self._check()
        return self._base.engine.result(self._call)

    def value_of(self, answer: CallResult) -> Any:
        """The value of a call that succeeded. Raises DelegationFailed or HandleCancelled."""
        if answer.outcome is Outcome.SUCCEEDED:
            return answer.value
        if answer.outcome is Outcome.CANCELLED:
            raise HandleCancelled(self.id, self.agent, answer, self.proof)
        raise DelegationFailed(self.id, self.agent, answer)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.agent}: {self.state}>"


class Handle(BaseHandle):
    """A delegated call on an async runtime: `value = await handle`.

    Awaiting sends a deferred agent; a second await gives the same again. If the task that awaits is
    cancelled, so is the call (not a detached one), and CancelledError is raised when it is over.
    """

    _base: Runtime

    def __await__(self) -> Generator[Any, None, Any]:
        return self._value().__await__()

    async def _value(self) -> Any:
        return self.value_of(await self.answered())

    async def answered(self) -> CallResult:
        """Wait for the call's one answer, whatever it is; a failure is not raised."""
        self.send()
        cancelled = False
        if not self._over.done:
            parked = self._base._parking.begin()
            cancelled = await self.until_over(self.cancel)
            if parked is not None:
                cancelled = await self._base._go_on(parked) or cancelled
        cancelled = await self.settle() or cancelled
        if cancelled:
            raise asyncio.CancelledError
        return self._taken()

    async def until_over(self, on_cancel: Callable[[], Any]) -> bool:
        """Wait for the ending; returns whether the waiter was cancelled.

        What belongs to the waiter is stopped then, and waited out; a detached call outlives it.
        """
        if not self.detached:
            return await self._base._until(self._over, on_cancel)
        try:
            await self._watch(None)
        except asyncio.CancelledError:
            on_cancel()
            return True
        return False

    async def settle(self) -> bool:
        """Wait for the ending of what is being stopped, and for the after-hooks.

        For whoever closes a turn; returns whether the waiter was cancelled.
        """
        runtime = self._base
        cancelled = False
        if not self.detached:
            cancelled = await runtime._until(self._over, lambda: None)
        return await runtime._finish_after_hooks(self._submitted.batch_id) or cancelled

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the call is over, at most `timeout_s`; stops and takes nothing."""
        self.send()
        if self._over.done:
            return True
        parked = self._base._parking.begin()
        try:
            await self._watch(timeout_s)
        finally:
            cancelled = parked is not None and await self._base._go_on(parked)
        if cancelled:
            raise asyncio.CancelledError
        return self._over.done

    async def _watch(self, timeout_s: float | None) -> None:
        runtime = self._base
        waiter: asyncio.Future[None] = runtime._start().create_future()
        self._over.then(lambda: runtime._wake(waiter))
        await asyncio.wait({waiter}, timeout=timeout_s)
        waiter.cancel()


class BlockingHandle(BaseHandle):
    """A delegated call on a blocking runtime: `value = handle.result()`.

    Deadlines pass while some thread waits here or for a batch: the caller's thread is the timer.
    """

    _base: BlockingRuntime
    _shown = False

    @property
    def done(self) -> bool:
        """Whether the call has its one ending; lets happen what is due by now."""
        engine = self._base.engine
        if not self._over.done:
            due = engine.next_due()
            if due is not None and due <= engine.clock():
                engine.tick()
        return self._over.done

    def result(self, timeout_s: float | None = None) -> Any:
        """The value of the call, waited for. Raises what `await handle` raises.

        Raises TimeoutError, and stops nothing, if it is not over within `timeout_s`.
        """
        return self.value_of(self.answered(timeout_s))

    def answered(self, timeout_s: float | None = None) -> CallResult:
        """Wait for the call's one answer, whatever it is; a failure is not raised.

        Raises TimeoutError as `result` does. Ctrl-C in the main thread stops the call, and
        KeyboardInterrupt is raised when it is over.
        """
        with CtrlC(self.cancel) as ctrl_c:
            over = self.wait(timeout_s)
        if ctrl_c.pressed:
            raise KeyboardInterrupt
        if not over:
            raise TimeoutError(f"{self.id} ({self.agent}) is not over within {timeout_s} s")
        return self._shown_answer()

    def settle(self) -> None:
        """Wait for the ending of what is being stopped; for whoever closes a turn."""
        self._base._until(self._over, None)

    def _shown_answer(self) -> CallResult:
        answer = self._taken()
        if self._call.started and not self._shown:
            self._shown = True
            for hook in self._base.hooks.after:
                self._base._show_one(hook, answer)
        return answer

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the call is over, at most `timeout_s`; stops and takes nothing."""
        runtime = self._base
        self.send()
        if self._over.done:
            return True
        parked = runtime._parking.begin()
        runtime._until(self._over, timeout_s)
        if parked is not None:
            runtime._go_on(parked)
        return self._over.done
