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
    """The clock of a loop; the ordinary one is asked without the detour over its loop.

    uvloop counts milliseconds, and its time is for its own thread; bodies on other threads ask too.
    """
    ordinary = type(loop).time is asyncio.BaseEventLoop.time
    return monotonic if ordinary or type(loop).__module__ == "uvloop" else loop.time
