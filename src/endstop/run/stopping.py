"""Stopping and letting go: the part that both runtimes share; each waits in its own way.

Nothing here decides what a stop does to a call. Runs that nobody drives any more are stopped by
what their record says of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from endstop.core import inputs as i
from endstop.core.state import CallState
from endstop.core.terms import CANCEL_REASONS, Mode, Reason
from endstop.errors import CallerError, NotFound, RunSuspended
from endstop.run.orphans import stop_orphan
from endstop.run.promise import Promise
from endstop.run.results import CallResult

if TYPE_CHECKING:
    from endstop.run.engine import Engine


class Accepted(NamedTuple):
    """A cancel: whether it changed anything, the calls that are still to end, those that were over
    before, and, where nobody drives the run, those that are over now."""

    accepted: bool
    opened: list[CallState]
    already: list[CallResult]
    ended: list[CallResult]


class Stopping:
    """What a runtime does with what still runs."""

    engine: Engine
    driven: dict[str, bool]

    def _stop_all(self, suspend: bool) -> list[Promise]:
        """Close and cancel every run that has not ended, or let it go; promises that they are over.

        Every run is told before any is waited for: what one lets go of must start no other.
        """
        over = []
        for run in list(self.engine.state.runs.values()):
            # Another thread may end and forget it meanwhile: then there is nothing to stop.
            with suppress(NotFound):
                if run.ended:
                    continue
                over.append(self.engine.promise(run.id))
                if suspend and self.engine.tell(i.SuspendRun(run=run.id, stop=True)):
                    continue
                # Also a run that cannot be let go, as one that was cancelled and drains for ever.
                said = i.CloseRun(run=run.id), i.Cancel(target=run.id, reason=Reason.SHUTDOWN)
                # Where somebody works on it, that is stopped: the run has not come to its end.
                for one in reversed(said) if run.id in self.driven else said:
                    self.engine.tell(one)
        return over

    def _begin_suspend(self, run_id: str) -> Promise | None:
        """Let a run go where nothing of it runs; what to wait for then, None where it stays.

        A model that is being asked runs, too.
        """
        over = self.engine.promise(run_id)
        if self.driven.get(run_id):
            return None
        return over if self.engine.tell(i.SuspendRun(run=run_id)) else None

    @staticmethod
    def _check_suspended(over: Promise) -> None:
        """Raise where the journal did not take that a run was let go."""
        if not isinstance(over.error, RunSuspended):
            over.check()

    def _cancel(
        self, target: str, reason: Reason | str, mode: Mode | str, *, gone: bool = True
    ) -> Accepted:
        """Stop what is here; with `gone`, also what nobody drives any more, in the journal."""
        if not isinstance(target, str):
            raise CallerError(
                f"cancel() takes the id of a run, batch or call, not {type(target).__name__}"
            )
        try:
            why, how = Reason(reason), Mode(mode)
        except ValueError as problem:
            raise CallerError(f"cancel: {problem}") from None
        if why not in CANCEL_REASONS:
            known = ", ".join(sorted(CANCEL_REASONS))
            raise CallerError(f"{why} is no reason for a cancel; the reasons are: {known}")
        # Looked at before: what is over now was over before the cancel came.
        run_id = target.partition("/")[0]
        try:
            calls = self.engine.calls_of(target)
        except NotFound:
            if not gone or run_id in self.engine.state.runs:
                raise
            stopped = stop_orphan(self.engine.journal, run_id, target, why, how)
            if stopped is None:
                raise
            accepted, ended = stopped
            return Accepted(accepted, [], [], ended)
        over = [call for call in calls if self.engine.is_told(call)]
        already = [self.engine.result(call) for call in over]
        accepted = self.engine.tell(i.Cancel(target=target, reason=why, mode=how))
        return Accepted(accepted, [call for call in calls if call not in over], already, [])
