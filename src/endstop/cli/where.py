"""The command line's way to a journal that another program uses, and to one run or call in it."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from endstop.cli.journal import Story, find_run, read_story
from endstop.config import Config
from endstop.errors import CallerError, JournalError
from endstop.store.owner import parse_owner
from endstop.store.sqlite import RunRow, SqliteJournal


def journal_file(named: str | None) -> Path:
    """The journal's file, from the option or the configuration. Raises where there is none."""
    name = named if named is not None else Config.load().journal
    if name is None or name == "memory":
        raise CallerError(
            "no journal is named; give --journal FILE.db, or set `journal` in the configuration"
        )
    file = Path(name.removeprefix("sqlite:"))
    if not file.is_file():
        raise JournalError(f"there is no journal {file}")
    return file


@contextmanager
def opened_to_ask(file: Path) -> Iterator[SqliteJournal]:
    """A journal through which something can be asked of the drivers of its runs."""
    journal = SqliteJournal(file)
    try:
        yield journal
    finally:
        journal.close()


def find_target(journal: SqliteJournal, wanted: str, file: Path) -> tuple[RunRow, str]:
    """The run that `RUN[/BATCH[.INDEX]]` speaks of, and the whole id; RUN may be cut short."""
    run, slash, rest = wanted.partition("/")
    row = find_run(journal.describe(), run, file)
    return row, f"{row.run}{slash}{rest}" if rest else row.run


def row_of(journal: SqliteJournal, run: str) -> RunRow:
    """A run's row as it is now."""
    (row,) = [row for row in journal.describe() if row.run == run]
    return row


def story_of(journal: SqliteJournal, run: str) -> Story:
    """A run as the journal tells it now."""
    return read_story(journal, row_of(journal, run))


def driver_words(owner: str | None) -> str:
    """Who drives a run, or drove it."""
    known = parse_owner(owner or "")
    return "its driver" if known is None else f"its driver, pid {known.pid} on {known.host},"


def who() -> str:
    """The person at this terminal, for the record."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody"
