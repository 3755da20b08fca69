"""The caller's handle on a run of a blocking runtime; see `handles.py` for the async one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from endstop.core import inputs as i
from endstop.core.noting import make_note
from endstop.core.terms import Mode, Money, Outcome, Reason, ToolCall
from endstop.run.base import BatchTerms
from endstop.run.cancelling import BlockingCancellation
from endstop.run.labels import declared_outcome
from endstop.run.results import BatchResult
from endstop.run.resuming import finish_blocking
from endstop.run.submitted import close_after
from endstop.run.uses import Uses
from endstop.run.waits import life_of

if TYPE_CHECKING:
    from endstop.run.blocking import BlockingRuntime


class BlockingRun:
    """One agent execution on a blocking runtime; a context manager that closes it."""

    def __init__(self, runtime: BlockingRuntime, run_id: str) -> None:
        self.id = run_id
        self.batches: list[BatchResult] = []
        self.closed = False
        self._runtime = runtime
        self._uses = Uses(lambda: runtime.engine.forget(run_id))
        self._life = life_of(runtime.engine, run_id)

    def execute(
        self,
        calls: Iterable[ToolCall],
        *,
        parallel: int | None = None,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        together: bool = False,
        on_failure: str = "continue",
    ) -> BatchResult:
        """Run the tool calls of one model reply; see `Run.execute`.

        Ctrl-C in the main thread stops the run; KeyboardInterrupt is raised when every call has its
        answer, and the answers are in `batches`.
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
            return self._runtime._execute(self, calls, terms)

    def finish(self) -> list[BatchResult]:
        """Wait until all batches are over; see `Run.finish`."""
        self._life.check()
        with self._uses:
            return finish_blocking(self._runtime, self)

    def cancel(
        self, reason: Reason | str = Reason.CANCELLED_BY_USER, mode: Mode | str = Mode.INTERRUPT
    ) -> BlockingCancellation:
        """Stop the whole run, from any thread; see `Runtime.cancel`."""
        return self._runtime.cancel(self.id, reason, mode)

    def note(
        self,
        kind: str,
        body: Mapping[str, object],
        *,
        call: str | None = None,
        spent: Money | None = None,
    ) -> bool:
        """Keep a note in the run's history; see `Run.note`."""
        note = make_note(self.id, kind, body, call, spent)
        return self._life.error is None and self._runtime.engine.tell(note)

    def close(self, *, outcome: Outcome | str | None = None) -> None:
        """Say that no further batch will come; see `Run.close`."""
        declared = declared_outcome(outcome)
        self.closed = True
        engine = self._runtime.engine
        if self._life.error is None and self.id in engine.state.runs:
            engine.tell(i.CloseRun(run=self.id, outcome=declared))
            self._uses.close()
        if self._runtime.books is not None:
            self._runtime.books.closed(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close_after(self.close, error)
