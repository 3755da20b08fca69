"""The rules table has no row that nothing takes, and no row is taken that it does not have."""

from __future__ import annotations

from endstop.core.rules import RULES
from endstop.core.terms import Phase
from tests.exhaustive.explorer import begin, explore, follows
from tests.exhaustive.worlds import TWO_CALLS
from tests.exhaustive.worlds3 import THREE_CALLS

NEAREST = 400


def test_every_row_is_taken_on_some_path() -> None:
    covered: set[tuple[Phase, type]] = set()
    for world in (*TWO_CALLS, *THREE_CALLS):
        covered |= explore(world, NEAREST).covered
    missing = sorted(f"{phase}: {kind.__name__}" for phase, kind in RULES.keys() - covered)
    assert not missing, f"no path of any world takes {missing}"


def test_every_world_has_a_choice() -> None:
    for world in (*TWO_CALLS, *THREE_CALLS):
        state, _ = begin(world)
        first = [said for said in world.alphabet if follows(state, said, 0.0)]
        assert len(first) > 1, f"{world.name} begins with {first}"
