"""What the engine asks of a driver: how to be woken and what to show, never when (design §8)."""

from __future__ import annotations

from typing import Protocol

from endstop.core.state import CallState
from endstop.run.plans import Plan


class Driver(Protocol):
    """What the engine needs of whoever drives it; called from any thread, must not block."""

    def alarm(self, due: float) -> None:
        """Something is due at this instant, earlier than what was asked for before."""

    def stop_hook(self, plan: Plan) -> None:
        """A call is settled while one of its before-hooks still runs."""

    def settled(self, call: CallState) -> None:
        """A call is settled and recorded; only told if `shows_results` is set."""
