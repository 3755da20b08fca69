"""What a call does to the books of its run (law 20 paid-once). Part of `evolve.py`; pure."""

from __future__ import annotations

from decimal import Decimal

from endstop.core import events as e
from endstop.core.state import CallState, Stage
from endstop.core.terms import Effect, Money

# Python 3.11 finds an enum member at several times the cost of a global.
_THROUGH = Stage.THROUGH


def close_books(call: CallState, settled: e.CallSettled) -> None:
    """Settle a reservation to the actual, once (law 20 paid-once)."""
    budget = call.run.budget
    if call.stage is _THROUGH and not call.started and call.retried is None:
        budget.uncount(call.tool)
    if call.reserved is not None:
        budget.release(call.reserved)
        began = call.started or call.retried is not None
        if began and not call.spent and settled.effect is not Effect.NONE:
            budget.spend(call.reserved)
            call.assumed = call.reserved
        call.reserved = None


def add_money(amounts: tuple[Money, ...], money: Money) -> tuple[Money, ...]:
    """Amounts by currency with one more, each currency once."""
    total = {m.currency: m.amount for m in amounts}
    total[money.currency] = total.get(money.currency, Decimal(0)) + money.amount
    return tuple(Money(amount=a, currency=c) for c, a in total.items())
