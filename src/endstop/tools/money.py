"""Tools: amounts of money as people write them.

Nothing here knows a budget; it reads and compares, exactly, in decimal.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from endstop.core.terms import Money

_AMOUNT = re.compile(r"\s*(?P<amount>[0-9]+(?:\.[0-9]+)?)\s*(?P<currency>[A-Za-z]{3,8})\s*")
AMOUNT_CHARS = 40


def read_money(value: object) -> Money:
    """Read an amount: `Money`, or text such as "0.04 USD".

    Raises ValueError, with words for what was expected, for anything else and for amounts below 0.
    """
    if isinstance(value, Money):
        if not value.amount.is_finite() or value.amount < 0:
            raise ValueError(f"an amount is a finite number, 0 or more, not {value.amount}")
        return value
    if not isinstance(value, str):
        raise ValueError(f'expected an amount such as "0.04 USD", not {type(value).__name__}')
    found = _AMOUNT.fullmatch(value) if len(value) <= AMOUNT_CHARS else None
    if found is None:
        raise ValueError(f'expected an amount such as "0.04 USD", not {value[:AMOUNT_CHARS]!r}')
    return money(found["amount"], found["currency"])


def money(amount: str | int | Decimal, currency: str) -> Money:
    """An exact amount in one currency. A float has no exact amount and is refused.

    Raises ValueError with words for what was expected.
    """
    if isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
        raise ValueError(f'expected an exact amount such as "0.04", not {type(amount).__name__}')
    if not isinstance(currency, str) or not re.fullmatch("[A-Za-z]{3,8}", currency):
        raise ValueError(f'expected a currency such as "USD", not {currency!r:.40}')
    try:
        exact = Decimal(amount)
    except InvalidOperation:
        raise ValueError(f'expected an amount such as "0.04", not {amount!r:.40}') from None
    if not exact.is_finite() or exact < 0:
        raise ValueError(f"an amount is a finite number, 0 or more, not {amount!r:.40}")
    return Money(amount=exact, currency=currency.upper())
