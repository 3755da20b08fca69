"""Patience: how long the server waits for a client, at a price that every request can pay.

One sweep for all waits instead of a timer for each: a wait may take a quarter of its limit longer,
and nobody who keeps to it pays for more than two entries in a table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import Any, TypeVar

Value = TypeVar("Value")

SWEEPS = 4
"""How often it is looked for who waits too long, in the time that they may wait."""


class Patience:
    """Waits of one kind, all on one event loop; each may take `limit_s`."""

    __slots__ = ("_limit_s", "_overdue", "_sweeping", "_waits")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        # The task that waits, and until when it may.
        self._waits: dict[asyncio.Task[Any], float] = {}
        self._overdue: set[asyncio.Task[Any]] = set()
        self._sweeping = False

    async def wait(self, what: Awaitable[Value]) -> Value:
        """Wait for something. Raises TimeoutError where it takes longer than the limit."""
        task = asyncio.current_task()
        assert task is not None, "whoever waits is a task"
        outer = self._waits.get(task)
        self._waits[task] = monotonic() + self._limit_s
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(self._limit_s / SWEEPS, self._sweep)
        try:
            return await what
        except asyncio.CancelledError:
            if task not in self._overdue:
                raise
            # Ours, and of nobody else.
            task.uncancel()
            raise TimeoutError from None
        finally:
            self._overdue.discard(task)
            if outer is None:
                del self._waits[task]
            else:
                self._waits[task] = outer

    def _sweep(self) -> None:
        now = monotonic()
        for task, until in self._waits.items():
            if until <= now and task not in self._overdue:
                self._overdue.add(task)
                task.cancel()
        self._sweeping = bool(self._waits)
        if self._sweeping:
            asyncio.get_running_loop().call_later(self._limit_s / SWEEPS, self._sweep)
