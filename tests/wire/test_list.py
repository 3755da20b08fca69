"""The list of scenarios is whole, and the control of each is sure to have been looked at."""

from __future__ import annotations

import importlib

from tests.wire.compare import MODULES
from tests.wire.rows import ROWS

RACE = 9
"""It counts tries, and has a file of its own."""

GOOD_ON_STOCK = {1, 17, 24}


def test_every_scenario_is_played() -> None:
    for name in MODULES:
        importlib.import_module(f"tests.wire.{name}")
    assert {row.number for row in ROWS} | {RACE} == set(range(1, 26))
    assert len({row.title for row in ROWS}) == len(ROWS), "results are kept by title"
    for row in ROWS:
        assert row.stores, f"row {row.number} is played nowhere on ours"


def test_the_control_of_a_row_must_fail_where_the_stock_handler_does() -> None:
    good = {row.number for row in ROWS if not row.control[1]}
    assert good - {4} == GOOD_ON_STOCK, "4: its second script is about another program, and good"
