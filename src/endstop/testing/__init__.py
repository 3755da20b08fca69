"""Public test tools: the simulator, the contract suites, the conformance scenarios.

For tests of endstop and of code that uses it; `docs/testing.md` shows how. Nothing outside this
package imports it, except the command line.
"""

from __future__ import annotations

from endstop.testing.laws import at_rest, check_state, check_story
from endstop.testing.simjournal import Fault, Trouble
from endstop.testing.simloop import Deadlock, Runaway, SimLoop, SimulationError
from endstop.testing.simthreads import hang, hang_async
from endstop.testing.simulator import Interrupt, Simulated
from endstop.testing.simworker import Fate
from endstop.testing.trying import simulate, simulate_stops

__all__ = [
    "Deadlock",
    "Fate",
    "Fault",
    "Interrupt",
    "Runaway",
    "SimLoop",
    "Simulated",
    "SimulationError",
    "Trouble",
    "at_rest",
    "check_state",
    "check_story",
    "hang",
    "hang_async",
    "simulate",
    "simulate_stops",
]
