"""Who watches: observers see recorded events in order and decide nothing (law 18 audience-free)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from endstop.core.events import Event
from endstop.core.state import CallState, State
from endstop.run.heartbeat import Heartbeat, Heartbeats

log = logging.getLogger("endstop.run")

Notices = Sequence[Event] | Sequence[Heartbeat]


class Page:
    """A place in line; `ready` once what is on it is recorded."""

    __slots__ = ("notices", "ready")

    def __init__(self, notices: Notices) -> None:
        self.notices = notices
        self.ready = False


class Audience:
    """The observers of a runtime. Their failure is logged and changes nothing (law 15).

    Events take their place in line when they are decided (`expect`, under the engine's lock) and
    leave it once they are recorded (`show`): threads race to act on them, and an act may decide
    more, but what is shown keeps the order in which it happened.
    """

    def __init__(self, heartbeat_s: float | None) -> None:
        self._observers: tuple[Callable[[Event], None], ...] = ()
        self._readers: tuple[Callable[[Sequence[Event]], None], ...] = ()
        self._listeners: tuple[Callable[[Heartbeat], None], ...] = ()
        self._beats = Heartbeats(heartbeat_s)
        # What was decided while somebody watched and is not shown yet.
        self._line: deque[Page] = deque()
        self._showing = threading.Lock()
        self.present = False

    def add(self, observer: Callable[[Event], None]) -> None:
        """Show every event to `observer` from now on."""
        self._observers = (*self._observers, observer)
        self.present = True

    def remove(self, observer: Callable[[Event], None]) -> None:
        """Stop showing events to `observer`."""
        self._observers = tuple(one for one in self._observers if one is not observer)
        self._look_who_is_here()

    def add_reader(self, reader: Callable[[Sequence[Event]], None]) -> None:
        """Show to `reader`, from now on, what happens to a run in one step as one sequence."""
        self._readers = (*self._readers, reader)
        self.present = True

    def remove_reader(self, reader: Callable[[Sequence[Event]], None]) -> None:
        """Stop showing steps to `reader`."""
        self._readers = tuple(one for one in self._readers if one is not reader)
        self._look_who_is_here()

    def add_listener(
        self, listener: Callable[[Heartbeat], None], calls: Iterable[CallState], now: float
    ) -> None:
        """Show heartbeats to `listener` from now on, also of `calls` that run already."""
        if not self._listeners:
            # What was due while nobody listened is not made up for.
            self._beats.forget()
        self._listeners = (*self._listeners, listener)
        self.present = True
        self._beats.begin(calls, now)

    def remove_listener(self, listener: Callable[[Heartbeat], None]) -> None:
        """Stop showing heartbeats to `listener`."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        self._look_who_is_here()

    def _look_who_is_here(self) -> None:
        self.present = bool(self._observers or self._readers or self._listeners)

    def expect(self, events: Sequence[Event], now: float) -> Page:
        """Give events their place in line; under the engine's lock, as they are decided."""
        page = Page(events)
        self._line.append(page)
        if self._listeners:
            self._beats.follow(events, now)
        return page

    def or_a_beat(self, due: float | None) -> float | None:
        """The next instant to look at: `due`, or that of a heartbeat before it."""
        beat = self._beats.next_due() if self._listeners else None
        if due is None or beat is None:
            return beat if due is None else due
        return min(due, beat)

    def take_beats(self, state: State, now: float) -> Page | None:
        """The heartbeats that are due, with their place in line; under the engine's lock."""
        if not self._listeners:
            self._beats.forget()
            return None
        beats = self._beats.take_due(state, now)
        if not beats:
            return None
        page = Page(beats)
        self._line.append(page)
        return page

    def show(self, page: Page, *, recorded: bool = True) -> None:
        """Show what has its place in line, once all before it was shown.

        What could not be recorded only leaves the line. Whoever finds nobody showing shows for all,
        so an observer is never entered twice at once and nobody waits for a slow one but its own
        thread.
        """
        if not recorded:
            page.notices = ()
        page.ready = True
        while self._first_is_ready() and self._showing.acquire(blocking=False):
            try:
                while self._first_is_ready():
                    self._show_all(self._line.popleft().notices)
            finally:
                self._showing.release()

    def _first_is_ready(self) -> bool:
        try:
            return self._line[0].ready
        except IndexError:
            return False

    def _show_all(self, notices: Notices) -> None:
        if not notices:
            return
        if isinstance(notices[0], Heartbeat):
            for beat in notices:
                for listener in self._listeners:
                    _show(listener, beat)
            return
        for reader in self._readers:
            _show(reader, notices)
        if self._observers:
            for event in notices:
                # Anew for each: an observer that left sees no more of the same step.
                for observer in self._observers:
                    _show(observer, event)


def _show(observer: Callable[[Any], None], notice: object) -> None:
    try:
        observer(notice)
    except KeyboardInterrupt:
        # A person's, not the observer's.
        raise
    except BaseException:
        # SystemExit too: a console raises it when its reader has gone away.
        log.exception("an observer failed; the outcome stands")
