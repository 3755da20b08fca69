"""Runs whose driver is gone: what the journal says of them is made honest when it is opened.

Nothing here runs a body. Whoever has settled an orphan lets go of it again, so that any process may
resume it; see `resume.py`.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.recovery import Unfinished
from endstop.core.terms import Mode, Reason
from endstop.errors import CallerError, NotFound
from endstop.store.protocol import Durability, Journal


def settle_orphans(journal: Journal) -> list[str]:
    """Settle what cannot be resumed in runs that nobody owns (law 16); returns those runs."""
    settled = []
    for run in journal.orphans():
        if not journal.adopt(run):
            continue
        if settle(journal, run):
            settled.append(run)
        journal.release(run)
    return settled


def settle(journal: Journal, run: str) -> bool:
    """Settle what cannot be resumed in a run that was adopted; whether there was anything to do."""
    left = read_unfinished(journal, run)
    closing = left.closing()
    if closing:
        journal.append(run, left.seq, closing, Durability.PROCESS)
    return bool(closing)


def read_unfinished(journal: Journal, run: str) -> Unfinished:
    """What the recorded events of a run leave open."""
    left = Unfinished(run)
    left.read(recorded.event for recorded in journal.read(run))
    return left


def adopt(journal: Journal, run: str) -> None:
    """Become the driver of an interrupted run.

    Raises NotFound for a run that the journal does not know, and CallerError for one that has ended
    or is driven by somebody else.
    """
    if journal.adopt(run):
        return
    left = read_unfinished(journal, run)
    if left.opened is None:
        raise NotFound(f"the journal has no run {run!r}")
    if left.ended:
        raise CallerError(f"run {run!r} has ended; its answers are in the journal")
    raise CallerError(
        f"run {run!r} is driven by a program that lives; only a run whose driver is gone can be "
        "taken over"
    )


def end_interrupted(journal: Journal, run: str, reason: Reason) -> None:
    """End an interrupted run that was adopted, and let go of it: nothing of it goes on."""
    left = read_unfinished(journal, run)
    cancel = e.RunCancelled(run=run, reason=reason, mode=Mode.INTERRUPT)
    seq = left.seq
    left.read([cancel])
    journal.append(run, seq, [cancel, *left.closing()], Durability.PROCESS)
    journal.release(run)
