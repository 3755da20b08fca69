"""Testing: a journal on the virtual clock, which is slow, refuses or dies where a story says so.

Public test tool. Appends that somebody waits for are done later, in order, as a group commit does
it; what was not waited for is lost with the process. Nothing here touches a file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from endstop.core.events import Event
from endstop.errors import JournalError, StaleWriter
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability, Journal, Recorded, Ticket
from endstop.store.shelf import Shelf
from endstop.testing.simloop import SimLoop, SimulationError


class Crashed(SimulationError):
    """The simulated process died; nothing that the rest of this step does has happened."""


class Fault(StrEnum):
    """What goes wrong at one append.

    `stale`: another driver wrote first. `stale_late`: the same, told by the ticket. `broken`: the
    file fails, now and for ever. `dies`: the process ends before the append is recorded.
    """

    STALE = "stale"
    STALE_LATE = "stale_late"
    BROKEN = "broken"
    DIES = "dies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A fault at the `at`-th append of the simulation, counted from 1."""

    at: int
    fault: Fault


class SimTicket:
    """The promise of an append; decided by the virtual clock."""

    def __init__(self) -> None:
        self._decided = False
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Exception | None], None]] = []

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """See `store.protocol.Ticket`."""
        if self._decided:
            callback(self._error)
        else:
            self._callbacks.append(callback)

    def decide(self, error: Exception | None) -> None:
        """Keep the promise, or say why not."""
        assert not self._decided, "a ticket is decided once"
        self._decided, self._error = True, error
        for callback in self._callbacks:
            callback(error)


class SimJournal:
    """Keeps events in memory; `delay_s` says how long the next commit takes, None for at once.

    `log` is what was appended, with instants; `committed()` what a crash now would leave.
    """

    def __init__(
        self,
        loop: SimLoop,
        *,
        delay_s: Callable[[], float] | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        self.log: list[tuple[float, Event]] = []
        self.appends = 0
        self.inner = MemoryJournal()
        self._loop = loop
        self._delay_s = delay_s
        self._trouble = trouble
        self._refused: set[str] = set()
        self._broken = False
        self._commit_at = 0.0
        self._queue: deque[tuple[SimTicket, int | None, Exception | None]] = deque()
        self._committed = 0

    def append(
        self, run: str, expected_seq: int, events: Sequence[Event], durability: Durability
    ) -> Ticket | None:
        """See `store.protocol.Journal`."""
        if self._loop.halted:
            raise Crashed("the process is dead already")
        self.appends += 1
        trouble = self._trouble
        if trouble is not None and trouble.at == self.appends:
            ticket = self._fail(run, trouble.fault, durability)
            if ticket is not None:
                return ticket
        if self._broken:
            raise JournalError("the simulated file cannot be written any more")
        if run in self._refused:
            raise StaleWriter(f"run {run!r}: an earlier append was refused")
        self.inner.append(run, expected_seq, events, durability)
        self.log += [(self._loop.time(), event) for event in events]
        if self._delay_s is None:
            self._committed = len(self.log)
            return None
        if durability is Durability.BUFFERED:
            return None
        return self._ticket(len(self.log), None)

    def _fail(self, run: str, fault: Fault, durability: Durability) -> Ticket | None:
        match fault:
            case Fault.DIES:
                crash = Crashed(f"the process died at append {self.appends}")
                self._loop.halt(crash)
                raise crash
            case Fault.BROKEN:
                self._broken = True
                return None
            case Fault.STALE:
                self._refused.add(run)
                return None
            case Fault.STALE_LATE:
                self._refused.add(run)
                if durability is Durability.BUFFERED:
                    return None
                return self._ticket(None, StaleWriter(f"run {run!r}: another driver wrote first"))

    def _ticket(self, upto: int | None, error: Exception | None) -> SimTicket:
        """A ticket that is decided after its delay, and after every earlier one."""
        ticket = SimTicket()
        delay_s = self._delay_s() if self._delay_s is not None else 0.0
        self._commit_at = max(self._commit_at, self._loop.time() + delay_s)
        self._queue.append((ticket, upto, error))
        self._loop.call_at(self._commit_at, self._commit)
        return ticket

    def _commit(self) -> None:
        """Decide the oldest ticket: whatever the order of the loop, commits keep theirs."""
        ticket, upto, error = self._queue.popleft()
        if upto is not None:
            self._committed = max(self._committed, upto)
        ticket.decide(error)

    def committed(self) -> list[Event]:
        """What a reader finds after a crash in this moment, of all runs, in order."""
        return [event for _, event in self.log[: self._committed]]

    def read(self, run: str, after_seq: int = 0) -> Iterator[Recorded]:
        """See `store.protocol.Journal`."""
        return self.inner.read(run, after_seq)

    def runs(self) -> list[str]:
        """See `store.protocol.Journal`."""
        return self.inner.runs()

    def labelled(self, labels: Mapping[str, str]) -> list[str]:
        """See `store.protocol.Journal`."""
        return self.inner.labelled(labels)

    def last_at(self, run: str) -> float | None:
        """See `store.protocol.Journal`."""
        return self.inner.last_at(run)

    def orphans(self) -> list[str]:
        """See `store.protocol.Journal`."""
        return self.inner.orphans()

    def adopt(self, run: str) -> bool:
        """See `store.protocol.Journal`."""
        return self.inner.adopt(run)

    def driver(self, run: str) -> str | None:
        """See `store.protocol.Journal`."""
        return self.inner.driver(run)

    def release(self, run: str) -> None:
        """See `store.protocol.Journal`."""
        self.inner.release(run)

    def shelf(self) -> Shelf:
        """See `store.protocol.Journal`."""
        return self.inner.shelf()

    def close(self) -> None:
        """See `store.protocol.Journal`."""
        self.inner.close()


class OutsideJournal:
    """A real journal in a simulation: virtual time stands still while its thread works."""

    def __init__(self, loop: SimLoop, inner: Journal) -> None:
        self.log: list[tuple[float, Event]] = []
        self._loop = loop
        self._inner = inner
        self._committed = 0

    def append(
        self, run: str, expected_seq: int, events: Sequence[Event], durability: Durability
    ) -> Ticket | None:
        """See `store.protocol.Journal`."""
        ticket = self._inner.append(run, expected_seq, events, durability)
        self.log += [(self._loop.time(), event) for event in events]
        if ticket is None:
            return None
        upto = len(self.log)
        told = SimTicket()
        back = self._loop.outside()

        def decide(error: Exception | None) -> None:
            if error is None:
                self._committed = max(self._committed, upto)
            told.decide(error)

        def decided(error: Exception | None) -> None:
            self._loop.call_soon_threadsafe(decide, error)
            back()

        ticket.then(decided)
        return told

    def committed(self) -> list[Event]:
        """What was said to be recorded so far."""
        return [event for _, event in self.log[: self._committed]]

    def read(self, run: str, after_seq: int = 0) -> Iterator[Recorded]:
        """See `store.protocol.Journal`."""
        return self._inner.read(run, after_seq)

    def runs(self) -> list[str]:
        """See `store.protocol.Journal`."""
        return self._inner.runs()

    def labelled(self, labels: Mapping[str, str]) -> list[str]:
        """See `store.protocol.Journal`."""
        return self._inner.labelled(labels)

    def last_at(self, run: str) -> float | None:
        """See `store.protocol.Journal`."""
        return self._inner.last_at(run)

    def orphans(self) -> list[str]:
        """See `store.protocol.Journal`."""
        return self._inner.orphans()

    def adopt(self, run: str) -> bool:
        """See `store.protocol.Journal`."""
        return self._inner.adopt(run)

    def driver(self, run: str) -> str | None:
        """See `store.protocol.Journal`."""
        return self._inner.driver(run)

    def release(self, run: str) -> None:
        """See `store.protocol.Journal`."""
        self._inner.release(run)

    def shelf(self) -> Shelf:
        """See `store.protocol.Journal`."""
        return self._inner.shelf()

    def close(self) -> None:
        """See `store.protocol.Journal`."""
        self._inner.close()
