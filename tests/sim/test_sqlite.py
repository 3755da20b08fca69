"""The real SQLite journal and its writer's thread in a simulation: time stands still for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from endstop.core import events as e
from endstop.store.sqlite import SqliteJournal
from endstop.testing.laws import check_story
from endstop.testing.playing import play_story, same_story
from endstop.testing.simulator import Driver, Settings
from endstop.testing.story import story_of

SEEDS = range(15)
DRIVERS: list[Driver] = ["async", "blocking"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_file_holds_what_observers_saw(driver: Driver, tmp_path: Path) -> None:
    for seed in SEEDS:
        path = tmp_path / f"{seed}.db"
        settings = Settings(seed=seed, driver=driver)
        told = play_story(story_of(seed), settings, journal=lambda p=path: SqliteJournal(p))
        told.check()
        reader = SqliteJournal(path, readonly=True)
        try:
            kept = {run: [one.event for one in reader.read(run)] for run in reader.runs()}
        finally:
            reader.close()
        seen: dict[str, list[e.Event]] = {}
        for event in told.events:
            if not isinstance(event, e.TRANSIENT):
                seen.setdefault(event.run, []).append(event)
        assert kept == seen, f"seed {seed}"
        assert check_story([event for events in kept.values() for event in events]) == []


def test_a_real_journal_changes_nothing_in_the_story(tmp_path: Path) -> None:
    for seed in SEEDS:
        path = tmp_path / f"{seed}.db"
        settings = Settings(seed=seed)
        memory = play_story(story_of(seed), settings)
        sqlite = play_story(story_of(seed), settings, journal=lambda p=path: SqliteJournal(p))
        for told in (memory, sqlite):
            # A late end that comes after the runtime was closed finds the file closed.
            told.log = [entry for entry in told.log if not isinstance(entry[1], e.LateEnd)]
        assert same_story(memory, sqlite) == [], f"seed {seed}"
