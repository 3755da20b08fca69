"""Agents: what a loop tells while it works, and what it hands back. Values; nothing here acts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from endstop.adapters.parts import Message
from endstop.agents import notes
from endstop.agents.transcript import Step, Transcript
from endstop.core.terms import Money, Outcome, Reason

log = logging.getLogger("endstop.agents")


class Ended(StrEnum):
    """Why a loop works no more."""

    DONE = "done"
    """The model has said its last word."""
    TERMINATED = "terminated"
    """Every call of a batch asked that no further reply follows."""
    LIMIT = "limit"
    FAILED = "failed"
    """The model gave no usable reply."""
    CANCELLED = "cancelled"
    CLOSED = "closed"
    """Somebody else ended the run, or took it over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """What came of a loop: `text` is what the model said last, `why` the end in words.

    `outcome` is how the run ends, or would: succeeded, failed or cancelled. `messages` is the whole
    transcript, in the model's format, in which every call has its result (law 4 one-answer).
    `turns` are replies, `calls` bodies that began, `tokens` input and output together; `spent` is
    the money that is known, of replies and of the run's own calls.
    """

    run: str
    ended: Ended
    outcome: Outcome
    why: str
    text: str
    messages: list[Message]
    turns: int
    calls: int
    tokens: int
    spent: tuple[Money, ...]

    @property
    def ok(self) -> bool:
        """Whether the agent came to its own end."""
        return self.outcome is Outcome.SUCCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """The model is asked for reply number `turn`, counted from 1."""

    run: str
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoke:
    """A piece of a reply as it arrives: text, or what a model shows of its thinking."""

    run: str
    turn: int
    text: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A reply is there, whole and recorded; `calls` is how many calls are in it."""

    run: str
    turn: int
    text: str
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voided:
    """What was shown of this reply does not count: it broke off, or the loop was stopped."""

    run: str
    turn: int
    why: str


_WHY_CANCELLED = {
    Reason.CANCELLED_BY_USER: "the run was cancelled",
    Reason.PARENT_CANCELLED: "the call or run that it belongs to was cancelled",
    Reason.SHUTDOWN: "the program was shut down",
    Reason.DRIVER_LOST: "another driver took the run",
}


def result_of(run_id: str, seen: Transcript) -> LoopResult:
    """What came of a loop, by what is recorded."""
    ended, outcome, why = _ending(seen)
    return LoopResult(
        run=run_id,
        ended=ended,
        outcome=outcome if seen.ended is None else seen.ended.outcome,
        why=why,
        text=seen.text,
        messages=seen.messages(),
        turns=seen.turns,
        calls=seen.calls,
        tokens=seen.tokens,
        spent=seen.spent,
    )


def _ending(seen: Transcript) -> tuple[Ended, Outcome, str]:
    over = seen.ended
    if seen.cancelled is not None and (over is None or over.outcome is not Outcome.SUCCEEDED):
        reason = seen.cancelled.reason
        outcome = Outcome.CANCELLED if over is None else over.outcome
        if outcome is not Outcome.FAILED:
            return Ended.CANCELLED, outcome, _WHY_CANCELLED.get(reason, str(reason))
    if seen.stopped is not None:
        kind = Ended.LIMIT if seen.stopped.kind == notes.LIMIT else Ended.FAILED
        return kind, Outcome.FAILED, str(seen.stopped.body.get("why", ""))
    if seen.step is not Step.REST:
        return Ended.CLOSED, Outcome.FAILED, "the run was closed before the model was done"
    if seen.terminated:
        return Ended.TERMINATED, Outcome.SUCCEEDED, "its tools asked for no further reply"
    return Ended.DONE, Outcome.SUCCEEDED, "the model is done"


LoopEvent = Began | Spoke | Replied | Voided
OnEvent = Callable[[LoopEvent], object]


def showing(on_event: OnEvent | None) -> Callable[[LoopEvent], None]:
    """Show events to a watcher, whose failure is logged and changes nothing (law 18)."""

    def show(event: LoopEvent) -> None:
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:
            log.exception("on_event failed; the loop goes on")

    return show
