"""Prices: exact money for tokens, and no price for what was not counted (law 20 paid-once)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from endstop.agents.models import Prices, Usage
from endstop.core.terms import Money


def test_the_cost_is_exact() -> None:
    prices = Prices(input="2.50", output=10, currency="usd")
    cost = prices.cost(Usage(input_tokens=1, output_tokens=3))
    assert cost == Money(amount=Decimal("0.0000325"), currency="USD")
    third = Prices(input="0.1", output="0.2", currency="EUR")
    total = third.cost(Usage(input_tokens=10**15 + 1, output_tokens=1))
    assert total == Money(amount=Decimal("100000000.0000003"), currency="EUR")


def test_cached_input_has_prices_of_its_own() -> None:
    used = Usage(input_tokens=1000, cached_tokens=600, cache_write_tokens=300, output_tokens=0)
    plain = Prices(input="1", output="1", currency="USD")
    assert plain.cost(used) == Money(amount=Decimal("0.001"), currency="USD")
    cached = Prices(input="1", output="1", currency="USD", cached_input="0.1", cache_write="1.25")
    assert cached.cost(used) == Money(amount=Decimal("0.000535"), currency="USD")
    free = Prices(input="1", output="1", currency="USD", cached_input=0)
    assert free.cost(used) == Money(amount=Decimal("0.0004"), currency="USD")


def test_what_was_not_counted_has_no_price() -> None:
    prices = Prices(input="1", output="1", currency="USD")
    assert prices.cost(Usage(reported=False)) is None
    assert prices.cost(Usage()) == Money(amount=Decimal(0), currency="USD")


@pytest.mark.parametrize("bad", [0.1, "-1", "much", "NaN", True])
def test_a_price_that_is_not_exact_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"an exact amount|an amount"):
        Prices(input=bad, output="1", currency="USD")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"an exact amount|an amount"):
        Prices(input="1", output="1", currency="USD", cached_input=bad)  # type: ignore[arg-type]
