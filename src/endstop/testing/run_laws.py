"""What must be true of the runs in a story: their notes, their declared endings, how they end.

Public test tools; only reads.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.terms import DECLARABLE, Outcome, Reason

_MOVES_ON = (
    e.BatchOpened,
    e.ApprovalAsked,
    e.ApprovalAnswered,
    e.CallQueued,
    e.CallGranted,
    e.CallStarted,
    e.CallRetried,
)
"""What makes a run go on; none of it follows when the run was let go, until it is resumed."""


class RunLaws:
    """Reads events one by one; of a declared ending and a cancel it keeps which was first.

    `interrupted` are the runs that nobody drives.
    """

    def __init__(self, wrong: list[str]) -> None:
        self.wrong = wrong
        self.suspending: set[str] = set()
        self.interrupted: set[str] = set()
        self.ended: set[str] = set()
        self.settled: set[str] = set()
        self.accepted: set[str] = set()
        self.closing: set[str] = set()
        self.cancelled: dict[str, Reason] = {}
        self.declared: dict[str, Outcome] = {}

    def read(self, event: e.Event) -> None:
        """Read one more event."""
        self._driven(event)
        match event:
            case e.CallAccepted():
                self.accepted.add(event.call)
            case e.CallSettled():
                self.settled.add(event.call)
            case e.RunCancelled():
                self.cancelled.setdefault(event.run, event.reason)
            case e.RunClosing():
                self._closing(event)
            case e.Noted():
                self._noted(event)
            case e.RunEnded():
                self._ended(event)
                self.ended.add(event.run)
            case _:
                pass

    def _driven(self, event: e.Event) -> None:
        run = event.run
        match event:
            case e.RunSuspending():
                if run in self.ended or run in self.cancelled:
                    self.wrong.append(f"law 3 one-ending: {run} was suspended after its end")
                self.suspending.add(run)
            case e.RunInterrupted():
                if run in self.ended:
                    self.wrong.append(f"law 3 one-ending: {run} was interrupted after its end")
                self.interrupted.add(run)
            case e.RunResumed() | e.RunEnded():
                self.suspending.discard(run)
                self.interrupted.discard(run)
            # Whoever takes an interrupted run up says in the same step what becomes of its calls.
            case e.CallRetried(reason=Reason.DRIVER_LOST):
                pass
            case _ if isinstance(event, _MOVES_ON):
                if run in self.suspending or run in self.interrupted:
                    kind = type(event).__name__
                    self.wrong.append(f"law 15 record-first: {run} was let go and took {kind}")
            case _:
                pass

    def _closing(self, event: e.RunClosing) -> None:
        run = event.run
        if run in self.ended:
            self.wrong.append(f"law 3 one-ending: {run} was closed after its end")
        if event.outcome is None:
            if run in self.closing:
                self.wrong.append(f"law 3 one-ending: {run} was closed twice")
        elif run in self.declared or run in self.cancelled:
            self.wrong.append(f"law 3 one-ending: {run} was declared {event.outcome} too late")
        elif event.outcome not in DECLARABLE:
            self.wrong.append(f"law 3 one-ending: {run} was declared {event.outcome}")
        else:
            self.declared[run] = event.outcome
        self.closing.add(run)

    def _noted(self, event: e.Noted) -> None:
        if event.run in self.ended:
            self.wrong.append(f"law 3 one-ending: {event.run} was noted after its end")
        if event.call is None:
            return
        if event.call in self.settled:
            self.wrong.append(f"law 3 one-ending: {event.call} was noted after its ending")
        if event.call not in self.accepted or not event.call.startswith(f"{event.run}/"):
            self.wrong.append(f"law 2 right-target: {event.run} has a note of {event.call}")

    def _ended(self, event: e.RunEnded) -> None:
        """Of a declared ending and a cancel, the one recorded first."""
        declared, cancelled = self.declared.get(event.run), self.cancelled.get(event.run)
        if declared is not None:
            told = event.outcome is declared
        elif cancelled is not None:
            lost = cancelled is Reason.DRIVER_LOST
            told = event.outcome is (Outcome.LOST if lost else Outcome.CANCELLED)
            told = told and event.reason is cancelled
        else:
            told = event.outcome is Outcome.SUCCEEDED
        if not told:
            self.wrong.append(
                f"law 3 one-ending: {event.run} ended {event.outcome}/{event.reason}, "
                f"declared={declared}, cancelled={cancelled}"
            )
