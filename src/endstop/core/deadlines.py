"""Time in the core: budgets of running time with pauses, and one queue of what is due.

Pure: the core is told the time and never asks for it. All instants are seconds on the driver's
monotonic clock and are never recorded; what is recorded are durations (law 8 machine-time).
"""

from __future__ import annotations

import heapq
from heapq import heappush
from typing import Protocol


class Meter:
    """Running time that stands still during pauses. Pauses nest: it runs again after the last."""

    __slots__ = ("_paused_at", "_paused_s", "_pauses", "_started_at", "paused")

    def __init__(self, now: float) -> None:
        self._started_at = now
        self._paused_s = 0.0
        self._paused_at = 0.0
        self._pauses = 0
        # Whether somebody is thinking and the time does not count.
        self.paused = False

    def pause(self, now: float) -> None:
        """Stop counting; overlapping pauses are counted once."""
        if self._pauses == 0:
            self._paused_at = now
        self._pauses += 1
        self.paused = True

    def resume(self, now: float) -> None:
        """End one pause."""
        assert self._pauses > 0, "only a paused meter is resumed"
        self._pauses -= 1
        if self._pauses == 0:
            self.paused = False
            self._paused_s += now - self._paused_at

    def ran_s(self, now: float) -> float:
        """Seconds counted so far."""
        until = self._paused_at if self._pauses else now
        return max(0.0, until - self._started_at - self._paused_s)

    def due_at(self, limit_s: float | None) -> float | None:
        """When the limit will be used up if no pause comes; None while paused or unlimited."""
        if limit_s is None or self._pauses:
            return None
        return self._started_at + self._paused_s + limit_s


class Due(Protocol):
    """Something with one instant at which it wants to be looked at, or None."""

    due: float | None


class Timers:
    """The one timer queue of a runtime: every call and batch has at most one due instant in it.

    Changing an instant leaves a dead entry behind; dead entries are dropped when they come up, and
    the heap is rebuilt when they outnumber the live ones, so the cost stays linear and finished
    calls do not stay in memory until their deadline.
    """

    __slots__ = ("_count", "_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._count = 0
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def set(self, item: Due, due: float | None) -> None:
        """Make `due` the instant of `item`; None takes it out of the queue."""
        before = item.due
        if before == due:
            return
        item.due = due
        if before is None:
            self._live += 1
        if due is None:
            self._live -= 1
        else:
            self._count += 1
            heappush(self._heap, (due, self._count, item))
        if len(self._heap) > 64 + 2 * self._live:
            self._rebuild()

    def _rebuild(self) -> None:
        kept = [entry for entry in self._heap if entry[2].due == entry[0]]
        if len(kept) > self._live:
            # Some went away from an instant and came back to it: one entry each is enough.
            kept = list({id(entry[2]): entry for entry in kept}.values())
        self._heap = kept
        heapq.heapify(self._heap)
        assert len(self._heap) == self._live, "every live item is in the queue once"

    @property
    def earliest(self) -> float | None:
        """The first instant in the queue; something is due then, or was before it changed."""
        return self._heap[0][0] if self._heap else None

    def next_due(self) -> float | None:
        """The earliest instant at which something is due."""
        while self._heap and self._heap[0][2].due != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> Due | None:
        """Take out the earliest item that is due at `now`, if there is one.

        One at a time: what happens to an item may give another one that is due as well more time.
        """
        due = self.next_due()
        if due is None or due > now:
            return None
        item = heapq.heappop(self._heap)[2]
        item.due = None
        self._live -= 1
        return item
