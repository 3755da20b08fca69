"""Money for tests."""

from __future__ import annotations

from decimal import Decimal

from endstop.core.terms import Money


def eur(amount: str) -> Money:
    """So many euros."""
    return Money(amount=Decimal(amount), currency="EUR")
