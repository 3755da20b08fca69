"""The command line's event loop: on a thread of its own, so that the main one can show and listen.

Nothing here knows what runs on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_S = 10.0
"""How long the model's connections and the loop may take to close."""


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="endstop-loop", daemon=True
        )
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """Run a coroutine there and wait for it here."""
        return self.begin(work).result(limit_s)

    def close(self) -> None:
        """Stop the loop; one that is blocked is left to the end of the program."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            # Connections that a model keeps for its next reply close here.
            with contextlib.suppress(TimeoutError):
                ending = asyncio.wait_for(self._loop.shutdown_asyncgens(), CLOSE_S)
                self._loop.run_until_complete(ending)
            self._loop.close()
