"""The caller's handles on an async runtime: a run, and a cancel that was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from endstop.core import inputs as i
from endstop.core.noting import make_note
from endstop.core.terms import Mode, Money, Outcome, Reason, ToolCall
from endstop.run.base import BatchTerms
from endstop.run.labels import declared_outcome
from endstop.run.results import BatchResult, CancelReport
from endstop.run.resuming import finish_on
from endstop.run.stopping import Accepted
from endstop.run.submitted import close_after
from endstop.run.uses import Uses
from endstop.run.waits import life_of

if TYPE_CHECKING:
    from endstop.run.runtime import Runtime


class Run:
    """One agent execution on an async runtime; a context manager that closes it."""

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self.id = run_id
        self.batches: list[BatchResult] = []
        self.closed = False
        self._runtime = runtime
        self._uses = Uses(lambda: runtime.engine.forget(run_id))
        self._life = life_of(runtime.engine, run_id)

    def _opened(self) -> None:
        """It was made before its run, which is there now."""
        self._life = life_of(self._runtime.engine, self.id)

    async def execute(
        self,
        calls: Iterable[ToolCall],
        *,
        parallel: int | None = None,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        together: bool = False,
        on_failure: str = "continue",
    ) -> BatchResult:
        """Run the tool calls of one model reply; the answers come in request order (law 4).

        `parallel` bounds how many run at once (1: one after the other). `timeout_s` is the running
        time of each call, over what its tool says. `deadline_s` bounds the batch as a whole.
        `together` starts none before all are prepared. `on_failure="stop"` cancels the others when
        one fails.

        If the task that awaits this is cancelled, the run is cancelled, the calls are stopped by
        the ladder, and CancelledError is raised when they are over; their results are recorded and
        in `batches`. Raises CallerError for calls that are no tool calls and for a closed run.
        """
        terms = BatchTerms(
            parallel=parallel,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            together=together,
            on_failure=on_failure,
        )
        self._life.check()
        with self._uses:
            return await self._runtime._execute(self, calls, terms)

    async def finish(self) -> list[BatchResult]:
        """Wait until all batches are over; returns the answers of all, in order, also of those that
        were over before the run was resumed.

        Cancelling the task that waits here cancels the run, as in `execute`.
        """
        self._life.check()
        with self._uses:
            return await finish_on(self._runtime, self)

    def cancel(
        self, reason: Reason | str = Reason.CANCELLED_BY_USER, mode: Mode | str = Mode.INTERRUPT
    ) -> Cancellation:
        """Stop the whole run; see `Runtime.cancel`."""
        return self._runtime.cancel(self.id, reason, mode)

    def note(
        self,
        kind: str,
        body: Mapping[str, object],
        *,
        call: str | None = None,
        spent: Money | None = None,
    ) -> bool:
        """Keep a note in the run's history; `kind` says what it is, `body` is a JSON object.

        In order with all that happens, and recorded before observers see it (law 15 record-first).
        False, and nothing is kept, once the run has ended, or the `call` that it is said to belong
        to is settled (law 3 one-ending). `spent` is money that was paid outside of any call, for
        what the note tells of; it counts in the run's budget (law 20 paid-once). From any thread.
        Raises CallerError for a kind that is no short text and a body that is no JSON object.
        """
        note = make_note(self.id, kind, body, call, spent)
        return self._life.error is None and self._runtime.engine.tell(note)

    def close(self, *, outcome: Outcome | str | None = None) -> None:
        """Say that no further batch will come, and, with `outcome`, how the run ends.

        Without it the run has succeeded, unless it was cancelled. `outcome` is `succeeded`,
        `failed` or `rejected`; of that and a cancel, the one recorded first decides what `RunEnded`
        says, and a cancel stops what runs all the same (law 3 one-ending). Raises CallerError for
        another outcome.
        """
        declared = declared_outcome(outcome)
        self.closed = True
        engine = self._runtime.engine
        if self._life.error is None and self.id in engine.state.runs:
            engine.tell(i.CloseRun(run=self.id, outcome=declared))
            self._uses.close()
        if self._runtime.books is not None:
            self._runtime.books.closed(self.id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close_after(self.close, error)


class Cancellation:
    """A cancel that was accepted; await it to learn what ended and how."""

    def __init__(
        self,
        runtime: Runtime,
        target: str,
        cancel: Accepted,
    ) -> None:
        self.target = target
        self.accepted = cancel.accepted
        self._runtime = runtime
        self._opened, self._already, self._ended = cancel.opened, cancel.already, cancel.ended
        self._promises = [runtime.engine.promise(call.id) for call in self._opened]

    def __await__(self) -> Generator[Any, None, CancelReport]:
        return self._report().__await__()

    async def _report(self) -> CancelReport:
        cancelled = False
        for promise in self._promises:
            cancelled = await self._runtime._until(promise, lambda: None) or cancelled
        if cancelled:
            raise asyncio.CancelledError
        self._runtime._check_owned(self.target, self._opened)
        return CancelReport(
            target=self.target,
            accepted=self.accepted,
            over=True,
            ended=(
                *self._ended,
                *(self._runtime.engine.result(call) for call in self._opened),
            ),
            already_over=tuple(self._already),
        )
