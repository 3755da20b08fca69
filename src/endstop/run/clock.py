"""The clock of a driver. The core is told the time; it never asks."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic clock; the simulator has one of its own."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic


def clock_of(loop: asyncio.AbstractEventLoop) -> Clock:
    """The clock of a loop; asyncio's own is asked without the detour over its loop."""
    return monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time
