"""The inbox of a journal: posted, taken once, answered once, and rung for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from endstop.core.events import RunClosing, RunInterrupted
from endstop.core.terms import Outcome
from endstop.errors import JournalError, NotFound, StaleWriter
from endstop.store.bell import LETTERS_MAX, Bell, ring, send
from endstop.store.protocol import Recorded
from endstop.store.sqlite import SqliteJournal
from tests.store.helpers import WAIT_S, ended, events_of, offer, opened, output, python, record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def driver(path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(path)
    record(journal, "r", 0, opened("r"))
    yield journal
    journal.close()


@pytest.fixture
def other(driver: SqliteJournal, path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(path)
    yield journal
    journal.close()


def test_a_request_is_taken_once_and_answered_once(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    asked = other.inbox().post("r", "r/0.1", "cancel", {"mode": "kill"}, "ann")
    assert asked is not None
    assert other.inbox().take() == [], "only who drives the run takes it"
    (request,) = driver.inbox().take()
    assert (request.id, request.run, request.target) == (asked, "r", "r/0.1")
    assert (request.kind, request.body, request.by) == ("cancel", {"mode": "kill"}, "ann")
    assert driver.inbox().take() == []
    assert other.inbox().answered(asked) is None
    assert driver.inbox().answer(asked, {"won": True})
    assert not driver.inbox().answer(asked, {"won": False})
    assert other.inbox().wait(asked, WAIT_S) == {"won": True}


def test_requests_come_in_the_order_of_asking(driver: SqliteJournal, other: SqliteJournal) -> None:
    asked = [other.inbox().post("r", f"r/0.{n}", "answer", {}, "") for n in (2, 1, 3)]
    assert [request.id for request in driver.inbox().take()] == asked


def test_an_unknown_run_is_named_and_an_ended_one_is_over(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    with pytest.raises(NotFound, match="holds no run 'x'"):
        other.inbox().post("x", "x", "cancel", {}, "")
    record(driver, "r", 1, ended("r"))
    assert other.inbox().post("r", "r", "cancel", {}, "") is None


def test_what_a_driver_took_and_did_not_answer_goes_to_the_next_one(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    asked = other.inbox().post("r", "r/0.0", "answer", {}, "")
    assert [request.id for request in driver.inbox().take()] == [asked]
    driver.close()
    assert other.adopt("r")
    assert [request.id for request in other.inbox().take()] == [asked]


def test_the_driver_is_woken_by_a_request_and_the_asker_by_its_answer(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    bell = driver.inbox().bell()
    assert bell.heard
    assert not bell.wait(0)
    asked = other.inbox().post("r", "r", "cancel", {}, "")
    assert asked is not None
    assert bell.wait(WAIT_S)
    assert not bell.wait(0), "many rings are one"
    driver.inbox().answer(asked, {})
    assert other.inbox().bell().wait(WAIT_S)


def test_a_change_of_the_file_is_seen_without_a_bell(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    inbox = driver.inbox()
    inbox.changed()
    assert not inbox.changed()
    other.inbox().post("r", "r", "cancel", {}, "")
    assert inbox.changed()
    assert not inbox.changed()


def test_a_bell_works_in_a_folder_deeper_than_a_socket_name(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    bell = Bell(folder / "runs.db", "host:boot:1:2:3")
    assert bell.heard
    assert ring(folder / "runs.db", "host:boot:1:2:3")
    assert bell.wait(WAIT_S)
    bell.close()
    assert list(folder.iterdir()) == []
    assert not ring(folder / "runs.db", "host:boot:1:2:3")


def test_two_names_of_one_file_have_one_bell(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    bell = Bell(tmp_path / "real" / "runs.db", "host:boot:1:2:3")
    assert ring(tmp_path / "link" / "runs.db", "host:boot:1:2:3")
    bell.close()


def test_the_bell_of_a_killed_process_is_swept_away_and_a_living_one_stays(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from endstop.store.bell import Bell
from endstop.store.owner import this_owner
Bell(Path(sys.argv[1]), str(this_owner()))
os._exit(0)
"""
    path = tmp_path / "runs.db"
    output(python(script, path))
    assert len(list(tmp_path.glob("*.bell"))) == 1
    bells = [Bell(path, f"host:boot:{os.getpid()}:1:{number}") for number in (1, 2)]
    left = {entry.name.partition("-")[2].partition("-")[0] for entry in tmp_path.glob("*.bell")}
    assert left == {str(os.getpid())}
    assert len(list(tmp_path.glob("*.bell"))) == 2
    for bell in bells:
        bell.close()


def interrupt(recorded: list[Recorded]) -> list[RunInterrupted]:
    return [RunInterrupted(run=recorded[0].run)]


def test_a_run_taken_by_force_refuses_its_old_driver_at_once(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    bell = driver.inbox().bell()
    assert driver.inbox().lost(lambda: ["r", "new"]) == []
    assert other.take_over("r", interrupt) is None, "its driver lives"
    assert other.take_over("r", interrupt, force=True) == [RunInterrupted(run="r")]
    assert bell.wait(WAIT_S), "the old driver hears of it"
    assert driver.inbox().lost(lambda: ["r", "new"]) == ["r"], (
        "what is not recorded yet is still its own"
    )
    assert driver.inbox().lost(lambda: ["r", "new"]) == [], "nothing new"
    error = offer(driver, "r", 1, [RunClosing(run="r")])
    assert isinstance(error, StaleWriter)
    record(other, "r", 2, ended("r"))
    assert events_of(driver, "r") == [opened("r"), RunInterrupted(run="r"), ended("r")]


def test_a_run_ended_by_force_is_driven_by_nobody(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    assert other.take_over("r", lambda _: [ended("r")], force=True) == [ended("r")]
    (row,) = other.describe()
    assert (row.owner, row.outcome) == (None, Outcome.SUCCEEDED)
    assert other.take_over("r", interrupt, force=True) is None, "it is over"
    with pytest.raises(NotFound):
        other.take_over("x", interrupt)


def test_one_of_many_takes_a_run_that_its_driver_left(driver: SqliteJournal, path: Path) -> None:
    driver.close()
    journals = [SqliteJournal(path) for _ in range(4)]
    took: list[int] = []
    together = threading.Barrier(len(journals))

    def take(number: int) -> None:
        together.wait(WAIT_S)
        if journals[number].take_over("r", interrupt) is not None:
            took.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(len(journals))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(took) == 1
    assert events_of(journals[0], "r") == [opened("r"), RunInterrupted(run="r")]
    for journal in journals:
        journal.close()


def test_a_failed_decision_takes_nothing(driver: SqliteJournal, other: SqliteJournal) -> None:
    def fails(recorded: list[Recorded]) -> list[RunInterrupted]:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError, match="no idea"):
        other.take_over("r", fails, force=True)
    record(driver, "r", 1, RunClosing(run="r"))


def test_waiting_ends_in_time_and_a_closed_journal_says_so(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    asked = other.inbox().post("r", "r", "cancel", {}, "")
    assert asked is not None
    began = monotonic()
    assert other.inbox().wait(asked, 0.2) is None
    assert monotonic() - began >= 0.2
    other.close()
    with pytest.raises(JournalError, match="is closed"):
        other.inbox()


def test_a_secret_comes_by_letter_and_is_in_no_file(
    driver: SqliteJournal, other: SqliteJournal, path: Path
) -> None:
    driver.inbox().bell()
    asked = other.inbox().post("r", "r/0.0", "tell", {}, "ann", secret="tell nobody")
    assert asked is not None
    (request,) = driver.inbox().take()
    name = request.body["letter"]
    assert driver.inbox().bell().letter(name) == "tell nobody"
    assert driver.inbox().bell().letter(name) is None, "handed out once"
    for file in path.parent.glob("runs.db*"):
        assert b"tell nobody" not in file.read_bytes()


def test_a_secret_that_cannot_be_brought_posts_nothing(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    for secret in ("nobody listens", "x" * 10_000):
        with pytest.raises(JournalError, match="a secret cannot be brought to the driver"):
            other.inbox().post("r", "r/0.0", "tell", {}, "ann", secret=secret)
        driver.inbox().bell()
    assert driver.inbox().take() == []


def test_letters_that_nobody_asks_for_do_not_pile_up(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "runs.db", "host:boot:1:2:3")
    names = []
    for number in range(LETTERS_MAX + 1):
        names.append(send(tmp_path / "runs.db", "host:boot:1:2:3", f"letter {number}"))
        bell.wait(0)
    assert None not in names
    assert bell.letter(str(names[0])) is None
    assert bell.letter(str(names[-1])) == f"letter {LETTERS_MAX}"
    bell.close()


def test_what_a_driver_has_taken_is_not_called_back(
    driver: SqliteJournal, other: SqliteJournal
) -> None:
    asked = [other.inbox().post("r", "r/0.0", "answer", {}, "") for _ in range(2)]
    assert asked[0] is not None
    assert asked[1] is not None
    assert other.inbox().withdraw(asked[0])
    assert not other.inbox().withdraw(asked[0]), "once"
    assert [request.id for request in driver.inbox().take()] == [asked[1]]
    assert not other.inbox().withdraw(asked[1])
    assert driver.inbox().answer(asked[1], {})
    assert not driver.inbox().answer(asked[0], {})
