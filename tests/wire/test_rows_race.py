"""Row 9: a thousand cancels around completion, and one ending on every surface."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.wire.harness import house
from tests.wire.race import race

TRIES = 1000


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_ours(tmp_path: Path, store: str) -> None:
    with house("endstop", tmp_path) as home:
        tally = asyncio.run(race(home.start(store), TRIES))
    assert not tally.wrong, f"{len(tally.wrong)} of {TRIES}: {tally.wrong[:5]}"
    assert min(tally.endings.get(e, 0) for e in ("CANCELED", "COMPLETED")) > TRIES / 10, (
        f"the race went one way, {tally.endings}: it proves nothing"
    )


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_stock(tmp_path: Path, store: str) -> None:
    """The control. It disagrees with itself in some of a hundred tries; the first one is enough."""
    with house("stock", tmp_path) as home:
        tally = asyncio.run(race(home.start(store), 2 * TRIES, until_wrong=True))
    assert tally.wrong, f"no disagreement in {tally.endings}"
