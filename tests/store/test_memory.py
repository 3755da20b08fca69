"""What only the journal in memory promises: it keeps the objects, and not without bound."""

from __future__ import annotations

import pytest

from endstop.errors import StaleWriter
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability
from tests.store.helpers import ended, events_of, late, opened, record, settled


def test_it_keeps_the_events_themselves() -> None:
    journal = MemoryJournal()
    events = [opened("r"), settled("r", "a", object())]
    for durability in Durability:
        assert journal.append(f"r{durability}", 0, events, durability) is None
        assert [a is b for a, b in zip(events_of(journal, f"r{durability}"), events, strict=True)]


def test_a_list_that_changes_later_changes_nothing() -> None:
    journal = MemoryJournal()
    events = [opened("r")]
    record(journal, "r", 0, *events)
    handed = events_of(journal, "r")
    handed.clear()
    assert events_of(journal, "r") == [opened("r")]


def test_the_oldest_ended_runs_are_forgotten() -> None:
    journal = MemoryJournal(ended_max=3)
    record(journal, "open", 0, opened("open"))
    for n in range(10):
        record(journal, f"r{n}", 0, opened(f"r{n}"), ended(f"r{n}"))
    assert journal.runs() == ["open", "r7", "r8", "r9"]
    assert events_of(journal, "r0") == []


def test_a_run_with_an_abandoned_worker_is_not_forgotten() -> None:
    """Law 9 on-the-books."""
    journal = MemoryJournal(ended_max=1)
    record(journal, "r", 0, opened("r"), settled("r", "a", alive=True), ended("r"))
    for n in range(5):
        record(journal, f"r{n}", 0, opened(f"r{n}"), ended(f"r{n}"))
    assert journal.runs() == ["r", "r4"]
    record(journal, "r", 3, late("r", "a"))
    assert journal.runs() == ["r"], "it was the last to end"
    record(journal, "last", 0, opened("last"), ended("last"))
    assert journal.runs() == ["last"]


def test_a_refused_append_leaves_no_trace() -> None:
    journal = MemoryJournal()
    with pytest.raises(StaleWriter):
        journal.append("new", 3, [opened("new")], Durability.BUFFERED)
    twice = [opened("new"), settled("new", "a"), ended("new"), settled("new", "a")]
    with pytest.raises(StaleWriter):
        journal.append("new", 0, twice, Durability.BUFFERED)
    assert journal.runs() == []
    # Neither ending of the refused append counts.
    record(journal, "new", 0, opened("new"), settled("new", "a"), ended("new"))


def test_of_a_refused_append_no_ending_counts() -> None:
    journal = MemoryJournal()
    record(journal, "r", 0, opened("r"), settled("r", "a"))
    for events in (
        [settled("r", "b"), ended("r"), settled("r", "a")],
        [settled("r", "b"), ended("r"), ended("r")],
        [settled("r", "b", alive=True), settled("r", "b")],
    ):
        with pytest.raises(StaleWriter):
            journal.append("r", 2, events, Durability.BUFFERED)
    assert journal.orphans() == []
    journal.close()
    assert journal.orphans() == ["r"], "it has not ended"
    record(journal, "r", 2, settled("r", "b"), ended("r"))
    assert len(events_of(journal, "r")) == 4
