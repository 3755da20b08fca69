"""The journal in memory: it keeps the events themselves and dies with its process.

No codec, no file, no thread. An append is on the path of every event of the engine, so nothing
here may cost more than a few list operations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import Lock
from time import time

from endstop.core.events import CallSettled, Event, LateEnd, RunEnded, RunOpened
from endstop.errors import StaleWriter
from endstop.store.protocol import Durability, Recorded, Ticket
from endstop.store.shelf import MemoryShelf

_ENDINGS = frozenset({CallSettled, LateEnd, RunEnded})


class _Log:
    """The events of one run."""

    __slots__ = ("alive", "driven", "ended", "events", "settled", "times", "upto")

    def __init__(self) -> None:
        self.events: list[Event] = []
        # For every append, the number of events once it was in, and its wall time.
        self.upto: list[int] = []
        self.times: list[float] = []
        self.settled: set[str] = set()
        # Abandoned workers, which will still write their late end (law 9 on-the-books).
        self.alive = 0
        self.ended = False
        self.driven = True


class MemoryGrowth:
    """The growth of runs in memory: whoever appends says so."""

    tells = True

    def __init__(self, journal: MemoryJournal, told: Callable[[], object]) -> None:
        self._journal = journal
        self._told = told
        self._watched: Mapping[str, int] = {}
        self._grown: set[str] = set()

    def note(self, run: str) -> None:
        """Something was appended to a run; with the journal's lock held."""
        if run in self._watched:
            self._grown.add(run)
            self._told()

    def changed(self) -> bool:
        """See `Growth`."""
        return bool(self._grown)

    def grown(self, after: Mapping[str, int]) -> Collection[str]:
        """See `Growth`; from now on these runs are told of."""
        journal = self._journal
        with journal._lock:
            found = {
                run
                for run, seq in after.items()
                if (log := journal._logs.get(run)) is not None and len(log.events) > seq
            }
            self._watched, self._grown = dict(after), set()
        return found

    def close(self) -> None:
        """See `Growth`."""
        with self._journal._lock:
            if self in self._journal._growths:
                self._journal._growths.remove(self)


class MemoryJournal:
    """Keeps events as objects; what is appended is at once as durable as it will ever be.

    Of the runs that have ended, the newest `ended_max` are kept and older ones forgotten, so that a
    long life needs bounded memory; a run that still has an abandoned worker does not count until
    that ends. Safe from any thread.
    """

    def __init__(self, *, ended_max: int = 10_000) -> None:
        assert ended_max >= 1
        self._logs: dict[str, _Log] = {}
        # In the order of their endings; only runs that nobody will write to any more.
        self._ended: dict[str, None] = {}
        self._ended_max = ended_max
        # The runs with each label, in the order in which they were opened.
        self._labelled: dict[tuple[str, str], dict[str, None]] = {}
        self._growths: list[MemoryGrowth] = []
        self._lock = Lock()
        self._shelf = MemoryShelf()

    def append(
        self, run: str, expected_seq: int, events: Sequence[Event], durability: Durability
    ) -> Ticket | None:
        """Record events after number `expected_seq` of a run; always None, nothing to wait for.

        Raises `StaleWriter`, and keeps nothing, where the run stands elsewhere or an ending in
        `events` is the second one of its call or run (law 3 one-ending).
        """
        # Not by `with`, which costs twice as much: this is on the path of every event.
        self._lock.acquire()
        try:
            log = self._logs.get(run) or _Log()
            kept = log.events
            if len(kept) != expected_seq:
                raise StaleWriter(
                    f"run {run!r} stands at {len(kept)} events, the append expected "
                    f"{expected_seq}: another driver wrote to it first"
                )
            ends = False
            for event in events:
                if type(event) in _ENDINGS:
                    ends = _note_endings(run, log, events)
                    break
            if not kept:
                self._logs[run] = log
                opened = events[0] if events else None
                if type(opened) is RunOpened and opened.labels:
                    for label in opened.labels.items():
                        self._labelled.setdefault(label, {})[run] = None
            kept.extend(events)
            log.upto.append(len(kept))
            log.times.append(time())
            for growth in self._growths:
                growth.note(run)
            if ends:
                self._ended[run] = None
                if len(self._ended) > self._ended_max:
                    oldest = next(iter(self._ended))
                    del self._ended[oldest]
                    self._drop(oldest)
            return None
        finally:
            self._lock.release()

    def _drop(self, run: str) -> None:
        opened = self._logs.pop(run).events[0]
        if type(opened) is not RunOpened:
            return
        for label in opened.labels.items():
            runs = self._labelled[label]
            del runs[run]
            if not runs:
                del self._labelled[label]

    def read(self, run: str, after_seq: int = 0) -> Iterator[Recorded]:
        """The events of a run as it stands now, from the one after `after_seq`."""
        with self._lock:
            log = self._logs.get(run)
            events = log.events[after_seq:] if log else []
            stamps = list(zip(log.upto, log.times, strict=True)) if log else []
        return _recorded(run, after_seq, events, stamps)

    def runs(self) -> list[str]:
        """The ids of all runs that are kept, oldest first."""
        with self._lock:
            return list(self._logs)

    def labelled(self, labels: Mapping[str, str]) -> list[str]:
        """The runs that are kept and were opened with all of these labels, newest first."""
        with self._lock:
            found = [self._labelled.get(label, {}) for label in labels.items()]
            if not found:
                return list(reversed(self._logs))
            few = min(found, key=len)
            return [run for run in reversed(few) if all(run in runs for runs in found)]

    def last_at(self, run: str) -> float | None:
        """The wall time of the last event of a run; None for one that is not kept."""
        with self._lock:
            log = self._logs.get(run)
            return log.times[-1] if log is not None else None

    def orphans(self) -> list[str]:
        """Runs without an ending whose driver closed this journal."""
        with self._lock:
            return [run for run, log in self._logs.items() if not (log.ended or log.driven)]

    def adopt(self, run: str) -> bool:
        """Become the driver of an orphan; false if somebody else was faster."""
        with self._lock:
            log = self._logs.get(run)
            if log is None or log.ended or log.driven:
                return False
            log.driven = True
            return True

    def driver(self, run: str) -> str | None:
        """Who drives a run, in words."""
        with self._lock:
            log = self._logs.get(run)
            return "this program" if log is not None and log.driven else None

    def release(self, run: str) -> None:
        """Let go of one run: it is an orphan again."""
        with self._lock:
            log = self._logs.get(run)
            if log is not None:
                log.driven = False

    def growth(self, told: Callable[[], object]) -> MemoryGrowth:
        """What tells which runs have grown: `told` is called, on any thread and with a lock held.

        Of those that `grown` was asked for last. Close it when it is no longer needed.
        """
        growth = MemoryGrowth(self, told)
        with self._lock:
            self._growths.append(growth)
        return growth

    def shelf(self) -> MemoryShelf:
        """Small records beside the runs; they stay when the journal is closed, see `Shelf`."""
        return self._shelf

    def close(self) -> None:
        """Let go of every run: those without an ending become orphans.

        The journal itself stays usable, so that a second driver can take up what a first one left.
        """
        with self._lock:
            for log in self._logs.values():
                log.driven = False


def _note_endings(run: str, log: _Log, events: Sequence[Event]) -> bool:
    """Enforce one ending per call and run, before anything is kept; true where the run is over."""
    settled = log.settled
    before = log.alive, log.ended
    added: list[str] = []
    for event in events:
        if type(event) is CallSettled:
            if event.call in settled:
                break
            settled.add(event.call)
            added.append(event.call)
            log.alive += event.alive
        elif type(event) is RunEnded:
            if log.ended:
                break
            log.ended = True
        elif type(event) is LateEnd:
            log.alive -= 1
    else:
        return log.ended and log.alive <= 0
    settled.difference_update(added)
    log.alive, log.ended = before
    raise StaleWriter(f"run {run!r}: it or a call of the append already has its ending")


def _recorded(
    run: str, after_seq: int, events: list[Event], stamps: list[tuple[int, float]]
) -> Iterator[Recorded]:
    stamp = iter(stamps)
    upto, at_s = 0, 0.0
    for seq, event in enumerate(events, after_seq + 1):
        while seq > upto:
            upto, at_s = next(stamp)
        yield Recorded(run=run, seq=seq, at_s=at_s, event=event)
