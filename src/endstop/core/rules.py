"""The rules table: the only list of legal moves of a call.

Theory of operation
-------------------
A call moves only by events, and an event moves a call only if this table says so. A move that is
not listed raises `IllegalMove` and changes nothing. There are three kinds of row:

* forward moves, from `preparing` to `settled`;
* moves that stay where they are: something is recorded, the phase does not change;
* the moves of a settled call. A settled call never leaves its phase (law 3 one-ending): what comes
  late is kept for audit and the books, and that is all.

`running` has one door, `granted`, and `granted` has one door, `queued` (law 1 one-door): the two
rows that lead there are the whole of it. The one way back is `CallRetried`: an attempt that failed
or was lost puts its call in line again, before the same doors. Every phase but `settled` can be
settled, since a cancel may find a call anywhere.

The state diagram in `docs/lifecycle.md` is generated from this table, and a test compares it. Which
event follows which input is decided in `decide.py`; this file does not know who asks.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.terms import Phase
from endstop.errors import IllegalMove

_STAYS: dict[Phase, tuple[type, ...]] = {
    Phase.PREPARING: (e.HookStarted,),
    Phase.GRANTED: (e.CallReconciled,),
    Phase.RUNNING: (
        e.CallReconciled,
        e.CallPaused,
        e.CallResumed,
        e.QuestionAsked,
        e.QuestionAnswered,
        e.QuestionWithdrawn,
        e.CallProgressed,
        e.CommitBegan,
        e.CommitEnded,
        e.CallSpent,
        e.CallParked,
        e.UnparkAsked,
        e.CallUnparked,
    ),
    Phase.STOPPING: (
        e.AskSent,
        e.KillSent,
        e.CallResumed,
        e.QuestionWithdrawn,
        e.CommitEnded,
        e.CallSpent,
        e.UnparkAsked,
        e.CallUnparked,
    ),
    Phase.SETTLED: (e.CallSpent, e.LateEnd),
}

_FORWARD: dict[Phase, dict[type, Phase]] = {
    Phase.PREPARING: {
        e.ApprovalAsked: Phase.AWAITING_APPROVAL,
        e.CallQueued: Phase.QUEUED,
        e.CallSettled: Phase.SETTLED,
    },
    Phase.AWAITING_APPROVAL: {
        e.ApprovalAnswered: Phase.PREPARING,
        e.CallSettled: Phase.SETTLED,
    },
    Phase.QUEUED: {e.CallGranted: Phase.GRANTED, e.CallSettled: Phase.SETTLED},
    Phase.GRANTED: {
        e.CallStarted: Phase.RUNNING,
        e.CallRetried: Phase.QUEUED,
        e.CallSettled: Phase.SETTLED,
    },
    Phase.RUNNING: {
        e.StopRequested: Phase.STOPPING,
        e.CallRetried: Phase.QUEUED,
        e.CallSettled: Phase.SETTLED,
    },
    Phase.STOPPING: {e.CallSettled: Phase.SETTLED},
    Phase.SETTLED: {},
}

RULES: dict[tuple[Phase, type], Phase] = {
    **{(phase, kind): phase for phase, kinds in _STAYS.items() for kind in kinds},
    **{(phase, kind): to for phase, moves in _FORWARD.items() for kind, to in moves.items()},
}
"""(phase, event type) to the next phase."""


class Moves(dict[Phase, Phase]):
    """The column of the table for one kind of event; a phase without a row raises `IllegalMove`."""

    def __init__(self, kind: type) -> None:
        super().__init__({phase: to for (phase, other), to in RULES.items() if other is kind})
        self._kind = kind

    def __missing__(self, phase: Phase) -> Phase:
        raise IllegalMove(f"a call that is {phase} cannot take {self._kind.__name__}")


MOVES = {kind: Moves(kind) for kind in (e.CallAccepted, *(kind for _, kind in RULES))}
"""Event type to phase to the next phase: the same table, to be looked up without a call."""


def next_phase(phase: Phase, event: object) -> Phase:
    """Where a call goes from `phase` on `event`.

    Raises `IllegalMove` where the table has no such row; the caller has changed nothing yet.
    """
    return MOVES[type(event)][phase]


def diagram() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", "    [*] --> preparing: CallAccepted"]
    for phase, moves in _FORWARD.items():
        lines += [f"    {phase} --> {to}: {kind.__name__}" for kind, to in moves.items()]
    for phase, kinds in _STAYS.items():
        lines += [f"    {phase} --> {phase}: {kind.__name__}" for kind in kinds]
    lines.append("    settled --> [*]")
    return "\n".join(lines) + "\n"
