"""How the blocking driver waits, and what Ctrl-C does meanwhile."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from endstop.core.terms import Mode
from endstop.errors import EndstopError

log = logging.getLogger("endstop.run")


SIGNAL_GAP_S = 0.25
"""How long the main thread waits in one go.

The interpreter looks for signals before it blocks and not while it does so: a Ctrl-C that comes
just in between is noticed when the wait ends, so that must not depend on what is waited for.
"""


class Bell:
    """Where a blocked thread waits; rung when a promise is kept or something is due earlier.

    The simulator replaces it by one that moves a virtual clock instead of waiting.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0

    def ring(self) -> None:
        """Wake whoever waits."""
        with self._condition:
            self._rings += 1
            self._condition.notify_all()

    def rings(self) -> int:
        """How often it was rung; take it before looking at what is waited for."""
        return self._rings

    def wait(self, seen: int, timeout_s: float | None) -> None:
        """Wait for a ring after the `seen` first ones, at most so long."""
        if threading.current_thread() is threading.main_thread():
            timeout_s = SIGNAL_GAP_S if timeout_s is None else min(timeout_s, SIGNAL_GAP_S)
        with self._condition:
            self._condition.wait_for(lambda: self._rings != seen, timeout_s)


class CtrlC:
    """Turns Ctrl-C into a stop while a batch runs in the main thread.

    The handler only starts a thread: it may interrupt the main thread anywhere, even where it holds
    a lock that a cancel needs.
    """

    def __init__(self, stop: Callable[[Mode], object]) -> None:
        self.pressed = 0
        self._cancel = stop
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                self._before = before
                signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, number: int, frame: object) -> None:
        self.pressed += 1
        mode = Mode.INTERRUPT if self.pressed == 1 else Mode.KILL
        threading.Thread(
            target=self._stop, args=(mode,), name="endstop-interrupt", daemon=True
        ).start()

    def _stop(self, mode: Mode) -> None:
        try:
            self._cancel(mode)
        except EndstopError:
            log.exception("the run could not be stopped")
