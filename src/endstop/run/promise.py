"""A promise that something will be over: kept by the engine, waited for by a driver.

It has an `error` where it will not be over here: its run was let go, or nothing of it was recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Promise:
    """Something that will be over; keeps callbacks until it is. Safe from any thread."""

    __slots__ = ("_callbacks", "_lock", "done", "error")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._callbacks: list[Callable[[], None]] | None = []
        self.done = False
        self.error: Exception | None = None

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once it is over, at once if it is."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()

    def check(self) -> None:
        """Raise the error, if it has one: a copy, as many may wait."""
        if self.error is not None:
            raise type(self.error)(*self.error.args)

    def keep(self, error: Exception | None = None) -> None:
        """It is over, or, with an error, nobody here will see it."""
        with self._lock:
            self.error = error
            callbacks, self._callbacks, self.done = self._callbacks, None, True
        for callback in callbacks or ():
            callback()
