"""Listing: whose tasks, in which order, page by page."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import TaskState
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.timestamp_pb2 import Timestamp

from tests.a2a.serving import COMPLETED, INPUT_REQUIRED, Executor, ask, by, complete, serving


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


def test_pages_show_every_task_once_newest_change_first(journal: str | None) -> None:
    async def play() -> None:
        executor = Executor(hello=complete, book=ask)
        async with serving(executor, journal=journal) as house:
            ids = [(await house.task("hello")).id for _ in range(5)]
            oldest = (await house.task("book")).id
            ids.append(oldest)
            seen: list[str] = []
            token = ""
            while True:
                page = await house.list(page_size=2, page_token=token)
                seen += [task.id for task in page.tasks]
                assert (page.total_size, page.page_size) == (6 + (len(seen) > 2), 2)
                if len(seen) == 2:
                    # What is opened between two pages comes before them, and moves nothing.
                    await house.task("hello")
                token = page.next_page_token
                if not token:
                    break
            assert seen == list(reversed(ids))
            await house.task("hello", task_id=oldest)
            assert (await house.list(page_size=1)).tasks[0].id == oldest, "it changed last"

    asyncio.run(play())


def test_filters(journal: str | None) -> None:
    async def play() -> None:
        executor = Executor(hello=complete, book=ask)
        async with serving(executor, journal=journal) as house:
            done = await house.task("hello", context_id="one")
            asked = await house.task("book", context_id="two")
            await asyncio.sleep(0.02)
            since = Timestamp()
            since.FromNanoseconds(time.time_ns())
            last = await house.task("hello", context_id="two")

            async def found(**more: object) -> set[str]:
                page = await house.list(**more)
                assert page.total_size == len(page.tasks)
                return {task.id for task in page.tasks}

            assert await found() == {done.id, asked.id, last.id}
            assert await found(context_id="two") == {asked.id, last.id}
            assert await found(status=COMPLETED) == {done.id, last.id}
            assert await found(status=INPUT_REQUIRED) == {asked.id}
            assert await found(status=TaskState.TASK_STATE_FAILED) == set()
            assert await found(status_timestamp_after=since) == {last.id}
            assert await found(context_id="three") == set()
            page = await house.list(include_artifacts=True, history_length=0, context_id="one")
            assert len(page.tasks[0].artifacts) == 1
            assert not page.tasks[0].history
            assert not (await house.list(context_id="one")).tasks[0].artifacts
            # Once more: what has ended is remembered.
            assert await found(status=COMPLETED) == {done.id, last.id}

    asyncio.run(play())


def test_tasks_belong_to_their_owner_and_tenant(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(hello=complete, book=ask), journal=journal) as house:
            anna, bert = by("anna"), by("bert")
            hers = await house.task("book", who=anna)
            his = await house.task("hello", who=bert)
            theirs = await house.task("hello", who=by("anna", "acme"))
            nobodys = await house.task("hello")
            for who, task in (
                (anna, hers),
                (bert, his),
                (by("anna", "acme"), theirs),
                (by(), nobodys),
            ):
                assert [one.id for one in (await house.list(who)).tasks] == [task.id]
                assert (await house.get(task.id, who)).id == task.id
            for who, task in ((bert, hers), (anna, his), (anna, theirs), (by(), hers)):
                for attempt in (
                    house.get(task.id, who),
                    house.cancel(task.id, who),
                    house.send("hello", task_id=task.id, who=who),
                ):
                    with pytest.raises(TaskNotFoundError):
                        await attempt
            assert (await house.get(hers.id, anna)).status.state == INPUT_REQUIRED

    asyncio.run(play())


def test_another_agent_on_the_same_journal_is_another_world(tmp_path: Path) -> None:
    from tests.a2a.serving import card

    other = card()
    other.name = "another"
    file = str(tmp_path / "tasks.db")

    async def play() -> None:
        async with (
            serving(Executor(hello=complete), journal=file) as house,
            serving(Executor(hello=complete), journal=file, agent_card=other) as next_door,
        ):
            task = await house.task("hello")
            assert not (await next_door.list()).tasks
            with pytest.raises(TaskNotFoundError):
                await next_door.get(task.id)

    asyncio.run(play())


@pytest.mark.parametrize(
    "bad",
    [
        {"page_size": 0},
        {"page_size": 101},
        {"page_token": "nonsense"},
        {"page_token": "WzEsIDJd"},
        {"page_token": "ä"},
        {"history_length": -1},
    ],
)
def test_bad_requests_are_refused_in_words(bad: dict[str, object]) -> None:
    async def play() -> None:
        async with serving(Executor()) as house:
            with pytest.raises(InvalidParamsError):
                await house.list(**bad)

    asyncio.run(play())
