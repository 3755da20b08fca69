"""Streams: what one reader of a task has still to read, bounded, in order of sequence numbers.

A reader begins with the task as it stands and gets every later update, none twice and none left
out. Whoever does not keep up loses its stream, with an error that says so, and nothing else changes
(law 18 audience-free). Nothing here may be waited for by the task.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from a2a.types.a2a_pb2 import Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.utils.errors import InternalError

from endstop.a2a.limits import TaskLimits

Update = Task | Message | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class FellBehind(InternalError):
    """A reader did not keep up; subscribing again goes on from the task as it stands then."""


class Moved(InternalError):
    """Who is read from does not drive the task any more; another server does."""


class Stream:
    """One reader. `put`, `end` and `fail` may come from any thread; one task reads."""

    def __init__(
        self, limits: TaskLimits, loop: asyncio.AbstractEventLoop, key: str | None = None
    ) -> None:
        # The message whose record it begins with; None once it has begun.
        self.key = key
        self.first: Task | None = None
        self._limits = limits
        self._loop = loop
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._updates: deque[Update] = deque()
        self._bytes = 0
        self._ended = False
        self._poked = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, first: Task) -> None:
        """It begins with this; what follows comes by `put`."""
        self.key, self.first = None, first

    @property
    def untouched(self) -> bool:
        """Whether nothing has followed on what it begins with."""
        with self._lock:
            return not (self._updates or self._ended)

    def put(self, update: Update) -> None:
        """Add the next update."""
        with self._lock:
            if self._ended:
                return
            self._updates.append(update)
            self._bytes += update.ByteSize()
            limits = self._limits
            if len(self._updates) > limits.behind or self._bytes > limits.behind_bytes:
                behind = len(self._updates)
                self._updates.clear()
                self._ended = True
                self._error = FellBehind(
                    f"this reader is {behind} updates behind and was let go; subscribe again to go "
                    "on from the task as it stands"
                )
        self._wake()

    def poke(self) -> None:
        """Let the reader look, though there is nothing to read."""
        self._poked = True
        self._wake()

    def end(self) -> None:
        """No further update will come; what is there is still read."""
        with self._lock:
            self._ended = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """The same, and the reader is told why."""
        with self._lock:
            if not self._ended:
                self._ended, self._error = True, error
        self._wake()

    async def next(self, timeout_s: float | None = None) -> Update | None:
        """The next update; None at the end, after a poke, and if none comes within `timeout_s`.

        Raises FellBehind where the reader was too slow, or what the stream failed with.
        """
        while True:
            with self._lock:
                if self._updates:
                    update = self._updates.popleft()
                    self._bytes -= update.ByteSize()
                    return update
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return None
                if self._poked:
                    self._poked = False
                    return None
                waiter = self._waiter = self._loop.create_future()
            if timeout_s is None:
                await waiter
            else:
                done, _ = await asyncio.wait({waiter}, timeout=timeout_s)
                if not done:
                    return None

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be read and nothing will come."""
        with self._lock:
            return self._ended and not self._updates and self._error is None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if threading.get_ident() == self._thread:
            resolve(waiter)
        else:
            soon(self._loop, lambda: resolve(waiter))


def resolve(waiter: asyncio.Future[None]) -> None:
    """Let whoever waits go on; on the loop that it waits on."""
    if not waiter.done():
        waiter.set_result(None)


def soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function on a loop, from any thread; nobody waits there once it is closed."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return
