"""Streams and subscriptions: every update once and in order, whoever reads how (law 18)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError

from endstop.a2a import TaskLimits
from endstop.a2a.streams import FellBehind
from endstop.errors import JournalError
from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    Executor,
    Work,
    ask,
    by,
    complete,
    everything,
    serving,
    sleep,
)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


def numbers(updates: list[object]) -> list[float]:
    return [one.metadata["endstop/seq"] for one in updates]  # type: ignore[attr-defined]


def test_a_stream_shows_the_task_then_every_update(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(go=complete), journal=journal) as house:
            seen = await everything(house.stream("go"))
            kinds = [type(one) for one in seen]
            assert kinds == [
                Task,
                TaskStatusUpdateEvent,
                TaskArtifactUpdateEvent,
                TaskStatusUpdateEvent,
            ]
            assert [one.status.state for one in (seen[1], seen[3])] == [WORKING, COMPLETED]
            assert numbers(seen) == sorted(set(numbers(seen)))
            task = await house.get(seen[0].id)
            assert task.metadata["endstop/seq"] == numbers(seen)[-1]

    asyncio.run(play())


def test_a_stream_ends_where_the_user_is_asked(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(book=ask), journal=journal) as house:
            seen = await everything(house.stream("book"))
            assert seen[-1].status.state == INPUT_REQUIRED

    asyncio.run(play())


def test_a_silent_task_is_shown_before_its_first_event() -> None:
    async def silent(work: Work) -> None:
        await asyncio.sleep(60)

    async def play() -> None:
        limits = TaskLimits(first_event_s=0.1)
        async with serving(Executor(go=silent), limits=limits) as house:
            stream = house.stream("go")
            at = time.monotonic()
            first = await anext(stream)
            assert time.monotonic() - at < 2.0
            assert isinstance(first, Task)
            assert first.status.state == WORKING
            await house.cancel(first.id)
            await everything(stream)

    asyncio.run(play())


def test_readers_that_come_and_go_change_nothing_and_see_the_same() -> None:
    async def steps(work: Work) -> None:
        await work.begin()
        for number in range(200):
            await work.updater.add_artifact([Part(text=str(number))], artifact_id=f"a{number}")
            await asyncio.sleep(0.001)
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(go=steps)) as house:
            began = await house.begin("go")
            readers = []
            for number in range(12):
                readers.append(asyncio.create_task(everything(house.subscribe(began.id))))
                await asyncio.sleep(0.005)
                if number % 3 == 2:
                    readers.pop().cancel()
            for seen in await asyncio.gather(*readers):
                assert isinstance(seen[0], Task)
                found = numbers(seen)
                first = seen[0].metadata["endstop/seq"]
                updates = [one for one in seen if isinstance(one, TaskArtifactUpdateEvent)]
                names = [one.artifact.artifact_id for one in updates]
                # What the snapshot has and what follows are the whole, none twice, none left out.
                whole = [one.artifact_id for one in seen[0].artifacts] + names
                assert whole == [f"a{number}" for number in range(200)], found[0]
                assert all(seq > first for seq in found[1:])
                assert seen[-1].status.state == COMPLETED
            assert not house.handler.tasks().hall.tasks

    asyncio.run(play())


def test_a_reader_that_does_not_keep_up_is_told_and_may_come_again() -> None:
    watched: list[bool] = []
    enough: list[bool] = []

    async def pour(work: Work) -> None:
        await work.begin()
        while not watched:
            await asyncio.sleep(0.01)
        for number in range(300):
            await work.updater.add_artifact([Part(text="x" * 100)], artifact_id=f"a{number}")
        while not enough:
            await asyncio.sleep(0.01)
        await work.updater.complete()

    async def play() -> None:
        limits = TaskLimits(behind=50)
        async with serving(Executor(go=pour), limits=limits) as house:
            began = await house.begin("go")
            slow = house.subscribe(began.id)
            assert isinstance(await anext(slow), Task)
            watched.append(True)
            while len((await house.get(began.id)).artifacts) < 300:
                await asyncio.sleep(0.005)
            with pytest.raises(FellBehind, match="subscribe again"):
                await everything(slow)
            stream = house.subscribe(began.id)
            again = [await anext(stream)]
            assert len(again[0].artifacts) == 300
            enough.append(True)
            again += await everything(stream)
            assert again[-1].status.state == COMPLETED
            assert (await house.get(began.id)).status.state == COMPLETED

    asyncio.run(play())


def test_what_cannot_be_watched_is_refused(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(go=complete, sleep=sleep), journal=journal) as house:
            done = await house.task("go")
            with pytest.raises(UnsupportedOperationError, match="COMPLETED"):
                await everything(house.subscribe(done.id))
            with pytest.raises(TaskNotFoundError):
                await everything(house.subscribe("nowhere"))
            open_ = await house.begin("sleep", who=by("anna"))
            with pytest.raises(TaskNotFoundError):
                await everything(house.subscribe(open_.id, by("bert")))

    asyncio.run(play())


def test_an_agent_that_does_not_stream_says_so() -> None:
    card = AgentCard(name="n", description="d", version="1", capabilities=AgentCapabilities())

    async def play() -> None:
        async with serving(Executor(go=complete), agent_card=card) as house:
            with pytest.raises(UnsupportedOperationError, match="Streaming"):
                await everything(house.stream("go"))
            with pytest.raises(UnsupportedOperationError, match="Streaming"):
                await everything(house.subscribe("any"))

    asyncio.run(play())


def test_artifacts_are_appended_replaced_and_cost_no_more_with_their_number() -> None:
    async def chunks(work: Work) -> None:
        await work.begin()
        for number in range(3):
            await work.updater.add_artifact(
                [Part(text=f"{number} ")],
                artifact_id="a",
                append=number > 0,
                last_chunk=number == 2,
            )
        await work.updater.add_artifact([Part(text="old")], artifact_id="b")
        await work.updater.add_artifact([Part(text="new")], artifact_id="b")
        await work.updater.complete()

    async def many(work: Work) -> None:
        await work.begin()
        for number in range(int(work.text.split()[1])):
            await work.updater.add_artifact([Part(text="x")], artifact_id=f"a{number}")
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(chunks=chunks, many=many)) as house:
            task = await house.task("chunks")
            found = {
                one.artifact_id: "".join(part.text for part in one.parts) for one in task.artifacts
            }
            assert found == {"a": "0 1 2 ", "b": "new"}
            seen = await everything(house.stream("chunks"))
            updates = [one for one in seen if isinstance(one, TaskArtifactUpdateEvent)]
            assert [one.append for one in updates[:3]] == [False, True, True]
            assert [one.last_chunk for one in updates[:3]] == [False, False, True]
            took: dict[int, float] = {}
            for number in (500, 4000):
                at = time.process_time()
                task = await house.task(f"many {number}")
                took[number] = (time.process_time() - at) / number
                assert len(task.artifacts) == number
            assert took[4000] < 4 * took[500], f"linear: {took}"

    asyncio.run(play())


def test_thousands_of_readers_leave_nothing_behind() -> None:
    """Law 18 audience-free: who leaves before, at or after the first frame leaves nothing."""

    async def play() -> None:
        async with serving(Executor(go=sleep)) as house:
            began = await house.begin("go")
            tasks = house.handler.tasks()
            live = tasks.hall.tasks[began.id]
            for number in range(2_000):
                stream = house.subscribe(began.id)
                if number % 3:
                    assert isinstance(await anext(stream), Task)
                await stream.aclose()
            for number in range(200):
                reading = asyncio.create_task(everything(house.subscribe(began.id)))
                waiting = asyncio.create_task(house.send("go", task_id=began.id))
                if number % 2:
                    await asyncio.sleep(0)
                reading.cancel()
                waiting.cancel()
                await asyncio.wait({reading, waiting})
            assert not live.streams
            assert not live.waiters
            assert (await house.cancel(began.id)).status.state == CANCELED
            assert not tasks.hall.tasks

    asyncio.run(play())


def test_a_task_that_cannot_go_on_holds_up_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with serving(Executor()) as house:
            told = asyncio.Event()
            hall = house.handler.tasks().hall

            def broken() -> None:
                raise JournalError("no room")

            hall.post(broken)
            hall.post(told.set)
            await asyncio.wait_for(told.wait(), 5)

    asyncio.run(play())
    assert "no room" in caplog.text
