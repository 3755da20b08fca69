"""The events of the life of a run: how it begins, is closed, is taken up again, ends; its notes.

Part of `events.py`, and pure as it is: no instants, no behaviour.
"""

from __future__ import annotations

from typing import Any

from endstop.core.record import EMPTY, record
from endstop.core.terms import Earlier, Limits, Mode, Money, Outcome, Reason


@record
class RunOpened:
    """A run exists. `labels` are what it may be found by in the journal."""

    run: str
    parent_call: str | None = None
    detached: bool = False
    limits: Limits | None = None
    after: str | None = None
    inherited: tuple[Earlier, ...] = ()
    labels: dict[str, str] = EMPTY


@record
class RunCancelled:
    """A cancel of the whole run was accepted; sticky (law 2 right-target)."""

    run: str
    reason: Reason
    mode: Mode


@record
class RunClosing:
    """No further batch will be taken. `outcome` is how the run ends, where that was declared."""

    run: str
    outcome: Outcome | None = None


@record
class RunSuspending:
    """The run is about to be let go: what runs is stopped, and nothing of it moves on."""

    run: str


@record
class RunInterrupted:
    """The run's driver is gone; what had begun is settled, what had not may be resumed.

    `clean`: it let go of the run itself, and what had not started by then has never begun.
    """

    run: str
    clean: bool = False


@record
class RunResumed:
    """A driver took the run up again: what had not begun goes on from here (law 16)."""

    run: str


@record
class RunEnded:
    """The run is over: exactly one per run (law 3 one-ending)."""

    run: str
    outcome: Outcome
    reason: Reason


@record
class Noted:
    """The application's own word in the history of a run: `kind` and `body` are its business.

    None follows the end of the run, nor the ending of the `call` that it belongs to, if it belongs
    to one (law 3 one-ending). `spent` is what it tells of was paid for, outside of any call; it
    counts in the budget of the run (law 20 paid-once).
    """

    run: str
    kind: str
    body: dict[str, Any]
    call: str | None = None
    spent: Money | None = None
