"""Runs whose driver is gone: what the journal says of them is made honest when it is opened."""

from __future__ import annotations

from endstop.core.recovery import Unfinished
from endstop.store.protocol import Durability, Journal


def settle_orphans(journal: Journal) -> list[str]:
    """Settle what had begun in runs that nobody owns (law 16); returns those runs."""
    settled = []
    for run in journal.orphans():
        if not journal.adopt(run):
            continue
        open_run = Unfinished(run)
        open_run.read(recorded.event for recorded in journal.read(run))
        closing = open_run.closing()
        if closing:
            journal.append(run, open_run.seq, closing, Durability.PROCESS)
            settled.append(run)
    return settled
