"""The clock of a driver. The core is told the time; it never asks."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic clock; the simulator has one of its own."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic
