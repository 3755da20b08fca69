"""Uses: a run is not forgotten under the feet of whoever still waits for its answers.

Closing a run drops it from memory once it is over. A caller on another task or thread may be just
about to read the answers of its batch, which are owed to it (law 4 one-answer).
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Uses:
    """Counts the waits that are under way in one run; `forget` is called when it may be dropped."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._count -= 1
            assert self._count >= 0, "a wait ends once"
            last = self._closed and self._count == 0
        if last:
            self._forget()

    def close(self) -> None:
        """Nothing new will be waited for: forget at once, or when the last wait is over."""
        with self._lock:
            self._closed = True
            last = self._count == 0
        if last:
            self._forget()
