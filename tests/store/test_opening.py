"""Opening a journal: what names one, and what is said where a file cannot be used."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from endstop.errors import CallerError, JournalError
from endstop.store import open_journal
from endstop.store.memory import MemoryJournal
from endstop.store.opening import APPLICATION_ID
from endstop.store.protocol import Durability
from endstop.store.sql import SQL
from endstop.store.sqlite import SqliteJournal
from tests.store.helpers import events_of, opened, output, python, record


def spoil(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"there is no directory .*/nowhere .*; create it"):
        SqliteJournal(tmp_path / "nowhere" / "runs.db")


def test_a_directory_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="is a directory"):
        SqliteJournal(tmp_path)


@pytest.mark.parametrize("text", [b"no database\n", b"x" * 5_000, b"SQLite format 3\0" * 300])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(text)
    for readonly in (False, True):
        with pytest.raises(JournalError, match=r"notes\.db"):
            SqliteJournal(path, readonly=readonly)
    assert path.read_bytes() == text


@pytest.mark.parametrize("readonly", [False, True])
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, readonly: bool) -> None:
    path = tmp_path / "theirs.db"
    spoil(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="is a SQLite database of another program"):
        SqliteJournal(path, readonly=readonly)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["theirs.db"]


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    with pytest.raises(JournalError, match="is empty"):
        SqliteJournal(path, readonly=True)
    journal = SqliteJournal(path)
    record(journal, "r", 0, opened("r"))
    journal.close()


@pytest.mark.parametrize("name", ["schema", "format"])
@pytest.mark.parametrize("readonly", [False, True])
def test_a_newer_version_is_named(tmp_path: Path, name: str, readonly: bool) -> None:
    path = tmp_path / "runs.db"
    SqliteJournal(path).close()
    spoil(path, f"UPDATE meta SET value = '99' WHERE name = '{name}'")
    with pytest.raises(JournalError, match=rf"newer endstop \({name} 99, this one knows \d+\)"):
        SqliteJournal(path, readonly=readonly)


def make_first_schema(path: Path) -> None:
    """A journal as the first schema had it: without an inbox, a shelf or labels."""
    journal = SqliteJournal(path)
    record(journal, "r", 0, opened("r"))
    journal.close()
    spoil(
        path,
        "DROP TABLE requests",
        "DROP TABLE shelf",
        "DROP TABLE labels",
        "UPDATE meta SET value = '1' WHERE name = 'schema'",
    )


def test_a_file_of_the_first_schema_is_upgraded_in_place(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    make_first_schema(path)
    viewer = SqliteJournal(path, readonly=True)
    assert events_of(viewer, "r") == [opened("r")], "reading alone changes nothing"
    journal = SqliteJournal(path)
    asked = journal.inbox().post("r", "r", "cancel", {}, "somebody")
    assert asked is not None
    journal.shelf().put("space", "key", {"kept": True})
    assert events_of(journal, "r") == events_of(viewer, "r") == [opened("r")]
    record(journal, "s", 0, opened("s"))
    journal.close()
    viewer.close()
    SqliteJournal(path).close()


def test_many_processes_may_upgrade_one_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    make_first_schema(path)
    script = (
        "import sys; from endstop.store.sqlite import SqliteJournal; SqliteJournal(sys.argv[1])"
    )
    children = [python(script, path) for _ in range(3)]
    for child in children:
        assert output(child) == ""


def test_a_journal_without_a_version_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    SqliteJournal(path).close()
    spoil(path, "DELETE FROM meta WHERE name = 'schema'")
    with pytest.raises(JournalError, match="damaged: it does not name the version of its schema"):
        SqliteJournal(path)


def test_a_locked_file_is_waited_for_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalError, match=r"locked by another process for over 0\.2 s"):
        SqliteJournal(path, busy_s=0.2)
    connection.close()
    SqliteJournal(path).close()


READ_ONLY = """
import os, sys, urllib.parse  # what is loaded late could not be read any more
from endstop.errors import JournalError
from endstop.store.sqlite import SqliteJournal
if os.geteuid() == 0:
    # Nothing is read-only for root.
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for path in sys.argv[1:]:
    try:
        SqliteJournal(path)
    except JournalError as error:
        print(error)
    else:
        print("opened", path)
journal = SqliteJournal(sys.argv[1], readonly=True)
print([type(entry.event).__name__ for entry in journal.read("r")], journal.runs())
"""


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that any user may enter; pytest's own is private."""
    with TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


def test_a_place_that_may_not_be_written_is_named_and_can_still_be_read(public_path: Path) -> None:
    file, folder = public_path / "runs.db", public_path / "locked"
    folder.mkdir()
    for path in (file, folder / "runs.db"):
        journal = SqliteJournal(path)
        record(journal, "r", 0, opened("r"))
        journal.close()
    file.chmod(0o444)
    folder.chmod(0o555)
    try:
        lines = output(python(READ_ONLY, folder / "runs.db", folder / "new.db", file)).splitlines()
    finally:
        folder.chmod(0o755)
    assert [("is read-only" in line) for line in lines] == [True, True, True, False]
    assert lines[3] == "['RunOpened'] ['r']"


def test_reading_only(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with pytest.raises(JournalError, match="there is no journal"):
        SqliteJournal(path, readonly=True)
    assert not path.exists()
    journal = SqliteJournal(path)
    record(journal, "r", 0, opened("r"))
    viewer = SqliteJournal(path, readonly=True)
    record(journal, "s", 0, opened("s"))
    assert viewer.runs() == ["r", "s"]
    assert events_of(viewer, "s") == [opened("s")]
    for use in (
        lambda: viewer.append("r", 1, [], Durability.BUFFERED),
        lambda: viewer.adopt("r"),
    ):
        with pytest.raises(JournalError, match="opened for reading only"):
            use()
    viewer.close()
    viewer.close()
    journal.close()


def test_many_processes_may_make_one_file(tmp_path: Path) -> None:
    script = """
import sys
from endstop.store.sqlite import SqliteJournal
print("ready", flush=True)
for path in sys.stdin:
    SqliteJournal(path.strip()).close()
    print("made", flush=True)
"""
    children = [python(script) for _ in range(3)]

    def lines() -> list[str]:
        assert all(child.stdout for child in children)
        return [child.stdout.readline().strip() for child in children if child.stdout]

    assert lines() == ["ready"] * 3
    for round_ in range(40):
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"{tmp_path}/{round_}.db\n")
            child.stdin.flush()
        assert lines() == ["made"] * 3, [child.communicate() for child in children]
    for child in children:
        output(child)


def test_the_mark_of_the_file_is_the_one_that_is_looked_for(tmp_path: Path) -> None:
    assert SQL["mark_file"].endswith(str(APPLICATION_ID))
    assert APPLICATION_ID.to_bytes(4, "big") == b"endS"


def test_what_names_a_journal(tmp_path: Path) -> None:
    assert isinstance(open_journal(), MemoryJournal)
    assert isinstance(open_journal("memory"), MemoryJournal)
    for spec in (
        f"sqlite:{tmp_path}/any.name",
        f"{tmp_path}/a.db",
        tmp_path / "b.sqlite",
        str(tmp_path / "c.SQLITE3"),
    ):
        journal = open_journal(spec)
        assert isinstance(journal, SqliteJournal)
        assert open_journal(journal) is journal
        journal.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "a.db",
        "any.name",
        "b.sqlite",
        "c.SQLITE3",
    ]


@pytest.mark.parametrize(
    "spec", ["runs.txt", "", "postgres://x", "sqlite:", "sqlite::memory:", Path("runs"), 7, [], {}]
)
def test_what_names_none_is_explained(spec: object) -> None:
    with pytest.raises(CallerError, match="'memory'"):
        open_journal(spec)  # type: ignore[arg-type]
