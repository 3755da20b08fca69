"""What must be true of the runs in a story: their notes, their declared endings, how they end.

Public test tools; only reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from endstop.core import events as e
from endstop.core.terms import DECLARABLE, Outcome, Reason


def check_runs(events: Iterable[e.Event]) -> list[str]:
    """Every law that a story breaks in the life of its runs."""
    runs = _Runs()
    for event in events:
        runs.read(event)
    return runs.wrong


class _Runs:
    """Reads events one by one; of a declared ending and a cancel it keeps which was first."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.ended: set[str] = set()
        self.settled: set[str] = set()
        self.accepted: set[str] = set()
        self.closing: set[str] = set()
        self.cancelled: dict[str, Reason] = {}
        self.declared: dict[str, Outcome] = {}

    def read(self, event: e.Event) -> None:
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
