"""What only the SQLite journal promises: groups, refusals, failures, large results, closing."""

from __future__ import annotations

import gc
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from endstop.errors import JournalError, StaleWriter
from endstop.store import writer
from endstop.store.codec import BLOB_CHARS
from endstop.store.protocol import Durability, Ticket
from endstop.store.sqlite import SqliteJournal
from tests.store.helpers import (
    WAIT_S,
    ended,
    events_of,
    granted,
    offer,
    opened,
    record,
    result,
    settled,
    started,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    made = SqliteJournal(path)
    yield made
    made.close()


class Held:
    """Another connection that holds the write lock of a file, so that a group gathers."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        """Idempotent: closing rolls back."""
        self._connection.close()


@pytest.fixture
def held(journal: SqliteJournal, path: Path) -> Iterator[Held]:
    record(journal, "before", 0, opened("before"))
    hold = Held(path)
    yield hold
    hold.release()


def tables(path: Path, query: str) -> list[tuple[object, ...]]:
    """What a program that knows nothing of endstop sees in the file."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def group_behind(path: Path, appends: Callable[[], dict[str, Ticket | None]]) -> dict[str, object]:
    """Appends while the file is locked, so that all but the first come in one group."""
    hold = Held(path)
    try:
        tickets = appends()
    finally:
        hold.release()
    return {name: result(ticket) for name, ticket in tickets.items()}


def test_a_refusal_takes_only_itself_out_of_a_group(journal: SqliteJournal, path: Path) -> None:
    record(journal, "r", 0, opened("r"), settled("r", "a"))
    put = journal.append

    def appends() -> dict[str, Ticket | None]:
        level = Durability.PROCESS
        return {
            "first": put("x", 0, [opened("x")], level),
            "good": put("g1", 0, [opened("g1"), granted("g1", "a")], level),
            "gap": put("gap", 4, [opened("gap")], level),
            "twice": put("r", 2, [granted("r", "b"), settled("r", "a")], level),
            "follows": put("r", 4, [granted("r", "c")], level),
            "unknown": put("u\ud800", 0, [opened("u")], level),
            "not json": put("j", 0, [settled("j", "a", object())], level),
            "also good": put("g1", 2, [ended("g1")], level),
        }

    got = group_behind(path, appends)
    assert got["first"] is None
    assert got["good"] is None
    assert got["also good"] is None
    assert isinstance(got["gap"], StaleWriter)
    assert isinstance(got["twice"], StaleWriter)
    assert got["follows"] is got["twice"], "what follows in its run is refused for the same reason"
    assert isinstance(got["unknown"], JournalError)
    assert isinstance(got["not json"], JournalError)
    assert events_of(journal, "r") == [opened("r"), settled("r", "a")]
    assert len(events_of(journal, "g1")) == 3
    assert sorted(journal.runs()) == ["g1", "r", "x"]


def test_a_refused_run_stays_refused_also_where_a_number_would_fit(journal: SqliteJournal) -> None:
    record(journal, "r", 0, opened("r"))
    assert isinstance(offer(journal, "r", 5, [granted("r", "a")]), StaleWriter)
    with pytest.raises(StaleWriter, match="'r'"):
        journal.append("r", 1, [granted("r", "a")], Durability.BUFFERED)
    record(journal, "s", 0, opened("s"))


def test_what_was_queued_behind_a_refusal_is_refused_with_it(
    journal: SqliteJournal, path: Path
) -> None:
    record(journal, "r", 0, opened("r"))
    assert journal._writer is not None
    hold = Held(path)
    stale = journal.append("r", 5, [granted("r", "a")], Durability.PROCESS)
    until = time.monotonic() + WAIT_S
    while journal._writer._queue and time.monotonic() < until:
        time.sleep(0.001)  # no event says that the writer took its group
    # The next group, queued before anybody could know of the refusal, with a number that fits.
    fits = journal.append("r", 1, [granted("r", "b")], Durability.PROCESS)
    hold.release()
    refusal = result(stale)
    assert isinstance(refusal, StaleWriter)
    assert result(fits) is refusal
    assert events_of(journal, "r") == [opened("r")]


def test_a_group_that_fails_half_way_leaves_nothing_and_no_lock(
    journal: SqliteJournal, path: Path
) -> None:
    record(journal, "r", 0, opened("r"))
    assert journal._writer is not None

    def deny_blobs(action: int, table: str | None, *_: object) -> int:
        return sqlite3.SQLITE_DENY if table == "blobs" else sqlite3.SQLITE_OK

    # The events of the group are inserted by the time its blob is refused.
    journal._writer._recorder._connection.set_authorizer(deny_blobs)
    events = [granted("r", "a"), settled("r", "a", "x" * 2 * BLOB_CHARS)]
    error = offer(journal, "r", 1, events)
    assert isinstance(error, JournalError)
    assert "runs.db cannot be written any more" in str(error)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.close()
    assert events_of(journal, "r") == [opened("r")]


def test_adopting_takes_the_refusal_away(path: Path) -> None:
    first = SqliteJournal(path)
    second = SqliteJournal(path)
    record(first, "r", 0, opened("r"))
    record(second, "r", 1, granted("r", "a"))
    assert isinstance(offer(first, "r", 1, [granted("r", "b")]), StaleWriter)
    assert isinstance(offer(first, "r", 2, [granted("r", "b")]), StaleWriter)
    first_view = events_of(first, "r")
    assert first_view == [opened("r"), granted("r", "a")]
    assert not first.adopt("r"), "it is the owner already"
    assert second.adopt("r", force=True)
    assert first.adopt("r", force=True)
    record(first, "r", 2, granted("r", "b"))
    assert isinstance(offer(second, "r", 2, [granted("r", "c")]), StaleWriter)
    first.close()
    second.close()


def test_another_writer_that_went_further_is_believed(path: Path) -> None:
    first, second = SqliteJournal(path), SqliteJournal(path)
    record(first, "r", 0, opened("r"))
    record(second, "r", 1, granted("r", "a"), started("r", "a"))
    record(first, "r", 3, settled("r", "a"))
    record(second, "r", 4, ended("r"))
    assert len(events_of(first, "r")) == 5
    first.close()
    second.close()


def test_an_append_never_waits_for_the_file(journal: SqliteJournal, held: Held) -> None:
    began = time.monotonic()
    tickets = [
        journal.append(f"r{n}", 0, [opened(f"r{n}")], Durability.MACHINE) for n in range(1_000)
    ]
    assert time.monotonic() - began < 2.0, "the file is locked for as long as this test likes"
    decided: list[object] = []
    for ticket in tickets:
        assert ticket is not None
        ticket.then(decided.append)
    assert decided == []


def test_tickets_are_decided_in_the_order_of_the_queue(
    journal: SqliteJournal, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[object] = []
    hold = Held(path)
    tickets = [
        journal.append("r", n, [started("r", str(n))], Durability.PROCESS) for n in range(100)
    ]

    def broken(error: Exception | None) -> None:
        order.append("broken")
        raise RuntimeError("not the journal's fault")

    for n, ticket in enumerate(tickets):
        assert ticket is not None
        if n == 50:
            ticket.then(broken)
        ticket.then(lambda _, n=n: order.append(n))  # type: ignore[misc]
    hold.release()
    journal.flush()
    assert order == [*range(50), "broken", *range(50, 100)]
    assert "a callback of a journal ticket raised" in caplog.text


def test_above_high_water_a_buffered_append_returns_a_ticket(
    journal: SqliteJournal, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "HIGH_WATER", 20)
    monkeypatch.setattr(writer, "QUEUE_MAX", 30)
    tickets = [
        journal.append("r", n, [started("r", str(n))], Durability.BUFFERED) for n in range(31)
    ]
    assert [ticket is None for ticket in tickets] == [True] * 20 + [False] * 11
    with pytest.raises(JournalError, match="31 events wait to be written"):
        journal.append("r", 31, [started("r", "31")], Durability.BUFFERED)
    held.release()
    assert [result(ticket) for ticket in tickets] == [None] * 31
    assert len(events_of(journal, "r")) == 31


def levels_of_commits(journal: SqliteJournal) -> list[str]:
    """Notes, from here on, at which level each transaction is committed."""
    assert journal._writer is not None
    level, commits = ["NORMAL"], []

    def note(statement: str) -> None:
        if statement.startswith("PRAGMA synchronous"):
            level[0] = statement.rpartition(" ")[2]
        elif statement == "COMMIT":
            commits.append(level[0])

    journal._writer._recorder._connection.set_trace_callback(note)
    return commits


def test_only_a_group_that_must_survive_the_machine_is_flushed(journal: SqliteJournal) -> None:
    commits = levels_of_commits(journal)
    record(journal, "r", 0, opened("r"), durability=Durability.PROCESS)
    record(journal, "r", 1, granted("r", "a"), durability=Durability.MACHINE)
    record(journal, "r", 2, started("r", "a"), durability=Durability.MACHINE)
    record(journal, "r", 3, settled("r", "a"), durability=Durability.PROCESS)
    journal.append("r", 4, [ended("r")], Durability.BUFFERED)
    journal.flush()
    assert commits == ["NORMAL", "FULL", "FULL", "NORMAL", "NORMAL"]


def test_one_append_that_must_survive_the_machine_flushes_its_group(
    journal: SqliteJournal, path: Path
) -> None:
    record(journal, "r", 0, opened("r"))
    commits = levels_of_commits(journal)

    def appends() -> dict[str, Ticket | None]:
        return {
            str(n): journal.append(
                f"r{n}", 0, [opened("r")], Durability.MACHINE if n == 7 else Durability.PROCESS
            )
            for n in range(10)
        }

    assert set(group_behind(path, appends).values()) == {None}
    assert commits[-1] == "FULL"
    assert len(commits) <= 2


def test_what_is_queued_together_is_one_transaction(journal: SqliteJournal, path: Path) -> None:
    record(journal, "r", 0, opened("r"))
    commits = levels_of_commits(journal)

    def appends() -> dict[str, Ticket | None]:
        return {
            str(n): journal.append("r", 1 + n, [started("r", str(n))], Durability.PROCESS)
            for n in range(2_000)
        }

    assert set(group_behind(path, appends).values()) == {None}
    assert len(commits) <= 2
    assert len(events_of(journal, "r")) == 2_001


def test_a_large_result_lies_beside_the_journal(journal: SqliteJournal, path: Path) -> None:
    value = {"text": "é" * BLOB_CHARS}
    record(journal, "r", 0, opened("r"), settled("r", "a", value))
    record(journal, "r", 2, settled("r", "b", value), settled("r", "c", "small"))
    bodies = tables(path, "SELECT max(length(body)) FROM events")
    assert bodies[0][0] < 200  # type: ignore[operator]
    assert tables(path, "SELECT count(*) FROM blobs") == [(1,)], "the same text is kept once"
    assert events_of(journal, "r")[1:] == [
        settled("r", "a", value),
        settled("r", "b", value),
        settled("r", "c", "small"),
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [("UPDATE blobs SET data = '\"x\"'", "damaged"), ("DELETE FROM blobs", "missing")],
)
def test_a_large_result_that_was_tampered_with_is_noticed(
    journal: SqliteJournal, path: Path, change: str, problem: str
) -> None:
    record(journal, "r", 0, settled("r", "a", "x" * 2 * BLOB_CHARS))
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match=rf"runs\.db: the large result sha256:.* is {problem}"):
        events_of(journal, "r")


def test_the_file_itself_refuses_a_second_ending(journal: SqliteJournal, path: Path) -> None:
    """Law 3 one-ending, against a program that does not use this package."""
    record(journal, "r", 0, opened("r"), settled("r", "a"), ended("r"))
    connection = sqlite3.connect(path)
    insert = "INSERT INTO events (run, seq, at_s, kind, call, body) VALUES ('r', ?, 0, ?, ?, '{}')"
    for row in [(9, "call_settled", "a"), (9, "run_ended", None), (2, "call_started", "a")]:
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(insert, row)
    connection.close()


def test_the_runs_table_says_what_became_of_a_run(journal: SqliteJournal, path: Path) -> None:
    record(journal, "r", 0, opened("r", parent_call="p.1"))
    rows = tables(path, "SELECT run, parent_call, ended_at, outcome, owner FROM runs")
    assert rows == [("r", "p.1", None, None, journal._owner)]
    record(journal, "r", 1, ended("r"))
    rows = tables(path, "SELECT run, outcome, owner, ended_at >= opened_at FROM runs")
    assert rows == [("r", "succeeded", None, 1)]


def test_a_file_locked_for_too_long_fails_the_journal(path: Path) -> None:
    journal = SqliteJournal(path, busy_s=0.1)
    record(journal, "r", 0, opened("r"))
    hold = Held(path)
    try:
        error = offer(journal, "r", 1, [granted("r", "a")])
        assert isinstance(error, JournalError)
        assert "runs.db cannot be written any more: database is locked" in str(error)
        with pytest.raises(JournalError, match="database is locked"):
            journal.append("other", 0, [opened("other")], Durability.BUFFERED)
    finally:
        hold.release()
    assert events_of(journal, "r") == [opened("r")], "what was recorded can still be read"
    journal.close()


def test_close_tells_of_appends_that_no_ticket_could(path: Path) -> None:
    journal = SqliteJournal(path)
    record(journal, "r", 0, opened("r"))
    assert journal.append("r", 7, [granted("r", "a")], Durability.BUFFERED) is None
    with pytest.raises(StaleWriter, match="'r'"):
        journal.close()
    journal.close()


def test_close_does_not_tell_what_was_told_before(path: Path) -> None:
    journal = SqliteJournal(path)
    assert journal.append("r", 7, [granted("r", "a")], Durability.BUFFERED) is None
    journal.flush()
    with pytest.raises(StaleWriter):
        journal.append("r", 8, [granted("r", "a")], Durability.BUFFERED)
    journal.close()


def test_a_closed_journal_says_so(path: Path) -> None:
    journal = SqliteJournal(path)
    journal.append("r", 0, [opened("r")], Durability.BUFFERED)
    journal.close()
    with pytest.raises(JournalError, match=r"runs\.db is closed"):
        journal.append("r", 1, [ended("r")], Durability.PROCESS)
    for use in (
        journal.runs,
        journal.orphans,
        lambda: journal.read("r"),
        lambda: journal.adopt("r"),
    ):
        with pytest.raises(JournalError, match=r"runs\.db is closed"):
            use()
    assert tables(path, "SELECT kind FROM events") == [("run_opened",)]
    assert not path.with_name("runs.db-wal").exists(), "the log was folded back"


def test_a_journal_never_used_can_be_closed(path: Path) -> None:
    before = set(threading.enumerate())
    journal = SqliteJournal(path)
    assert set(threading.enumerate()) == before, "the writer starts with the first append"
    journal.close()


def test_a_forgotten_journal_is_written_and_its_thread_ends(path: Path) -> None:
    before = set(threading.enumerate())
    journal = SqliteJournal(path)
    journal.append("r", 0, [opened("r")], Durability.BUFFERED)
    assert set(threading.enumerate()) - before
    del journal
    gc.collect()
    assert set(threading.enumerate()) == before
    assert tables(path, "SELECT run, owner FROM runs") == [("r", None)]


def test_reading_while_another_thread_writes(journal: SqliteJournal) -> None:
    stop = threading.Event()
    problems: list[str] = []

    def look() -> None:
        seen = 0
        while not stop.is_set():
            numbers = [entry.seq for entry in journal.read("r")]
            if numbers != list(range(1, len(numbers) + 1)) or len(numbers) < seen:
                problems.append(f"{seen} then {numbers}")
            seen = len(numbers)

    reader = threading.Thread(target=look)
    reader.start()
    for n in range(300):
        journal.append("r", n, [started("r", str(n))], Durability(n % 2))
    journal.flush()
    stop.set()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    assert problems == []


def test_a_callback_that_would_wait_for_itself_is_told(journal: SqliteJournal) -> None:
    answers: list[Exception] = []

    def reads(_: Exception | None) -> None:
        try:
            list(journal.read("r"))
        except JournalError as error:
            answers.append(error)

    hold = Held(journal._path)
    ticket = journal.append("r", 0, [opened("r")], Durability.PROCESS)
    assert ticket is not None
    ticket.then(reads)
    hold.release()
    journal.flush()
    assert ["cannot wait for the writer" in str(error) for error in answers] == [True]


def test_a_writer_that_cannot_start_is_an_error_of_the_append(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(JournalError, match="its writer cannot be started"):
            journal.append("r", 0, [opened("r")], Durability.PROCESS)
    record(journal, "r", 0, opened("r"))
    assert events_of(journal, "r") == [opened("r")]
