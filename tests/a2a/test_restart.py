"""A server is killed, another one comes: every task goes on or ends honestly (law 16)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from a2a.utils.errors import TaskNotCancelableError

from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Executor,
    Work,
    ask,
    complete,
    everything,
    serving,
    words,
)
from tests.support import ROOT


@contextmanager
def killed_server(folder: Path, *how: str) -> Iterator[dict[str, str]]:
    """A server on a journal that is dead by now, and the tasks that it left."""
    with a_server(folder, *how) as (program, left):
        os.kill(program.pid, signal.SIGKILL)
        program.wait(10)
        yield left


@contextmanager
def a_server(folder: Path, *how: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A server on a journal, and the tasks that it works on."""
    program = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.a2a.left_behind",
            folder / "tasks.db",
            folder / "effects",
            *how,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
    )
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line, "it said nothing"
        yield program, json.loads(line)
    finally:
        program.kill()
        program.wait(10)
        assert program.stdout is not None
        program.stdout.close()


def test_after_a_kill_nothing_stays_working_and_nothing_runs_twice(tmp_path: Path) -> None:
    executor = Executor(work=complete, ask=ask, tuesday=complete)

    async def play(left: dict[str, str]) -> None:
        effects = (tmp_path / "effects").stat().st_size
        async with serving(executor, journal=str(tmp_path / "tasks.db")) as house:
            taken = await house.handler.recover()
            assert set(taken) == {left["working"], left["queued"]}
            for name in ("working", "queued"):
                task = await house.until(left[name], FAILED)
                assert "server that ran it was lost" in words(task), "law 5 honest-effect"
                assert "may have happened" in words(task)
                assert (await house.get(left[name])).status.state == FAILED
                with pytest.raises(TaskNotCancelableError):
                    await house.cancel(left[name])
            assert (await house.get(left["asking"])).status.state == INPUT_REQUIRED
            assert executor.executions == [], "law 10 no-blind-retry"
            ended = await house.task("tuesday", task_id=left["asking"])
            assert ended.status.state == COMPLETED
        assert (tmp_path / "effects").stat().st_size == effects

    with killed_server(tmp_path) as left:
        asyncio.run(play(left))


def test_a_cancel_after_a_kill_ends_what_waits(tmp_path: Path) -> None:
    async def play(left: dict[str, str]) -> None:
        async with serving(Executor(), journal=str(tmp_path / "tasks.db")) as house:
            task = await house.cancel(left["asking"])
            assert task.status.state == CANCELED
            assert (await house.get(left["asking"])).status.state == CANCELED

    with killed_server(tmp_path) as left:
        asyncio.run(play(left))


def test_what_may_run_again_does_where_the_server_says_so(tmp_path: Path) -> None:
    """Law 10 no-blind-retry: only an executor that is declared idempotent is asked once more."""

    async def play(left: dict[str, str]) -> None:
        executor = Executor(work=complete)
        async with serving(executor, journal=str(tmp_path / "tasks.db"), idempotent=True) as house:
            task = await house.until(left["working"], FAILED, COMPLETED)
            assert (task.status.state, words(task)) == (COMPLETED, "done")
            assert (await house.until(left["queued"], FAILED, COMPLETED)).status.state == COMPLETED

    with killed_server(tmp_path, "again") as left:
        asyncio.run(play(left))


def test_a_cancel_does_not_wait_for_a_server_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 3 one-ending: what it would still write when it goes on is refused."""
    monkeypatch.setattr("endstop.a2a.elsewhere.ANSWER_S", 0.5)

    async def play(left: dict[str, str], pid: int) -> None:
        async with serving(Executor(), journal=str(tmp_path / "tasks.db")) as house:
            assert (await house.get(left["working"])).status.state == WORKING
            task = await house.cancel(left["working"])
            assert task.status.state == CANCELED
            assert "is unknown: the agent" in words(task), "law 5 honest-effect"
            os.kill(pid, signal.SIGCONT)
            # The other task that writes to the file; its server answers again.
            assert (await house.cancel(left["queued"])).status.state == CANCELED
            # It stops what it still runs, and can say nothing more of it.
            size, since = -1, time.monotonic()
            while (now := (tmp_path / "effects").stat().st_size) != size:
                assert time.monotonic() - since < 15, "it goes on for ever"
                size = now
                await asyncio.sleep(1.0)
            assert (await house.get(left["working"])).status.state == CANCELED

    with a_server(tmp_path) as (program, left):
        os.kill(program.pid, signal.SIGSTOP)
        asyncio.run(play(left, program.pid))


def test_a_server_that_lives_ends_what_another_one_left(tmp_path: Path) -> None:
    """No restart is needed: whoever is there takes it up, and who watches sees the end."""

    async def play() -> None:
        async with serving(Executor(), journal=str(tmp_path / "tasks.db")) as house:
            await house.handler.recover()
            with killed_server(tmp_path) as left:
                at = time.monotonic()
                watching = asyncio.create_task(everything(house.subscribe(left["working"])))
                task = await house.until(left["working"], FAILED)
                assert time.monotonic() - at < 10
                assert "lost" in words(task)
                seen = await watching
                assert seen[-1].status.state == FAILED

    asyncio.run(play())


def test_what_waits_at_a_shutdown_goes_on_afterwards(tmp_path: Path) -> None:
    journal = str(tmp_path / "tasks.db")

    async def first(work: Work) -> None:
        await work.begin()
        await asyncio.sleep(0.05)
        await work.updater.requires_input()

    async def play() -> None:
        executor = Executor(first=first, second=complete)
        async with serving(executor, journal=journal) as house:
            task = await house.task("first")
        async with serving(executor, journal=journal) as house:
            assert (await house.get(task.id)).status.state == INPUT_REQUIRED
            ended = await house.task("second", task_id=task.id)
            assert ended.status.state == COMPLETED

    asyncio.run(play())


def test_a_task_whose_record_is_broken_keeps_no_other_from_its_ending(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"

    async def play(left: dict[str, str]) -> None:
        async with serving(Executor(), journal=str(file)) as house:
            other = "working" if broken == "queued" else "queued"
            assert await house.handler.recover() == [left[other]]
            await house.until(left[other], FAILED)
            for wanted in ({}, {"status": FAILED}):
                listed = {one.id for one in (await house.list(**wanted)).tasks}
                assert left[other] in listed
                assert left[broken] not in listed, "it is left out, and the others are not"

    for broken in ("queued", "working"):
        file.unlink(missing_ok=True)
        with killed_server(tmp_path) as left:
            with closing(sqlite3.connect(file)) as connection, connection:
                spoil = "UPDATE events SET body = '{' WHERE run = ? AND seq = 2"
                assert connection.execute(spoil, (left[broken],)).rowcount == 1
            asyncio.run(play(left))
