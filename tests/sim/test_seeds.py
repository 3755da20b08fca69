"""Many seeds: every law on both drivers, with stops and faults where the seed puts them.

`ENDSTOP_SIM_SEEDS` sets how many; the default is what every change has to pass.
"""

from __future__ import annotations

import logging

import pytest

from tests.sim.seeds import check, chunks


@pytest.mark.parametrize("seeds", chunks(0), ids=lambda seeds: f"{seeds[0]} to {seeds[-1]}")
def test_every_law_holds_for_every_seed(seeds: range, caplog: pytest.LogCaptureFixture) -> None:
    # What hooks and bodies break on purpose would fill the report of a failure.
    caplog.set_level(logging.CRITICAL)
    check(seeds)
