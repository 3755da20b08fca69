"""A model with tools as a task: its conversation is the task's run, and outlives its server."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Part
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from endstop import ModelAgent, Say, Scripted, tool
from endstop.a2a.limits import TaskLimits
from endstop.a2a.livetask import Request
from endstop.agents.models.protocol import Ask
from endstop.core.terms import Phase
from endstop.errors import JournalError
from endstop.store.memory import MemoryJournal
from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    House,
    by,
    everything,
    serving,
    words,
)

paid: list[int] = []


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing at {where}"


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay somebody."""
    paid.append(amount)
    return f"paid {amount}"


@tool(grace=0.2)
async def wait() -> str:
    """Wait for longer than any test."""
    await asyncio.sleep(60)
    return "over"


def agent(*replies: Any) -> ModelAgent:
    """An agent that says what it is given to say."""
    return ModelAgent(name="clerk", model=Scripted(list(replies)), tools=[look, pay, wait])


def text_of(task: Any) -> str:
    """The one text of the one artifact."""
    (artifact,) = task.artifacts
    (part,) = artifact.parts
    return str(part.text)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def test_a_conversation_is_a_task(journal: str | None) -> None:
    model = agent(Say(text="Let me see.", calls=[("look", {"where": "home"})]), "It is not there.")

    async def play() -> None:
        async with serving(model, journal=journal) as house:
            task = await house.task("where is it?")
            assert task.status.state == COMPLETED
            assert text_of(task) == "It is not there."
            said = [one.parts[0].text for one in task.history]
            assert said == ["where is it?", "Let me see."]
            assert (await house.get(task.id)).artifacts == task.artifacts

    asyncio.run(play())


def test_what_the_model_says_is_streamed_and_ends_whole() -> None:
    model = agent(Say(text="one two three four five six seven eight", delay_s=0.06))

    async def play() -> None:
        async with serving(model) as house:
            seen = await everything(house.stream("count"))
            chunks = [one for one in seen if hasattr(one, "artifact")]
            assert len(chunks) > 2
            assert not chunks[0].append
            assert all(one.append for one in chunks[1:-1])
            whole = "".join(one.artifact.parts[0].text for one in chunks[:-1])
            assert "one two three four five six seven eight".startswith(whole)
            assert chunks[-1].last_chunk
            assert chunks[-1].artifact.parts[0].text == "one two three four five six seven eight"
            assert seen[-1].status.state == COMPLETED

    asyncio.run(play())


@pytest.mark.parametrize(
    ("answer", "amounts"), [("yes", [5]), ("no: too dear", []), ('edit {"amount": 3}', [3])]
)
def test_law_13_one_approval_is_asked_of_the_user(
    answer: str, amounts: list[int], journal: str | None
) -> None:
    model = agent(Say(calls=[("pay", {"amount": 5})]), "So be it.")

    async def play() -> None:
        async with serving(model, journal=journal) as house:
            task = await house.task("pay him")
            assert task.status.state == INPUT_REQUIRED
            assert words(task).startswith('May pay run with {"amount":5}?')
            asked = MessageToDict(task.status.message.parts[1].data)
            assert isinstance(asked, dict)
            assert asked["approvals"][0]["tool"] == "pay"  # type: ignore[index]
            with pytest.raises(InvalidParamsError, match="no answer that is understood"):
                await house.task("hm", task_id=task.id)
            assert not paid
            ended = await house.task(answer, task_id=task.id)
            assert (ended.status.state, text_of(ended)) == (COMPLETED, "So be it.")
            assert paid == amounts

    asyncio.run(play())


def test_an_approval_is_put_away_and_survives_its_server(tmp_path: Path) -> None:
    """Laws 13 one-approval and 16 survives-restart: the question is in the record."""
    file = str(tmp_path / "tasks.db")

    async def play() -> None:
        async with serving(
            agent(Say(calls=[("pay", {"amount": 5})])), journal=file, interrupted_task_timeout=0.05
        ) as house:
            task = await house.task("pay him")
            assert task.status.state == INPUT_REQUIRED
            tasks = house.handler.tasks()
            limit = time.monotonic() + 10
            while tasks.hall.tasks or tasks.runtime.engine.state.runs:
                assert time.monotonic() < limit, "it stays in memory"
                await asyncio.sleep(0.02)
        async with serving(agent("So be it."), journal=file) as house:
            assert (await house.get(task.id)).status.state == INPUT_REQUIRED
            ended = await house.task("yes", task_id=task.id)
            assert (ended.status.state, text_of(ended)) == (COMPLETED, "So be it.")
            assert paid == [5]

    asyncio.run(play())


def test_a_conversation_goes_on_with_the_next_server(tmp_path: Path) -> None:
    file = str(tmp_path / "tasks.db")

    async def play() -> None:
        async with serving(agent(Say(calls=[("wait", {})])), journal=file) as house:
            began = await house.begin("wait for it")
            await calling(house, "wait")
        next_one = agent("I waited in vain.")
        async with serving(next_one, journal=file) as house:
            await house.handler.recover()
            ended = await house.until(began.id, COMPLETED)
            assert text_of(ended) == "I waited in vain."
            model = next_one.model
            assert isinstance(model, Scripted)
            results = [one for one in model.asks[0].messages if one["role"] == "tool"]
            assert len(results) == 1, "law 4 one-answer: also of the call that was stopped"

    asyncio.run(play())


async def calling(house: House, name: str) -> None:
    """Wait until a tool runs."""
    limit = time.monotonic() + 10
    runtime = house.handler.tasks().runtime
    while name not in {one.tool for one in runtime.calls() if one.phase == Phase.RUNNING}:
        assert time.monotonic() < limit, f"{name} is never called"
        await asyncio.sleep(0.01)


async def called(house: House, task_id: str, name: str) -> None:
    """Wait until a tool has run: that another one runs beside it says nothing of that."""
    view = house.handler.tasks().hall.tasks[task_id].view
    limit = time.monotonic() + 10
    while not any(one.tool == name and one.settled for one in tuple(view.calls.values())):
        assert time.monotonic() < limit, f"{name} is never over"
        await asyncio.sleep(0.01)


def test_a_stop_reaches_model_and_tools(journal: str | None) -> None:
    model = agent(Say(calls=[("wait", {}), ("look", {"where": "home"})]), "never said")

    async def play() -> None:
        async with serving(model, journal=journal) as house:
            began = await house.begin("wait")
            await calling(house, "wait")
            await called(house, began.id, "look")
            task = await house.cancel(began.id)
            assert task.status.state == CANCELED
            assert "Stopped while running: wait" in words(task)
            assert "Had already happened: look" in words(task)
            rows = MessageToDict(task.metadata)["endstop/calls"]
            assert {row["tool"]: row["outcome"] for row in rows} == {
                "wait": "cancelled",
                "look": "succeeded",
            }
            scripted = model.model
            assert isinstance(scripted, Scripted)
            assert len(scripted.asks) == 1, "no further turn"

    asyncio.run(play())


def test_a_stop_while_the_model_speaks(journal: str | None) -> None:
    model = agent(Say(text="word " * 200, delay_s=0.05))

    async def play() -> None:
        async with serving(model, journal=journal) as house:
            stream = house.stream("talk")
            first = await anext(stream)
            at = time.monotonic()
            task = await house.cancel(first.id)
            assert (task.status.state, time.monotonic() - at < 2.0) == (CANCELED, True)
            seen = await everything(stream)
            assert seen[-1].status.state == CANCELED

    asyncio.run(play())


def test_what_a_user_says_meanwhile_is_heard() -> None:
    model = agent(Say(text="a b c d e f g h", delay_s=0.05), "And that, too.")

    async def play() -> None:
        async with serving(model) as house:
            began = await house.begin("first")
            await house.until(began.id, WORKING)
            ended = await house.task("and that?", task_id=began.id)
            assert (ended.status.state, text_of(ended)) == (COMPLETED, "And that, too.")

    asyncio.run(play())


@pytest.mark.parametrize("server", ["same", "next"])
def test_only_so_many_messages_wait_for_a_model(journal: str | None, server: str) -> None:
    """Whether they are recorded yet or not, and whoever took them (law 18)."""
    go_on = threading.Event()

    async def reply(asked: Ask) -> str:
        while not go_on.is_set():
            await asyncio.sleep(0.002)
        return f"heard {len(asked.messages)}"

    async def play() -> None:
        clerk = ModelAgent(name="clerk", model=Scripted(reply), tools=[])
        limits = TaskLimits(messages=3)
        where = journal if journal is not None else MemoryJournal()
        terms: dict[str, Any] = {"journal": where, "limits": limits}
        async with serving(clerk, **terms) as house:
            began = await house.begin("first")
            sent = [house.begin(f"more {n}", task_id=began.id) for n in range(5)]
            done = await asyncio.gather(*sent, return_exceptions=True)
            refused = [one for one in done if isinstance(one, UnsupportedOperationError)]
            assert [one.message for one in refused] == [
                f"3 messages wait for task {began.id} already"
            ] * 2
            if server == "same":
                go_on.set()
                ended = await house.until(began.id, COMPLETED)
        if server == "next":
            async with serving(clerk, **terms) as house:
                assert (await house.get(began.id)).status.state == WORKING
                with pytest.raises(UnsupportedOperationError, match="messages wait"):
                    await house.begin("more", task_id=began.id)
                go_on.set()
                ended = await house.until(began.id, COMPLETED)
        assert len(ended.history) == 4

    asyncio.run(play())


def test_a_model_that_fails_fails_the_task_in_words() -> None:
    async def play() -> None:
        async with serving(agent()) as house:
            task = await house.task("hello")
            assert task.status.state == FAILED
            assert words(task).startswith("Failed: ")
            with pytest.raises(InvalidParamsError, match="no words"):
                await house.task("", parts=[Part(raw=b"x")])

    asyncio.run(play())


@pytest.mark.parametrize("part", [Part(text=" \n"), Part(raw=b"x"), Part(text="")])
def test_what_a_model_cannot_be_told_leaves_no_task_behind(part: Part) -> None:
    async def play() -> None:
        async with serving(agent("Hello.")) as house:
            with pytest.raises(InvalidParamsError):
                await house.send("", parts=[part])
            assert (await house.list()).total_size == 0
            assert not house.handler.tasks().hall.tasks

    asyncio.run(play())


@pytest.mark.parametrize("problem", [JournalError("/srv/tasks.db is locked"), ValueError("a bug")])
def test_a_conversation_that_cannot_go_on_ends_its_task(problem: Exception) -> None:
    """None seems to work for ever (law 16), and no path of ours is told."""
    broken = threading.Event()

    @tool
    def touch() -> None:
        """Break what the loop reads next."""
        broken.set()

    async def play() -> None:
        model = Scripted([Say(calls=[("touch", {})]), "never said"])
        clerk = ModelAgent(name="clerk", model=model, tools=[touch])
        async with serving(clerk) as house:
            journal = house.handler.tasks().runtime.engine.journal
            read = journal.read

            def read_once_less(*where: Any) -> Any:
                if broken.is_set():
                    broken.clear()
                    raise problem
                return read(*where)

            journal.read = read_once_less  # type: ignore[method-assign]
            ended = await house.task("go")
            assert ended.status.state == FAILED
            assert "could not go on" in words(ended)
            assert "/srv" not in words(ended)
            await house.settled()

    asyncio.run(play())


def test_a_message_in_the_moment_of_the_end_is_refused_and_keeps_nothing() -> None:
    async def play() -> None:
        async with serving(agent("Hello.")) as house:
            tasks = house.handler.tasks()
            assert tasks.native is not None
            task = await house.begin("hi")
            live = tasks.hall.tasks[task.id]
            await house.until(task.id, COMPLETED)
            request = Request(house.request("more", task_id=task.id), by())
            with pytest.raises(UnsupportedOperationError, match="is over"):
                tasks.take(live, request)
            assert not tasks.native._talks

    asyncio.run(play())
