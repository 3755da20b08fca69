"""Tasks that wait for their user are put away, and come back with the next message."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Part, Task

from endstop.a2a.limits import TaskLimits
from endstop.store.memory import MemoryJournal
from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    Executor,
    House,
    Work,
    ask,
    by,
    complete,
    everything,
    serving,
)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


async def parked(house: House) -> None:
    """Wait until nothing is kept in memory."""
    tasks = house.handler.tasks()
    while tasks.hall.tasks or tasks.runtime.engine.state.runs:
        await asyncio.sleep(0.01)


def test_a_parked_task_is_out_of_memory_and_comes_back(journal: str | None) -> None:
    executor = Executor(book=ask, tuesday=complete)

    async def play() -> None:
        async with serving(executor, journal=journal, interrupted_task_timeout=0.05) as house:
            ids = [(await house.task("book")).id for _ in range(20)]
            await asyncio.wait_for(parked(house), 10)
            gc.collect()
            assert (await house.get(ids[0])).status.state == INPUT_REQUIRED
            assert (await house.list(page_size=100)).total_size == 20
            ended = await house.task("tuesday", task_id=ids[0])
            assert ended.status.state == COMPLETED
            said = [one.parts[0].text for one in ended.history]
            assert said == ["book", "which one?", "tuesday"]
            assert (await house.cancel(ids[1])).status.state == CANCELED
            assert (await house.get(ids[1])).status.state == CANCELED

    asyncio.run(play())


def test_whoever_watches_a_parked_task_sees_it_go_on(journal: str | None) -> None:
    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        async with serving(executor, journal=journal, interrupted_task_timeout=0.05) as house:
            task = await house.task("book")
            await asyncio.wait_for(parked(house), 10)
            watching = asyncio.create_task(everything(house.subscribe(task.id)))
            await asyncio.sleep(0.05)
            await house.task("tuesday", task_id=task.id)
            seen = await watching
            assert seen[0].status.state == INPUT_REQUIRED
            assert seen[-1].status.state == COMPLETED
            numbers = [one.metadata["endstop/seq"] for one in seen]
            assert numbers == sorted(set(numbers)), "none twice, none out of order"

    asyncio.run(play())


def test_what_is_told_after_it_was_read_counts_once(journal: str | None) -> None:
    """Somebody else shows the events just then, and is slow: the record is ahead of the observer.

    One reading of the record, whoever reads (law 15 record-first).
    """

    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        async with serving(executor, journal=journal, interrupted_task_timeout=0.05) as house:
            tasks = house.handler.tasks()
            engine = tasks.runtime.engine
            task = await house.task("book")
            await asyncio.wait_for(parked(house), 10)
            showing = engine.audience._showing
            with showing:
                live = await tasks.keeper.take_up(task.id)
                seq = len(list(engine.journal.read(task.id)))
                assert live.view.seq == seq
                assert engine.audience._line, "something is still to be shown"
            ended = await house.task("tuesday", task_id=task.id)
            assert ended.status.state == COMPLETED
            last = len(list(engine.journal.read(task.id)))
            assert live.view.seq == last > seq
            assert ended.metadata["endstop/seq"] == last

    asyncio.run(play())


def test_the_bound_of_a_task_stands_however_often_it_is_put_away(journal: str | None) -> None:
    """Law 18: what was added counts, whether its server was there all the time or not."""

    async def add(work: Work) -> None:
        await work.updater.add_artifact(
            [Part(text="x" * 10_000)],
            artifact_id="a",
            append=work.text != "add 0",
            metadata={"n": 1},
        )
        await work.updater.requires_input(
            work.say(f"{work.text} is in"),
        )

    async def grow(house: House, *, park: bool) -> tuple[int, int]:
        """How often something could be added, and how large what was added then is."""
        task = await house.task("add 0")
        count = 1
        while task.status.state == INPUT_REQUIRED:
            size = house.handler.tasks().hall.tasks[task.id].bytes
            if park:
                await asyncio.wait_for(parked(house), 10)
            task = await house.task(f"add {count}", task_id=task.id)
            count += 1
            assert count < 10, "it is never full"
        assert task.status.state == FAILED
        return count, size

    async def play() -> None:
        limits = TaskLimits(task_bytes=45_000)
        terms: dict[str, Any] = {"journal": journal, "limits": limits}
        async with serving(Executor(add=add), **terms) as house:
            stayed = await grow(house, park=False)
        async with serving(Executor(add=add), interrupted_task_timeout=0.05, **terms) as house:
            put_away = await grow(house, park=True)
        assert put_away[0] == stayed[0] == 5
        # The executor's own times are not recorded.
        assert stayed[1] * 0.99 < put_away[1] <= stayed[1]

    asyncio.run(play())


def test_what_a_handler_leaves_another_one_takes_up() -> None:
    journal = MemoryJournal()

    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        async with serving(executor, journal=journal) as house:
            task = await house.task("book")
        async with serving(executor, journal=journal) as house:
            assert (await house.get(task.id)).status.state == INPUT_REQUIRED
            assert (await house.task("tuesday", task_id=task.id)).status.state == COMPLETED

    asyncio.run(play())


def test_a_client_that_leaves_while_its_task_is_taken_up_changes_nothing(tmp_path: Path) -> None:
    """Law 18 audience-free."""

    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        journal = str(tmp_path / "tasks.db")
        async with serving(executor, journal=journal, interrupted_task_timeout=0.05) as house:
            tasks = house.handler.tasks()
            journal_read, left = tasks.runtime.engine.journal.read, False

            def read(*where: Any) -> Any:
                # Its client leaves when the run is driven here, and nobody knows its task yet.
                nonlocal left
                if tasks.runtime.engine.state.runs and not left:
                    left = True
                    loop.call_soon_threadsafe(leaving.cancel)
                return journal_read(*where)

            loop = asyncio.get_running_loop()
            task = await house.task("book")
            await asyncio.wait_for(parked(house), 10)
            tasks.runtime.engine.journal.read = read  # type: ignore[method-assign]
            leaving = asyncio.create_task(house.task("tuesday", task_id=task.id))
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert left
            ended = await house.task("tuesday", task_id=task.id)
            assert ended.status.state == COMPLETED

    asyncio.run(play())


@pytest.mark.parametrize("streamed", [True, False])
def test_a_message_whose_push_config_takes_long_reaches_its_task(
    journal: str | None, streamed: bool
) -> None:
    """It was put away meanwhile."""

    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        async with serving(executor, journal=journal, interrupted_task_timeout=0.05) as house:
            keep = house.handler._keep_config

            async def keep_slowly(*arguments: Any) -> None:
                await keep(*arguments)
                await asyncio.wait_for(parked(house), 10)

            house.handler._keep_config = keep_slowly  # type: ignore[method-assign]
            task = await house.task("book")
            request = house.request("tuesday", task_id=task.id)
            url = "http://8.8.8.8:9/never"
            request.configuration.task_push_notification_config.url = url
            if streamed:
                stream = house.handler.on_message_send_stream(request, by())
                assert (await everything(stream))[-1].status.state == COMPLETED
            else:
                sent = house.handler.on_message_send(request, by())
                ended = await asyncio.wait_for(sent, 10)
                assert isinstance(ended, Task)
                assert ended.status.state == COMPLETED

    asyncio.run(play())


def test_a_task_that_is_just_taken_up_is_listed_as_it_stands(journal: str | None) -> None:
    async def play() -> None:
        executor = Executor(book=ask, tuesday=complete)
        async with serving(executor, journal=journal, interrupted_task_timeout=0.05) as house:
            tasks = house.handler.tasks()
            task = await house.task("book")
            await asyncio.wait_for(parked(house), 10)
            resume, taking, go_on = tasks.resume, asyncio.Event(), asyncio.Event()

            async def resume_slowly(task_id: str) -> Any:
                taking.set()
                await go_on.wait()
                return await resume(task_id)

            tasks.resume = resume_slowly  # type: ignore[method-assign]
            sent = asyncio.create_task(house.task("tuesday", task_id=task.id))
            await taking.wait()
            (listed,) = (await house.list()).tasks
            assert listed.status.state == INPUT_REQUIRED
            assert (await house.list(status=INPUT_REQUIRED)).total_size == 1
            go_on.set()
            assert (await sent).status.state == COMPLETED

    asyncio.run(play())
