"""What tells which runs have grown: cheap while nothing is recorded, and it misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from endstop.core import events as e
from endstop.errors import JournalError
from endstop.store.growth import SqliteGrowth
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability, Journal
from endstop.store.sqlite import SqliteJournal


@pytest.fixture(params=["memory", "sqlite"])
def journal(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[MemoryJournal | SqliteJournal]:
    made = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "j.db")
    yield made
    made.close()


def grow(journal: Journal, run: str, seq: int = 0) -> None:
    """Record one more event of a run, for everybody to see."""
    event = e.Noted(run=run, kind="n", body={}) if seq else e.RunOpened(run=run)
    journal.append(run, seq, [event], Durability.PROCESS)
    list(journal.read(run))


def test_what_has_grown_is_told_and_nothing_else(journal: MemoryJournal | SqliteJournal) -> None:
    rings: list[None] = []
    for run in "abc":
        grow(journal, run)
    growth = journal.growth(lambda: rings.append(None))
    growth.changed()
    assert set(growth.grown({"a": 1, "b": 0, "new": 0})) == {"b"}
    assert not growth.changed()
    assert not rings
    grow(journal, "a", 1)
    assert growth.changed()
    assert set(growth.grown({"a": 1, "b": 1, "new": 0})) == {"a"}
    assert not growth.changed()
    grow(journal, "new")
    assert growth.changed()
    assert set(growth.grown({"a": 2, "b": 1, "new": 0})) == {"new"}
    assert len(rings) == (2 if growth.tells else 0)
    growth.close()
    growth.close()
    grow(journal, "a", 2)
    assert len(rings) == (2 if growth.tells else 0)


def test_what_another_process_would_record_is_seen(tmp_path: Path) -> None:
    ours, theirs = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")
    growth = ours.growth(lambda: None)
    growth.changed()
    assert not growth.changed()
    grow(theirs, "a")
    assert growth.changed()
    assert set(growth.grown({"a": 0})) == {"a"}
    growth.close()
    ours.close()
    theirs.close()


def test_a_file_that_is_gone_is_an_error_in_words(tmp_path: Path) -> None:
    growth = SqliteGrowth(tmp_path / "none.db", 0.1)
    with pytest.raises(JournalError, match="no journal"):
        growth.changed()
    growth.close()
