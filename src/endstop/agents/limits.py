"""Agents: the limits of a loop. Plain numbers, checked where they are written; nothing here waits.

The loop looks at them between two steps, when every call has its answer, so that whatever limit
ends it leaves a transcript that pairs (law 4 one-answer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from endstop.agents.transcript import Transcript
from endstop.config import SECONDS_MAX
from endstop.core.budget import Budget
from endstop.core.terms import Limits, Money, Reason, Refusal, ToolCall
from endstop.errors import CallerError
from endstop.tools.money import read_money
from endstop.tools.tool import Tool

TURNS = 100
"""Turns where nothing is said: a loop without any limit would go on for ever."""


class Limit(StrEnum):
    """What a loop may use up."""

    TURNS = "turns"
    CALLS = "calls"
    TOKENS = "tokens"
    MONEY = "money"
    WALL = "wall_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """How much one run of a loop may use; None is no limit.

    `turns` bounds the model's replies and `tokens` what they use, input and output together;
    `calls` the bodies that may start, `money` what replies and calls cost, with all sub-agents (law
    20 paid-once), as `Money` or text such as "0.50 USD". `wall_s` is seconds of the clock while the
    loop is driven; like every deadline it stands still where its calls wait for a human (law 8
    machine-time). What a reply uses is known when it is there: tokens and money of replies may be
    passed by one reply.

    `cuts` is how many replies in a row may be cut off, and `breaks` how many may break off or be
    unreadable, before the loop fails.
    """

    turns: int | None = TURNS
    calls: int | None = None
    tokens: int | None = None
    money: Money | str | None = None
    wall_s: float | None = None
    cuts: int = 2
    breaks: int = 2

    def __post_init__(self) -> None:
        for name in ("turns", "calls", "tokens"):
            value = getattr(self, name)
            if value is not None and (not _is_whole(value) or value < 1):
                raise CallerError(f"LoopLimits: {name} is {value!r:.40}; write 1 or more, or None")
        for name in ("cuts", "breaks"):
            value = getattr(self, name)
            if not _is_whole(value) or value < 0:
                raise CallerError(f"LoopLimits: {name} is {value!r:.40}; write 0 or more")
        wall_s = self.wall_s
        if wall_s is not None and not (_is_number(wall_s) and 0 < wall_s <= SECONDS_MAX):
            raise CallerError(
                f"LoopLimits: wall_s is {wall_s!r:.40}; write seconds above 0, or None"
            )
        if self.money is not None:
            try:
                object.__setattr__(self, "money", read_money(self.money))
            except ValueError as problem:
                raise CallerError(f"LoopLimits: money: {problem}") from None

    @property
    def amount(self) -> Money | None:
        """The limit of money as an amount."""
        assert not isinstance(self.money, str), "read when it was made"
        return self.money

    def budget(self) -> Limits:
        """The same as the budget of a run: what its calls and its sub-agents are held to."""
        money = () if self.amount is None else (self.amount,)
        return Limits(money=money, calls=self.calls)


Why = tuple[str, str]
"""What ended a loop, and the same in words."""


def reached(
    limits: LoopLimits, seen: Transcript, budget: Budget | None, used_s: float
) -> Why | None:
    """The limit that forbids another reply, if one does."""
    if limits.turns is not None and seen.turns >= limits.turns:
        return Limit.TURNS, f"the limit of {_counted(limits.turns, 'turn')} is used up"
    if limits.tokens is not None and seen.tokens >= limits.tokens:
        words = f"{seen.tokens} tokens are used, and the limit is {limits.tokens}"
        return Limit.TOKENS, words
    if limits.wall_s is not None and used_s >= limits.wall_s:
        return Limit.WALL, f"the limit of {limits.wall_s:g} s is used up"
    if limits.calls is not None and _was_refused(seen):
        began = max(seen.calls, 0 if budget is None else budget.calls)
        if began >= limits.calls:
            return Limit.CALLS, f"the limit of {_counted(limits.calls, 'tool call')} is used up"
    amount = limits.amount
    if amount is not None:
        taken = _taken(seen, budget, amount.currency)
        if taken >= amount.amount:
            words = f"{taken:f} {amount.currency} are spent, and the limit is {amount.amount:f}"
            return Limit.MONEY, words
    return None


def _was_refused(seen: Transcript) -> bool:
    results = seen.turn.results() if seen.turn is not None else []
    return any(one.reason is Reason.OVER_BUDGET for one in results)


def _taken(seen: Transcript, budget: Budget | None, currency: str) -> Decimal:
    own = sum((one.amount for one in seen.spent if one.currency == currency), Decimal(0))
    # The budget counts what sub-agents spent, too; where the run has gone, its own record counts.
    return own if budget is None else max(own, budget.taken(currency))


FINAL_CUTS = {
    "refusal": "the provider refused to let the model answer",
    "content_filter": "the provider's filter stopped the reply",
    "model_context_window_exceeded": "the conversation does not fit into the model's context any "
    "more; begin a new run, or use a model with a larger one",
}
"""Reasons for which a reply was cut off that asking again does not mend."""


def broken(limits: LoopLimits, seen: Transcript) -> Why | None:
    """Why a model whose replies are cut off is not asked again."""
    turn = seen.turn
    if turn is None or not turn.reply.truncated:
        return None
    reason = turn.reply.reason or "no reason given"
    if reason in FINAL_CUTS:
        return "reply", f"the reply was cut off ({reason}): {FINAL_CUTS[reason]}"
    if seen.cuts > limits.cuts:
        return "reply", f"{_counted(seen.cuts, 'reply')} in a row were cut off ({reason})"
    return None


def over_the_limit(
    limits: LoopLimits, seen: Transcript, calls: Sequence[ToolCall], tools: Mapping[str, Tool]
) -> dict[int, Refusal]:
    """The calls of a reply, by index, that are more than may start.

    Calls that will not start anyway do not count.
    """
    if limits.calls is None:
        return {}
    left = limits.calls - seen.calls
    words = f"the limit of {_counted(limits.calls, 'tool call')} is used up"
    refused: dict[int, Refusal] = {}
    for index, call in enumerate(calls):
        if call.arguments is None or call.tool not in tools:
            continue
        if left > 0:
            left -= 1
        else:
            refused[index] = Refusal(reason=Reason.OVER_BUDGET, message=words)
    return refused


def _counted(number: int, what: str) -> str:
    plural = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
