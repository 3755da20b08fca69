"""Following tasks that are not driven here costs nothing while nothing is recorded of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from endstop.a2a import following
from endstop.a2a.following import Follower
from endstop.a2a.limits import TaskLimits
from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask
from endstop.core import events as e
from endstop.errors import JournalError
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability, Journal
from endstop.store.sqlite import SqliteJournal
from tests.a2a.serving import (
    COMPLETED,
    INPUT_REQUIRED,
    Executor,
    ask,
    complete,
    everything,
    serving,
)

MANY = 50
LOOKS = 5
"""So many looks a thread has time for, before it is asked what it did."""


class Counted:
    """A journal that counts what is asked of it."""

    def __init__(self, journal: Any) -> None:
        self.read_runs: list[str] = []
        self.looks = 0
        self.asked = 0
        self.looked = threading.Condition()
        self._journal = journal
        read, growth = journal.read, journal.growth

        def count(run: str, after_seq: int = 0) -> Any:
            self.read_runs.append(run)
            return read(run, after_seq)

        def counted(told: Callable[[], object]) -> Any:
            found = growth(told)
            changed, grown = found.changed, found.grown

            def look() -> bool:
                with self.looked:
                    self.looks += 1
                    self.looked.notify_all()
                return bool(changed())

            def which(after: Any) -> Any:
                self.asked += 1
                return grown(after)

            found.changed, found.grown = look, which
            return found

        journal.read, journal.growth = count, counted

    def rest(self, looks: int = LOOKS) -> None:
        """Wait for some more looks."""
        with self.looked:
            due = self.looks + looks
            assert self.looked.wait_for(lambda: self.looks >= due, 10)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "tasks.db")
    yield journal
    journal.close()


def record(journal: Journal, run: str, seq: int = 0) -> None:
    """One more event of a task."""
    labels = {"owner": "", "agent": "tester", "context": "c"}
    note = e.Noted(run=run, kind="a2a.metadata", body={"seq": seq + 1})
    event = note if seq else e.RunOpened(run=run, labels=labels)
    journal.append(run, seq, [event], Durability.PROCESS)
    list(journal.read(run))


@contextmanager
def followed(journal: Any, number: int) -> Iterator[tuple[Follower, list[LiveTask]]]:
    """So many tasks, each followed from its beginning."""
    limits = TaskLimits()
    hall = Hall(asyncio.new_event_loop(), limits, "tester")
    follower = Follower(journal, hall)
    tasks = []
    for one in range(number):
        record(journal, f"t{one}")
        task = LiveTask(f"t{one}", limits)
        task.remote = True
        tasks.append(follower.follow(task))
    try:
        yield follower, tasks
    finally:
        thread = follower._thread
        follower.close()
        if thread is not None:
            thread.join(5)
        hall._loop.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    pause = threading.Event()
    for _ in range(2_000):
        if holds():
            return
        pause.wait(0.005)
    raise AssertionError("it does not come")


def test_one_cheap_look_serves_everybody_while_nothing_is_recorded(file: SqliteJournal) -> None:
    counted = Counted(file)
    with followed(file, MANY) as (_, tasks):
        until(lambda: all(task.view.seq == 1 for task in tasks))
        counted.rest(2)
        counted.read_runs.clear()
        counted.asked = 0
        counted.rest()
        assert (counted.read_runs, counted.asked) == ([], 0)


def test_only_what_has_grown_is_read(file: SqliteJournal, tmp_path: Path) -> None:
    counted = Counted(file)
    other = SqliteJournal(tmp_path / "tasks.db")
    with followed(file, MANY) as (_, tasks):
        until(lambda: all(task.view.seq == 1 for task in tasks))
        counted.rest(2)
        counted.read_runs.clear()
        record(other, "t7", 1)
        until(lambda: tasks[7].view.metadata == {"seq": 2})
        counted.rest()
        assert set(counted.read_runs) == {"t7"}
        record(other, "of nobody here")
        counted.rest()
        assert set(counted.read_runs) == {"t7"}
    other.close()


def test_a_journal_in_memory_is_not_looked_at() -> None:
    journal = MemoryJournal()
    counted = Counted(journal)
    with followed(journal, MANY) as (_, tasks):
        until(lambda: all(task.view.seq == 1 for task in tasks))
        looks = counted.looks
        threading.Event().wait(LOOKS * following.LOOK_S)
        assert counted.looks - looks <= 1
        counted.read_runs.clear()
        record(journal, "t3", 1)
        until(lambda: tasks[3].view.metadata == {"seq": 2})
        # Once by the one who follows, once by this test.
        assert counted.read_runs == ["t3"] * 2
    assert not journal._growths


def test_what_was_recorded_before_it_was_followed_is_seen(file: SqliteJournal) -> None:
    """The file does not change again: what a look for others has seen is still to be read."""
    counted = Counted(file)
    with followed(file, 1) as (follower, _):
        record(file, "late")
        counted.rest(2)
        task = LiveTask("late", TaskLimits())
        task.remote = True
        follower.follow(task)
        until(lambda: task.view.seq == 1)


def test_a_task_that_cannot_be_read_holds_up_no_other(
    file: SqliteJournal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AGAIN_S", 0.05)
    read, broken = file.read, True

    def fail(run: str, after_seq: int = 0) -> Any:
        if broken and run == "t0" and threading.current_thread().name == "endstop-a2a-follow":
            raise JournalError("it is damaged")
        return read(run, after_seq)

    file.read = fail  # type: ignore[method-assign]
    counted = Counted(file)
    with followed(file, 3) as (_, tasks):
        until(lambda: [task.view.seq for task in tasks] == [0, 1, 1])
        counted.rest()
        assert [one.getMessage() for one in caplog.records] == [
            "tasks cannot be followed: it is damaged"
        ], "said once"
        record(file, "t2", 1)
        until(lambda: tasks[2].view.seq == 2)
        broken = False
        until(lambda: tasks[0].view.seq == 1)


def test_nothing_is_left_when_nobody_looks(
    file: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "UNUSED_S", 0.1)
    with followed(file, 2) as (follower, tasks):
        stream = follower._hall.subscribe(tasks[0], None)
        until(lambda: follower.known("t1") is None)
        assert follower.known("t0") is tasks[0]
        follower._hall.leave(tasks[0], stream)
        until(lambda: follower._thread is None)
        assert follower.follow(tasks[0]) is tasks[0]
        assert follower._thread is not None, "it begins again"


def test_handlers_on_one_journal_in_memory_see_each_others_tasks() -> None:
    journal = MemoryJournal()

    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        async with (
            serving(executor, journal=journal) as first,
            serving(executor, journal=journal) as second,
        ):
            task = await first.task("book")
            assert (await second.get(task.id)).status.state == INPUT_REQUIRED
            watching = asyncio.create_task(everything(second.subscribe(task.id)))
            await asyncio.sleep(0)
            await first.task("tuesday", task_id=task.id)
            assert (await watching)[-1].status.state == COMPLETED

    asyncio.run(play())
