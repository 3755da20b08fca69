"""Many seeds: every law on both drivers, with stops and faults where the seed puts them.

`ENDSTOP_SIM_SEEDS` sets how many; the default is what every change has to pass.
"""

from __future__ import annotations

import logging
import os

import pytest

from tests.sim.seeds import again, broken_laws

SEEDS = int(os.environ.get("ENDSTOP_SIM_SEEDS", "1000"))
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK), ids=lambda first: f"seeds {first}-")
def test_every_law_holds_for_every_seed(first: int, caplog: pytest.LogCaptureFixture) -> None:
    # What hooks and bodies break on purpose would fill the report of a failure.
    caplog.set_level(logging.CRITICAL)
    for seed in range(first, min(first + CHUNK, SEEDS)):
        wrong = broken_laws(seed)
        assert not wrong, "\n".join([f"seed {seed}: {again(seed)}", *dict.fromkeys(wrong)])
