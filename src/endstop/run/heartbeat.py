"""Signs of life of running calls, for whoever listens; they decide and extend nothing (law 8).

A heartbeat is a notice, not an event: it is never recorded. A call has one only from its start to
its ending, so an abandoned worker is silent and hides no later hang.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from endstop.core.events import CallSettled, CallStarted, Event
from endstop.core.record import record
from endstop.core.state import CallState, State


@record
class Heartbeat:
    """A call still runs; `ran_s` is its running time so far, `paused` whether it asks a human."""

    run: str
    call: str
    ran_s: float
    paused: bool = False


class Heartbeats:
    """When each running call is due for its next sign of life; None means that none are sent."""

    def __init__(self, every_s: float | None) -> None:
        assert every_s is None or every_s > 0, "no limit is None, not 0"
        self._every_s = every_s
        # All have the same interval, so the order of starts is the order in which they are due.
        self._due: OrderedDict[str, float] = OrderedDict()

    def follow(self, events: Iterable[Event], now: float) -> None:
        """Note the starts and endings among these events."""
        if self._every_s is None:
            return
        for event in events:
            if type(event) is CallStarted:
                self._due[event.call] = now + self._every_s
            elif type(event) is CallSettled:
                self._due.pop(event.call, None)

    def begin(self, calls: Iterable[CallState], now: float) -> None:
        """Take in calls that were started while nobody listened."""
        if self._every_s is None:
            return
        for call in calls:
            if call.started and call.settled is None and call.id not in self._due:
                self._due[call.id] = now + self._every_s

    def forget(self) -> None:
        """Nobody listens any more."""
        self._due.clear()

    def next_due(self) -> float | None:
        """The earliest instant at which a heartbeat is due."""
        return next(iter(self._due.values()), None)

    def take_due(self, state: State, now: float) -> list[Heartbeat]:
        """The heartbeats that are due; their calls are due again an interval later."""
        beats: list[Heartbeat] = []
        while (due := self.next_due()) is not None and due <= now:
            assert self._every_s is not None, "something is due only where heartbeats are sent"
            name, _ = self._due.popitem(last=False)
            call = state.calls.get(name)
            if call is None or call.meter is None or call.settled is not None:
                continue
            ran_s, paused = call.meter.ran_s(now), call.meter.paused
            beats.append(Heartbeat(run=call.run.id, call=name, ran_s=ran_s, paused=paused))
            # From now, not from when it was due: after a stall there is one beat, not a burst.
            self._due[name] = now + self._every_s
        return beats
