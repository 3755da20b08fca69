"""Every order of the inputs of every world about the life of a run."""

from __future__ import annotations

import pytest

from tests.exhaustive.explorer import World, explore
from tests.exhaustive.limits import MAX_NODES
from tests.exhaustive.worlds_runs import RUNS

# Their states are many and alike: the nearest third shows what there is to see.
NEAREST = None if MAX_NODES is None else min(MAX_NODES, 4000)


@pytest.mark.parametrize("world", RUNS, ids=lambda world: world.name)
def test_every_order_keeps_every_law(world: World) -> None:
    report = explore(world, NEAREST)
    assert report.complete or report.nodes >= (NEAREST or 0)
