"""A promise that something will be over: kept by the engine, waited for by a driver."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Promise:
    """Something that will be over; keeps callbacks until it is. Safe from any thread."""

    __slots__ = ("_callbacks", "_lock", "done")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._callbacks: list[Callable[[], None]] | None = []
        self.done = False

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once it is over, at once if it is."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()

    def keep(self) -> None:
        """It is over."""
        with self._lock:
            callbacks, self._callbacks, self.done = self._callbacks, None, True
        for callback in callbacks or ():
            callback()
