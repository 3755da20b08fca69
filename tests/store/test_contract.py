"""The contract of a journal, the same for every store.

A store is one entry in `STORES`; a new one must pass this file as it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from endstop.core.events import CallSettled, Event, RunInterrupted, RunOpened
from endstop.errors import StaleWriter
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability, Journal
from endstop.store.sqlite import SqliteJournal
from tests.store.helpers import (
    WAIT_S,
    ended,
    events_of,
    granted,
    late,
    offer,
    opened,
    record,
    result,
    settled,
    started,
)

LEVELS = list(Durability)


@dataclass
class Store:
    """A journal under test; `again` is the view of a reader that comes later."""

    make: Callable[[], Journal]
    reopens: bool
    made: list[Journal] = field(default_factory=list)

    def open(self) -> Journal:
        self.made.append(self.make())
        return self.made[-1]

    def again(self) -> Journal:
        """The same journal, or a new one on the same file after the first was closed."""
        if not self.reopens:
            return self.made[-1]
        self.made[-1].close()
        return self.open()


@pytest.fixture(params=["memory", "sqlite", "sqlite reopened"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    path = tmp_path / "runs.db"
    make: Callable[[], Journal] = (
        MemoryJournal if request.param == "memory" else lambda: SqliteJournal(path)
    )
    made = Store(make=make, reopens=request.param == "sqlite reopened")
    yield made
    for journal in made.made:
        journal.close()


@pytest.fixture
def journal(store: Store) -> Journal:
    return store.open()


@pytest.mark.parametrize("durability", LEVELS)
def test_what_was_appended_is_read_in_order_and_numbered(
    store: Store, journal: Journal, durability: Durability
) -> None:
    before = time.time()
    first: list[Event] = [opened("r"), granted("r", "a"), started("r", "a")]
    second: list[Event] = [settled("r", "a", {"x": [1, "ü"]}), ended("r")]
    tickets = [
        journal.append("r", 0, first, durability),
        journal.append("r", 3, second, durability),
    ]
    assert [result(ticket) for ticket in tickets] == [None, None]
    read = list(store.again().read("r"))
    assert [entry.event for entry in read] == first + second
    assert [entry.seq for entry in read] == [1, 2, 3, 4, 5]
    assert {entry.run for entry in read} == {"r"}
    stamps = [entry.at_s for entry in read]
    assert stamps == sorted(stamps)
    assert before <= stamps[0] <= stamps[-1] <= time.time()
    assert len(set(stamps[:3])) == 1, "one append, one instant"


def test_reading_starts_after_a_number(store: Store, journal: Journal) -> None:
    record(journal, "r", 0, opened("r"), granted("r", "a"))
    record(journal, "r", 2, started("r", "a"), settled("r", "a"))
    again = store.again()
    for after in range(6):
        read = list(again.read("r", after))
        assert [entry.seq for entry in read] == [1, 2, 3, 4][after:]
    stamps = [entry.at_s for entry in again.read("r")]
    assert [entry.at_s for entry in again.read("r", 3)] == stamps[3:]


def test_a_long_run_is_read_whole(store: Store, journal: Journal) -> None:
    # Longer than a page of the reader, and a multiple of one.
    total = 1_500
    for start in range(0, total, 100):
        batch = [started("r", f"c{n}") for n in range(start, start + 100)]
        journal.append("r", start, batch, Durability.BUFFERED)
    read = list(store.again().read("r"))
    assert [entry.seq for entry in read] == list(range(1, total + 1))
    assert [entry.event for entry in read] == [started("r", f"c{n}") for n in range(total)]


def test_an_unknown_run_is_empty(journal: Journal) -> None:
    assert list(journal.read("nobody")) == []
    assert journal.runs() == []
    assert not journal.adopt("nobody")


def test_runs_are_found_by_their_labels_newest_first(store: Store, journal: Journal) -> None:
    alice, both = {"owner": "alice"}, {"owner": "alice", "context": "c"}
    for n, labels in enumerate([alice, both, {"owner": "bob", "context": "c"}, both, {}]):
        first = RunOpened(run=f"r{n}", labels=labels)
        journal.append(f"r{n}", 0, [first, started(f"r{n}", "a")], Durability.BUFFERED)
    journal.append("r1", 2, [ended("r1")], Durability.BUFFERED)
    again = store.again()
    assert again.labelled(alice) == ["r3", "r1", "r0"]
    assert again.labelled(both) == ["r3", "r1"]
    assert again.labelled({"context": "c"}) == ["r3", "r2", "r1"]
    assert again.labelled({}) == ["r4", "r3", "r2", "r1", "r0"]
    for nobody in ({"owner": ""}, {"context": "alice"}, {**both, "more": "x"}):
        assert again.labelled(nobody) == []


def test_a_refused_append_labels_nothing(journal: Journal) -> None:
    record(journal, "r", 0, RunOpened(run="r", labels={"owner": "alice"}))
    second = RunOpened(run="r", labels={"owner": "bob"})
    assert isinstance(offer(journal, "r", 0, [second]), StaleWriter)
    assert journal.labelled({"owner": "bob"}) == []


def test_the_instant_of_the_last_event(store: Store, journal: Journal) -> None:
    assert journal.last_at("r") is None
    record(journal, "r", 0, opened("r"), started("r", "a"))
    record(journal, "r", 2, settled("r", "a"))
    again = store.again()
    assert again.last_at("r") == [entry.at_s for entry in again.read("r")][-1]


def test_an_empty_append_records_nothing(journal: Journal) -> None:
    record(journal, "r", 0, opened("r"))
    assert offer(journal, "r", 1, []) is None
    record(journal, "r", 1, ended("r"))
    assert events_of(journal, "r") == [opened("r"), ended("r")]


@pytest.mark.parametrize("durability", LEVELS)
def test_read_your_writes(journal: Journal, durability: Durability) -> None:
    for n in range(50):
        journal.append("r", n, [started("r", f"c{n}")], durability)
        assert len(events_of(journal, "r")) == n + 1


def test_runs_are_listed_oldest_first(store: Store, journal: Journal) -> None:
    names = [f"r{n}" for n in (5, 3, 9, 1)]
    for name in names:
        journal.append(name, 0, [opened(name)], Durability.BUFFERED)
    journal.append("r3", 1, [ended("r3")], Durability.BUFFERED)
    assert store.again().runs() == names


@pytest.mark.parametrize("expected", [0, 1, 3, 7])
def test_a_stale_writer_is_refused_and_nothing_of_it_kept(
    store: Store, journal: Journal, expected: int
) -> None:
    """Law 3 one-ending: the number is the fence."""
    record(journal, "r", 0, opened("r"), granted("r", "a"))
    error = offer(journal, "r", expected, [started("r", "a"), settled("r", "a")])
    assert isinstance(error, StaleWriter)
    assert "'r'" in str(error)
    assert str(expected) in str(error)
    again = store.again()
    assert events_of(again, "r") == [opened("r"), granted("r", "a")]
    # The refused ending is not remembered as one: the call can still be settled.
    if store.reopens:
        record(again, "r", 2, settled("r", "a"))


def test_a_stale_writer_does_not_disturb_other_runs(store: Store, journal: Journal) -> None:
    record(journal, "bad", 0, opened("bad"))
    outcome: dict[str, Exception | None] = {}
    tickets = {}
    for name, seq in [("r1", 0), ("bad", 7), ("r2", 0)]:
        try:
            tickets[name] = journal.append(name, seq, [opened(name)], Durability.PROCESS)
        except StaleWriter as error:
            outcome[name] = error
    outcome |= {name: result(ticket) for name, ticket in tickets.items()}
    assert isinstance(outcome["bad"], StaleWriter)
    assert outcome["r1"] is None
    assert outcome["r2"] is None
    again = store.again()
    assert again.runs() == ["bad", "r1", "r2"]
    assert [len(events_of(again, name)) for name in ("bad", "r1", "r2")] == [1, 1, 1]


def test_one_ending_per_call(store: Store, journal: Journal) -> None:
    record(journal, "r", 0, opened("r"), settled("r", "a", "first"))
    record(journal, "other", 0, opened("other"), settled("other", "a", "of another run"))
    error = offer(journal, "r", 2, [granted("r", "b"), settled("r", "a", "second")])
    assert isinstance(error, StaleWriter)
    assert "ending" in str(error)
    again = store.again()
    assert events_of(again, "r") == [opened("r"), settled("r", "a", "first")]
    assert len(events_of(again, "other")) == 2


def test_one_ending_per_call_within_one_append(store: Store, journal: Journal) -> None:
    record(journal, "r", 0, opened("r"))
    assert isinstance(
        offer(journal, "r", 1, [settled("r", "a", 1), settled("r", "b"), settled("r", "a", 2)]),
        StaleWriter,
    )
    assert events_of(store.again(), "r") == [opened("r")]


def test_one_ending_per_run(store: Store, journal: Journal) -> None:
    record(journal, "r", 0, opened("r"), ended("r"))
    # What still comes after the ending of a run is kept; a second ending is not.
    record(journal, "r", 2, late("r", "a"))
    assert isinstance(offer(journal, "r", 3, [ended("r")]), StaleWriter)
    again = store.again()
    assert events_of(again, "r") == [opened("r"), ended("r"), late("r", "a")]
    assert again.orphans() == []


def test_many_threads_append_their_own_runs(store: Store, journal: Journal) -> None:
    threads, rounds = 8, 60
    errors: list[Exception | None] = []

    def drive(name: str) -> None:
        tickets = []
        for n in range(rounds):
            level = LEVELS[n % 2]
            batch = [started(name, f"c{n}"), settled(name, f"c{n}", n)]
            tickets.append(journal.append(name, 2 * n, batch, level))
        errors.extend(result(ticket) for ticket in tickets)

    workers = [threading.Thread(target=drive, args=(f"r{n}",)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_S)
        assert not worker.is_alive()
    assert errors == [None] * (threads * rounds)
    again = store.again()
    assert sorted(again.runs()) == sorted(f"r{n}" for n in range(threads))
    for n in range(threads):
        read = list(again.read(f"r{n}"))
        assert [entry.seq for entry in read] == list(range(1, 2 * rounds + 1))
        values = [entry.event.value for entry in read if isinstance(entry.event, CallSettled)]
        assert values == list(range(rounds))


def test_of_many_threads_with_one_number_one_wins(store: Store, journal: Journal) -> None:
    record(journal, "r", 0, opened("r"))
    barrier = threading.Barrier(8)
    errors: list[Exception | None] = []

    def drive(n: int) -> None:
        barrier.wait(WAIT_S)
        errors.append(offer(journal, "r", 1, [settled("r", "a", n)]))

    workers = [threading.Thread(target=drive, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_S)
    assert sum(error is None for error in errors) == 1
    assert all(isinstance(error, StaleWriter) for error in errors if error is not None)
    assert len(events_of(store.again(), "r")) == 2


def test_tickets_are_decided_in_order_and_once(journal: Journal) -> None:
    order: list[int] = []
    decided = threading.Event()

    def note(n: int) -> Callable[[Exception | None], None]:
        def callback(error: Exception | None) -> None:
            assert error is None
            order.append(n)
            if n == 199:
                decided.set()

        return callback

    for n in range(200):
        level = Durability.MACHINE if n % 50 == 0 else Durability.PROCESS
        ticket = journal.append(f"r{n % 7}", n // 7, [started("r", f"c{n}")], level)
        if ticket is None:
            note(n)(None)
        else:
            ticket.then(note(n))
    assert decided.wait(WAIT_S)
    assert order == list(range(200))
    late_calls: list[Exception | None] = []
    if ticket is not None:
        ticket.then(late_calls.append)
        ticket.then(late_calls.append)
        assert late_calls == [None, None], "a decided ticket answers at once, each time"


def test_a_run_that_is_driven_is_no_orphan(journal: Journal) -> None:
    record(journal, "r", 0, opened("r"))
    assert journal.orphans() == []
    assert not journal.adopt("r")


def test_a_closed_journal_leaves_its_open_runs_to_adopt(store: Store, journal: Journal) -> None:
    """Law 16 survives-restart, where the driver went in order."""
    record(journal, "over", 0, opened("over"), ended("over"))
    record(journal, "open", 0, opened("open"), granted("open", "a"))
    record(journal, "also", 0, opened("also"))
    journal.close()
    journal.close()
    again = journal if isinstance(journal, MemoryJournal) else store.open()
    assert again.orphans() == ["open", "also"]
    assert not again.adopt("over")
    assert again.adopt("open")
    assert not again.adopt("open"), "adopted once"
    assert again.orphans() == ["also"]
    record(again, "open", 2, RunInterrupted(run="open"), ended("open"))
    assert len(events_of(again, "open")) == 4
