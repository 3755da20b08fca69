"""Budgets: reserved before the start, settled once, drawn on by children (law 20 paid-once)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from endstop.core.budget import Budget
from endstop.core.terms import Limits, Money
from tests.stories import eur


def test_money_counts_what_is_reserved_and_what_is_spent() -> None:
    book = Budget(Limits(money=(eur("5"),)))
    book.reserve("t", eur("2"))
    book.spend(eur("2"))
    assert book.taken("EUR") == Decimal(4)
    assert book.refuses("t", eur("1")) is None
    assert "1 EUR of 5 are left" in (book.refuses("t", eur("1.01")) or "")
    book.release(eur("2"))
    assert book.refuses("t", eur("3")) is None


def test_exact_amounts_stay_exact() -> None:
    book = Budget(Limits(money=(eur("0.3"),)))
    for _ in range(3):
        book.reserve("t", eur("0.1"))
    assert book.taken("EUR") == Decimal("0.3")
    assert book.refuses("t", eur("0")) is None


def test_another_currency_is_over_budget_once_money_is_limited() -> None:
    yen = Money(amount=Decimal(1), currency="JPY")
    assert "nothing in JPY" in (Budget(Limits(money=(eur("5"),))).refuses("t", yen) or "")
    assert Budget(Limits(calls=1)).refuses("t", yen) is None


def test_calls_are_counted_in_all_and_per_tool() -> None:
    book = Budget(Limits(calls=3, tool_calls=(("t", 1),)))
    book.reserve("t", None)
    assert "1 call of t " in (book.refuses("t", None) or "")
    assert book.refuses("u", None) is None
    book.reserve("u", None)
    book.reserve("u", None)
    assert "3 tool calls" in (book.refuses("u", None) or "")
    book.uncount("t")
    assert book.refuses("t", None) is None


def test_a_child_draws_on_every_budget_above_it() -> None:
    top = Budget(Limits(money=(eur("5"),), calls=2))
    middle = Budget(None, top)
    child = Budget(Limits(money=(eur("9"),)), middle)
    child.reserve("t", eur("4"))
    assert (top.taken("EUR"), middle.taken("EUR"), child.taken("EUR")) == (4, 4, 4)
    assert child.refuses("t", eur("2")) is not None, (
        "its own limit would allow it, its parent's not"
    )
    assert top.refuses("t", eur("2")) is not None
    child.release(eur("4"))
    child.spend(eur("3"))
    assert (top.taken("EUR"), top.calls) == (3, 1)
    child.unspend(eur("3"))
    assert top.taken("EUR") == 0


def test_a_reservation_is_closed_once() -> None:
    book = Budget()
    book.reserve("t", eur("2"))
    book.release(eur("2"))
    with pytest.raises(AssertionError, match="closed once"):
        book.release(eur("2"))


def test_only_counted_calls_are_uncounted() -> None:
    book = Budget()
    book.reserve("t", None)
    book.uncount("t")
    with pytest.raises(AssertionError, match="uncounted"):
        book.uncount("t")


def test_only_booked_money_is_taken_back() -> None:
    book = Budget()
    book.spend(eur("1"))
    with pytest.raises(AssertionError, match="booked"):
        book.unspend(eur("2"))
