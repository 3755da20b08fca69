"""Who watches: observers see recorded events in order and decide nothing (law 18 audience-free)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from endstop.core.events import Event

log = logging.getLogger("endstop.run")


class Audience:
    """The observers of a runtime. Their failure is logged and changes nothing (law 15)."""

    def __init__(self) -> None:
        self._observers: tuple[Callable[[Event], None], ...] = ()
        self._outbox: deque[Event] = deque()
        self._showing = threading.Lock()

    def add(self, observer: Callable[[Event], None]) -> None:
        """Show every event to `observer` from now on."""
        self._observers = (*self._observers, observer)

    def remove(self, observer: Callable[[Event], None]) -> None:
        """Stop showing events to `observer`."""
        self._observers = tuple(one for one in self._observers if one is not observer)

    def show(self, events: Iterable[Event]) -> None:
        """Show recorded events, in the order in which they were recorded.

        Events may come from many threads: whoever finds nobody showing shows for all, so an
        observer is never entered twice at once and nobody waits for a slow one but its own thread.
        """
        if not self._observers:
            return
        self._outbox.extend(events)
        while self._outbox and self._showing.acquire(blocking=False):
            try:
                while self._outbox:
                    self._show_one(self._outbox.popleft())
            finally:
                self._showing.release()

    def _show_one(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                log.exception("an observer failed; the outcome stands")
