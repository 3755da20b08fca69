"""Two servers on one SQLite journal: whichever is asked, the one that drives the task does it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Task
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from endstop import current
from endstop.a2a.stopping import end_by_force
from endstop.errors import StaleWriter
from endstop.tools.context import AsyncContext
from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    INPUT_REQUIRED,
    TERMINAL,
    WORKING,
    Executor,
    House,
    Work,
    ask,
    by,
    complete,
    everything,
    serving,
    sleep,
    words,
)

SOON_S = 0.25
"""How quickly what one server is asked must reach the other."""
BUSY_S = 1.0
"""What a busy machine may add to that."""


@asynccontextmanager
async def two(file: Path, executor: Executor) -> AsyncIterator[tuple[House, House]]:
    """Two servers of one agent on one journal."""
    journal = str(file / "tasks.db")
    async with (
        serving(executor, journal=journal) as first,
        serving(executor, journal=journal) as second,
    ):
        second.handler.tasks()
        yield first, second


async def quickest(attempt, tries: int = 3) -> float:  # type: ignore[no-untyped-def]
    """The shortest of a few attempts: a busy machine makes some of them long."""
    return min([await attempt() for _ in range(tries)])


def test_a_cancel_at_the_other_server_stops_a_silent_task(tmp_path: Path) -> None:
    stopped: list[float] = []

    async def silent(work: Work) -> None:
        await work.begin()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(time.monotonic())
            raise

    async def play() -> None:
        async with two(tmp_path, Executor(go=silent)) as (first, second):

            async def attempt() -> float:
                began = await first.begin("go")
                await first.until(began.id, WORKING)
                at = time.monotonic()
                task = await second.cancel(began.id)
                took_s = time.monotonic() - at
                assert task.status.state == CANCELED
                assert stopped[-1] - at < SOON_S + BUSY_S
                assert (await first.get(began.id)).status.state == CANCELED
                assert (await second.cancel(began.id)).status.state == CANCELED
                assert words(task) == words(await first.get(began.id))
                return took_s

            assert await quickest(attempt) < SOON_S

    asyncio.run(play())


def test_a_request_to_a_task_that_ends_before_it_is_taken_is_answered_soon(tmp_path: Path) -> None:
    """Whoever drove it looks after its requests no more (law 6 bounded-stop)."""

    async def play() -> None:
        async with two(tmp_path, Executor(book=ask)) as (first, second):
            errands = first.handler.tasks().runtime._errands
            took_s = []
            for word in ("cancel", "send"):
                task = await first.task("book")
                with errands._looking:
                    at = time.monotonic()
                    asking = asyncio.create_task(
                        second.cancel(task.id)
                        if word == "cancel"
                        else second.task("tuesday", task_id=task.id)
                    )
                    while not first.handler.tasks().runtime.engine.journal.requests(task.id):
                        await asyncio.sleep(0.005)
                    assert (await first.cancel(task.id)).status.state == CANCELED
                    if word == "send":
                        with pytest.raises(UnsupportedOperationError):
                            await asking
                    else:
                        assert (await asking).status.state == CANCELED
                    took_s.append(time.monotonic() - at)
            assert max(took_s) < 2 * SOON_S + BUSY_S

    asyncio.run(play())


def test_a_task_that_is_let_go_while_it_is_asked_for_is_found_with_whoever_has_it(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        executor = Executor(book=ask)
        journal = str(tmp_path / "tasks.db")
        async with (
            serving(executor, journal=journal, interrupted_task_timeout=0.05) as first,
            serving(executor, journal=journal) as second,
        ):
            tasks = first.handler.tasks()
            suspend = tasks.runtime.suspend
            asked: list[asyncio.Task[Task]] = []

            async def suspend_slowly(run_id: str) -> bool:
                asked.append(asyncio.create_task(first.get(run_id)))
                await asyncio.sleep(0)
                gone = await suspend(run_id)
                await second.handler.tasks().keeper.take_up(run_id)
                return gone

            tasks.runtime.suspend = suspend_slowly  # type: ignore[method-assign]
            task = await first.task("book")
            while not asked:
                await asyncio.sleep(0.01)
            assert (await asked[0]).status.state == INPUT_REQUIRED
            assert (await first.cancel(task.id)).status.state == CANCELED

    asyncio.run(play())


def test_many_requests_at_once_at_the_other_server_are_all_answered(tmp_path: Path) -> None:
    """Each finds the others trying whether the task is to be taken up there (law 6)."""

    async def play() -> None:
        async with two(tmp_path, Executor(go=sleep)) as (first, second):
            for _ in range(5):
                task = await first.begin("go")
                asked = [second.cancel(task.id) for _ in range(5)]
                asked += [second.get(task.id) for _ in range(5)]
                found = await asyncio.gather(*asked)
                assert [one.status.state for one in found[:5]] == [CANCELED] * 5
                assert {one.id for one in found} == {task.id}

    asyncio.run(play())


def test_a_message_at_the_other_server_reaches_the_one_that_drives(tmp_path: Path) -> None:
    executor = Executor(book=ask, tuesday=complete)

    async def play() -> None:
        async with two(tmp_path, executor) as (first, second):

            async def attempt() -> float:
                task = await first.task("book")
                at = time.monotonic()
                ended = await second.task("tuesday", task_id=task.id)
                took_s = time.monotonic() - at
                assert ended.status.state == COMPLETED
                assert ended.context_id == task.context_id
                assert [one.parts[0].text for one in ended.history][-1] == "tuesday"
                return took_s

            assert await quickest(attempt) < SOON_S

    asyncio.run(play())


def test_an_answer_at_the_other_server_reaches_the_body_that_asks(tmp_path: Path) -> None:
    async def paint(work: Work) -> None:
        await work.begin()
        ctx = current()
        assert isinstance(ctx, AsyncContext)
        await work.updater.complete(work.say(await ctx.ask("colour?", choices=["red", "blue"])))

    async def play() -> None:
        async with two(tmp_path, Executor(paint=paint)) as (first, second):
            task = await first.task("paint")
            assert task.status.state == INPUT_REQUIRED
            with pytest.raises(InvalidParamsError, match="'red', 'blue'"):
                await second.task("green", task_id=task.id)
            ended = await second.task("blue", task_id=task.id)
            assert (ended.status.state, words(ended)) == (COMPLETED, "blue")

    asyncio.run(play())


def test_a_subscription_at_the_other_server_sees_every_update(tmp_path: Path) -> None:
    async def steps(work: Work) -> None:
        await work.begin()
        for number in range(5):
            await asyncio.sleep(0.05)
            await work.updater.start_work(work.say(str(number)))
        await work.updater.complete()

    async def play() -> None:
        async with two(tmp_path, Executor(go=steps)) as (first, second):
            began = await first.begin("go")
            near = asyncio.create_task(everything(first.subscribe(began.id)))
            far = asyncio.create_task(everything(second.subscribe(began.id)))
            seen = [
                {one.metadata["endstop/seq"]: (one.status.state, words(one)) for one in updates[1:]}
                for updates in (await near, await far)
            ]
            assert list(seen[0].values())[-1][0] == COMPLETED
            both = seen[0].keys() & seen[1].keys()
            assert max(seen[0]) == max(seen[1])
            assert len(both) == min(len(seen[0]), len(seen[1]))
            assert all(seen[0][seq] == seen[1][seq] for seq in both), "one record, one reading"

    asyncio.run(play())


def test_the_other_server_lists_and_refuses_as_the_first_does(tmp_path: Path) -> None:
    async def play() -> None:
        executor = Executor(hello=complete, sleep=sleep)
        async with two(tmp_path, executor) as (first, second):
            done = await first.task("hello", who=by("anna"))
            open_ = await first.begin("sleep", who=by("anna"))
            listed = (await second.list(by("anna"))).tasks
            assert {one.id for one in listed} == {done.id, open_.id}
            assert not (await second.list(by("bert"))).tasks
            with pytest.raises(TaskNotFoundError):
                await second.get(open_.id, by("bert"))
            with pytest.raises(TaskNotFoundError):
                await second.cancel(open_.id, by("bert"))
            with pytest.raises(UnsupportedOperationError):
                await second.task("hello", task_id=done.id, who=by("anna"))
            assert (await second.get(done.id, by("anna"))).status.state == COMPLETED

    asyncio.run(play())


def test_what_both_say_of_a_race_is_one_thing(tmp_path: Path) -> None:
    """A cancel at one server around the completion at the other, again and again (law 3)."""

    async def short(work: Work) -> None:
        await work.begin()
        await asyncio.sleep(0.02)
        await work.updater.complete()

    async def play() -> None:
        async with two(tmp_path, Executor(go=short)) as (first, second):
            for number in range(20):
                began = await first.begin("go")
                await asyncio.sleep(number * 0.002)
                said: int | None = None
                with suppress(TaskNotCancelableError):
                    said = (await second.cancel(began.id)).status.state
                task = await first.until(began.id, *TERMINAL)
                assert task.status.state == (CANCELED if said else COMPLETED)
                assert (await second.get(began.id)).status.state == task.status.state

    asyncio.run(play())


@pytest.mark.parametrize("word", ["go", "book"])
def test_a_server_whose_task_was_taken_from_it_says_what_is_recorded(
    tmp_path: Path, word: str
) -> None:
    """One record, whoever is asked (law 3 one-ending): also of a server that was thought dead."""

    async def play() -> None:
        executor = Executor(go=sleep, book=ask)
        async with two(tmp_path, executor) as (first, second):
            task = await first.begin(word)
            await first.until(task.id, WORKING, INPUT_REQUIRED)
            watching = asyncio.create_task(everything(first.subscribe(task.id)))
            await asyncio.sleep(0)
            end_by_force(second.handler.tasks().runtime.engine.journal, task.id)
            assert (await second.get(task.id)).status.state == CANCELED
            seen = await watching
            assert seen[-1].status.state == CANCELED
            ended = await first.get(task.id)
            assert ended.status.state == CANCELED
            assert words(ended) == words(await second.get(task.id))
            assert [one.status.state for one in (await first.list()).tasks] == [CANCELED]
            assert (await first.cancel(task.id)).status.state == CANCELED
            assert not first.handler.tasks().hall.tasks

    asyncio.run(play())


def test_a_server_whose_task_was_taken_from_it_goes_down_in_peace(tmp_path: Path) -> None:
    """What it would have recorded last is in no record: that is the other one's."""

    async def play() -> None:
        async with serving(Executor(), journal=str(tmp_path / "tasks.db")) as house:
            runtime = house.handler.tasks().runtime
            close = runtime.close

            async def lose(*, suspend: bool = False) -> None:
                await close(suspend=suspend)
                raise StaleWriter("run 'r' stands at 14 events: another driver wrote to it first")

            runtime.close = lose  # type: ignore[method-assign]

    asyncio.run(play())
