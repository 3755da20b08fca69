"""How late a busy machine lets somebody be: measured beside whatever has to be fast."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

TICK_S = 0.01


class Noise:
    """Somebody who wants to go on every ten milliseconds, and the worst that became of it."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        while not self._over.is_set():
            before = time.monotonic()
            time.sleep(TICK_S)
            self.worst_s = max(self.worst_s, time.monotonic() - before - TICK_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(5)
