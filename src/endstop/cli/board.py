"""The command line's board: what the recorded events say of each call, in request order.

A reading of the journal's language, nothing more: phases come from the rules table, so that what
is shown is what is recorded. Nothing here decides or draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from endstop.core import events as e
from endstop.core.rules import RULES
from endstop.core.terms import Effect, Flag, Money, Phase, StoppedBy
from endstop.run.results import CallView

_PASSING = frozenset({Phase.PREPARING, Phase.QUEUED, Phase.GRANTED})


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """One call as a viewer sees it. `shown` is what a view has already said about it."""

    call: str
    number: int
    tool: str
    arguments: dict[str, Any] | None
    cost: Money | None
    phase: Phase = Phase.PREPARING
    since: float = 0.0
    heartbeat_at: float = 0.0
    waits_for: str = ""
    ran_s: float = 0.0
    message: str = ""
    fraction: float | None = None
    why: str = ""
    rung: str = ""
    spent: list[Money] = field(default_factory=list)
    began: bool = False
    settled: e.CallSettled | None = None
    questions: dict[str, e.QuestionAsked] = field(default_factory=dict)
    shown: str = ""

    @property
    def charged(self) -> tuple[tuple[Money, ...], bool]:
        """What the call has cost, and whether that is only what its tool declares.

        As the budget counts it (law 20 paid-once): what was reported; where a body that may have
        had its effect reported nothing, what its tool declares.
        """
        if self.spent:
            return tuple(self.spent), False
        settled = self.settled
        if self.cost is None or not self.began or settled is None or settled.effect is Effect.NONE:
            return (), False
        return (self.cost,), True

    @property
    def passing(self) -> bool:
        """Whether it is where calls usually stay for a moment only."""
        if self.phase is Phase.STOPPING:
            return not self.rung
        return self.phase in _PASSING

    @property
    def state(self) -> str:
        """The phase in a word, or the outcome once there is one."""
        if self.settled is not None:
            return str(self.settled.outcome).replace("_", " ")
        return str(self.phase).replace("_", " ")

    @property
    def detail(self) -> str:
        """What it waits for, or how it ended, or its latest progress."""
        if self.settled is not None:
            return _ending(self.settled)
        if self.phase is Phase.STOPPING:
            return "; ".join(part for part in (self.why, self.rung) if part)
        return f"waits for {self.waits_for}" if self.waits_for else self.message


class Board:
    """All calls of the run that is watched."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def apply(self, event: e.Event, now: float) -> Row | None:
        """Take one event in; returns the row that it is about, if any."""
        if isinstance(event, e.CallAccepted):
            row = Row(
                call=event.call,
                number=len(self.rows) + 1,
                tool=event.tool,
                arguments=event.arguments,
                cost=event.cost,
                since=now,
                heartbeat_at=now,
            )
            self.rows[event.call] = row
            return row
        row_or_none = self.rows.get(getattr(event, "call", ""))
        if row_or_none is None:
            return None
        row = row_or_none
        before = row.phase
        row.phase = RULES.get((row.phase, type(event)), row.phase)
        if row.phase is not before:
            row.since = row.heartbeat_at = now
            row.waits_for = ""
        _note(row, event)
        return row

    def look(self, views: list[CallView]) -> None:
        """Take in what only the runtime knows: running times, and what is waited for."""
        for view in views:
            row = self.rows.get(view.call_id)
            if row is not None and row.settled is None:
                row.ran_s = view.ran_s
                row.waits_for = view.waits_for

    @property
    def open(self) -> list[Row]:
        """The calls that have no ending yet."""
        return [row for row in self.rows.values() if row.settled is None]


def _note(row: Row, event: e.Event) -> None:
    match event:
        case e.CallQueued():
            row.arguments = event.arguments if event.arguments is not None else row.arguments
            row.cost = event.cost if event.cost is not None else row.cost
        case e.ApprovalAsked():
            row.arguments, row.cost = event.arguments, event.cost
        case e.CallStarted():
            row.began = True
        case e.HookStarted():
            row.waits_for = event.hook
        case e.CallPaused():
            row.waits_for = f"a human: {event.why}" if event.why else "a human"
        case e.QuestionAsked():
            row.questions[event.question] = event
            row.waits_for = f"a human: {event.text}"
        case e.QuestionAnswered() | e.QuestionWithdrawn():
            row.questions.pop(event.question, None)
            row.waits_for = ""
        case e.CallRetried():
            row.questions.clear()
        case e.CallResumed():
            row.waits_for = ""
        case e.CallProgressed():
            row.message = event.message or row.message
            row.fraction = event.fraction if event.fraction is not None else row.fraction
        case e.CallSpent():
            row.spent.append(event.money)
        case e.StopRequested():
            row.why = str(event.reason).replace("_", " ")
        case e.AskSent():
            row.rung = f"asked to stop, {event.grace_s:g} s grace"
        case e.KillSent():
            row.rung = "being killed"
        case e.CallSettled():
            row.settled = event
            row.ran_s = event.ran_s
            row.spent = list(event.spent)
        case _:
            pass


def _ending(settled: e.CallSettled) -> str:
    parts = [] if settled.reason == "ok" else [str(settled.reason).replace("_", " ")]
    match settled.stopped_by:
        case StoppedBy.ASKED:
            parts.append("stopped when asked")
        case StoppedBy.KILLED:
            parts.append("killed")
        case StoppedBy.ABANDONED:
            parts.append("could not be stopped and may still be running")
        case None:
            pass
    if Flag.CANCEL_REQUESTED in settled.flags:
        parts.append("finished although it was being stopped")
    if settled.effect == "unknown":
        parts.append("effect unknown")
    if settled.survivors:
        parts.append(f"survivors: {', '.join(settled.survivors)}")
    return "; ".join(parts)
