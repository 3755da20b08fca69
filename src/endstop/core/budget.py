"""Budgets: what a run may spend, reserved before the start and settled once (law 20 paid-once).

Pure bookkeeping. A reservation is made when the gate grants a call and is closed exactly once, when
the call settles: by what was really spent, or by nothing if the body had no effect. A run draws on
its own budget and on those of all runs above it, so children cannot overspend their parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from endstop.core.terms import Limits, Money

_ZERO = Decimal(0)


class Budget:
    """The books of one run; `above` is the budget of the run that it was started from."""

    __slots__ = ("above", "calls", "limits", "reserved", "spent", "tool_calls")

    def __init__(self, limits: Limits | None = None, above: Budget | None = None) -> None:
        self.limits = limits
        self.above = above
        self.calls = 0
        self.tool_calls: dict[str, int] = {}
        self.reserved: dict[str, Decimal] = {}
        self.spent: dict[str, Decimal] = {}

    def _chain(self) -> Iterator[Budget]:
        book: Budget | None = self
        while book is not None:
            yield book
            book = book.above

    def refuses(self, tool: str, cost: Money | None) -> str | None:
        """Why a call may not start, in words for the model, or None if it may."""
        book: Budget | None = self
        while book is not None:
            if book.limits is not None and (why := book._over(book.limits, tool, cost)):
                return why
            book = book.above
        return None

    def _over(self, limits: Limits, tool: str, cost: Money | None) -> str | None:
        if limits.calls is not None and self.calls >= limits.calls:
            return f"the limit of {_counted(limits.calls, 'tool call')} is used up"
        for name, limit in limits.tool_calls:
            if name == tool and self.tool_calls.get(tool, 0) >= limit:
                return f"the limit of {_counted(limit, 'call')} of {tool} is used up"
        if cost is None or not limits.money:
            return None
        for limit_money in limits.money:
            if limit_money.currency == cost.currency:
                left = limit_money.amount - self.taken(cost.currency)
                if cost.amount > left:
                    return (
                        f"it costs {cost.amount} {cost.currency} and {max(left, _ZERO)} "
                        f"{cost.currency} of {limit_money.amount} are left"
                    )
                return None
        return f"the budget has nothing in {cost.currency}"

    def taken(self, currency: str) -> Decimal:
        """What is spent or reserved in a currency."""
        return self.spent.get(currency, _ZERO) + self.reserved.get(currency, _ZERO)

    def reserve(self, tool: str, cost: Money | None) -> None:
        """Count one started call and hold its expected cost."""
        book: Budget | None = self
        while book is not None:
            book.calls += 1
            book.tool_calls[tool] = book.tool_calls.get(tool, 0) + 1
            if cost is not None:
                book._move(book.reserved, cost, 1)
            book = book.above

    def uncount(self, tool: str) -> None:
        """A granted call never began: it does not count."""
        for book in self._chain():
            book.calls -= 1
            book.tool_calls[tool] -= 1
            assert book.tool_calls[tool] >= 0, "only counted calls are uncounted"

    def release(self, reserved: Money) -> None:
        """Give a reservation back; what was really spent is booked by `spend`."""
        for book in self._chain():
            book._move(book.reserved, reserved, -1)
            assert book.reserved[reserved.currency] >= 0, "a reservation is closed once"

    def spend(self, money: Money) -> None:
        """Book money as spent."""
        for book in self._chain():
            book._move(book.spent, money, 1)

    def unspend(self, money: Money) -> None:
        """Take back an amount that was only assumed to be spent."""
        for book in self._chain():
            book._move(book.spent, money, -1)
            assert book.spent[money.currency] >= 0, "only booked money is taken back"

    @staticmethod
    def _move(column: dict[str, Decimal], money: Money, sign: int) -> None:
        column[money.currency] = column.get(money.currency, _ZERO) + sign * money.amount


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
