"""What was meant as a secret answer and comes too late is in no record either (law 13)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Part
from a2a.utils.errors import A2AError, InvalidParamsError, UnsupportedOperationError
from google.protobuf.json_format import ParseDict

from endstop import ModelAgent, Say, Scripted, current, tool
from endstop.a2a.livetask import LiveTask, Request
from endstop.store.opening import connect
from endstop.tools.context import AsyncContext
from tests.a2a.serving import (
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    Executor,
    House,
    Work,
    by,
    serving,
    words,
)

SECRET = "correct-horse-battery"


def context() -> AsyncContext:
    ctx = current()
    assert isinstance(ctx, AsyncContext)
    return ctx


class Signal:
    """Set by the test, waited for by a body on the loop of its own."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self.set = self._set.set

    async def wait(self) -> None:
        while not self._set.is_set():
            await asyncio.sleep(0.002)


class Locked(Executor):
    """Asks for a password in several ways; `go_on` lets it stop waiting for one."""

    def __init__(self) -> None:
        super().__init__(
            unlock=self.unlock,
            later=self.later,
            hold=self.hold,
            swap=self.swap,
            both=self.both,
            tuesday=self.end,
        )
        self.go_on = Signal()
        self.end_of_work = Signal()
        self.heard: list[str] = []

    async def answer(self, question: str, **terms: Any) -> str | None:
        """The answer to a question, or None when it is to be waited for no more."""
        asking = asyncio.ensure_future(context().ask(question, **terms))
        leaving = asyncio.ensure_future(self.go_on.wait())
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            leaving.cancel()
            asking.cancel()
            await asyncio.wait({asking})

    async def unlock(self, work: Work) -> None:
        """Ask, and go on with something else when there is no answer."""
        await work.begin()
        self.heard.append(str(await self.answer("password?", secret=True)))
        await work.updater.requires_input(work.say("which day?"))

    async def hold(self, work: Work) -> None:
        """The same, and work on for a while."""
        await work.begin()
        self.heard.append(str(await self.answer("password?", secret=True)))
        await self.end_of_work.wait()
        await work.updater.requires_input(work.say("which day?"))

    async def later(self, work: Work) -> None:
        """Ask when it is let."""
        await work.begin()
        await self.go_on.wait()
        self.heard.append(await context().ask("password?", secret=True))
        await work.updater.complete()

    async def swap(self, work: Work) -> None:
        """Ask a plain question where the password does not come."""
        await work.begin()
        await self.answer("password?", secret=True)
        self.heard.append(await context().ask("name?"))
        await work.updater.complete(work.say("hello"))

    async def both(self, work: Work) -> None:
        """Ask for a password and a name at once."""
        await work.begin()
        secret = asyncio.ensure_future(context().ask("password?", secret=True))
        self.heard.append(await context().ask("name?"))
        self.heard.append(await secret)
        await work.updater.complete(work.say("hello"))

    async def end(self, work: Work) -> None:
        await work.updater.complete(work.say(work.text))


def data(**said: object) -> dict[str, Any]:
    part = Part()
    ParseDict(said, part.data)
    return {"parts": [part]}


def question_in(task: Any) -> str:
    """The id of the first question that a task shows."""
    shown = next(part.data for part in task.status.message.parts if part.HasField("data"))
    return str(shown.struct_value["questions"][0]["question"])


def held(folder: Path) -> bytes:
    """All that is in the files of a journal."""
    return b"".join(one.read_bytes() for one in folder.iterdir() if one.is_file())


async def refuse(house: House, task_id: str, text: str = SECRET, **more: Any) -> str:
    """Send what must be refused; returns the words of the refusal."""
    with pytest.raises(A2AError) as refused:
        await house.task(text, task_id=task_id, **more)
    assert isinstance(refused.value, UnsupportedOperationError | InvalidParamsError)
    assert SECRET not in refused.value.message
    return str(refused.value.message)


async def withdrawn(house: House, executor: Locked, word: str, *then: int) -> tuple[str, str]:
    """A task whose secret question was withdrawn, and the question's id."""
    task = await house.task(word)
    assert task.status.state == INPUT_REQUIRED
    question = question_in(task)
    executor.go_on.set()
    while words(await house.get(task.id)) == words(task):
        await asyncio.sleep(0.005)
    await house.until(task.id, *(then or (INPUT_REQUIRED,)))
    return task.id, question


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[tuple[House, Locked]]:
    executor = Locked()
    async with serving(executor, journal=str(folder / "tasks.db")) as house:
        yield house, executor
    assert SECRET.encode() not in held(folder)


@pytest.mark.parametrize("word", ["unlock", "hold"])
def test_an_answer_to_a_question_that_was_withdrawn(tmp_path: Path, word: str) -> None:
    """Whether the task waits for its user again or works on."""

    async def play() -> None:
        async with locked(tmp_path) as (house, executor):
            then = INPUT_REQUIRED if word == "unlock" else WORKING
            task_id, _ = await withdrawn(house, executor, word, then)
            assert "send it again" in await refuse(house, task_id)
            executor.end_of_work.set()
            ended = await house.task("tuesday", task_id=task_id)
            assert (ended.status.state, words(ended)) == (COMPLETED, "tuesday")

    asyncio.run(play())


def test_an_ordinary_message_is_taken_when_it_is_sent_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with locked(tmp_path) as (house, executor):
            task_id, _ = await withdrawn(house, executor, "unlock")
            await refuse(house, task_id, "tuesday", message_id="m")
            ended = await house.task("tuesday", task_id=task_id, message_id="m")
            assert ended.status.state == COMPLETED

    asyncio.run(play())


def test_an_answer_by_name_is_refused_for_good(tmp_path: Path) -> None:
    async def play() -> None:
        async with locked(tmp_path) as (house, executor):
            task_id, question = await withdrawn(house, executor, "unlock")
            for _ in range(3):
                said = await refuse(house, task_id, **data(question=question, answer=SECRET))
                assert question in said
            await refuse(house, task_id, "tuesday")
            ended = await house.task("tuesday", task_id=task_id)
            assert ended.status.state == COMPLETED

    asyncio.run(play())


def test_an_answer_where_something_else_is_asked_by_now(tmp_path: Path) -> None:
    """A plain question has taken the place of the secret one: its answer would be recorded."""

    async def play() -> None:
        async with locked(tmp_path) as (house, executor):
            task_id, question = await withdrawn(house, executor, "swap")
            assert "by name" in await refuse(house, task_id)
            await refuse(house, task_id, **data(question=question, answer=SECRET))
            other = question_in(await house.get(task_id))
            ended = await house.task("", task_id=task_id, **data(question=other, answer="anna"))
            assert (ended.status.state, executor.heard) == (COMPLETED, ["anna"])

    asyncio.run(play())


def test_the_second_answer_where_another_question_is_left(tmp_path: Path) -> None:
    async def play() -> None:
        async with locked(tmp_path) as (house, executor):
            task = await house.begin("both")
            while len(asked := house.handler.tasks().runtime.questions()) < 2:
                await asyncio.sleep(0.005)
            secret = next(one.question_id for one in asked if one.secret)
            await house.until(task.id, INPUT_REQUIRED)
            by_name = data(question=secret, answer=SECRET)
            await house.begin("", task_id=task.id, **by_name)
            await refuse(house, task.id)
            await refuse(house, task.id)
            ended = await house.task("anna", task_id=task.id)
            assert (ended.status.state, executor.heard) == (COMPLETED, ["anna", SECRET])

    asyncio.run(play())


@pytest.mark.parametrize("word", ["unlock", "hold"])
def test_the_same_answer_again_in_another_message(tmp_path: Path, word: str) -> None:
    """The client did not hear that its answer was taken, and made a new message of it."""

    async def play() -> None:
        async with locked(tmp_path) as (house, executor):
            task = await house.task(word)
            await house.begin(SECRET, task_id=task.id)
            while not executor.heard:
                await asyncio.sleep(0.005)
            if word == "unlock":
                while words(await house.get(task.id)) != "which day?":
                    await asyncio.sleep(0.005)
            assert executor.heard == [SECRET]
            for _ in range(3):
                await refuse(house, task.id)
            executor.end_of_work.set()
            await house.until(task.id, INPUT_REQUIRED)
            ended = await house.task("tuesday", task_id=task.id)
            assert ended.status.state == COMPLETED, "whoever answered in time goes on as ever"

    asyncio.run(play())


def test_an_answer_after_the_restart_that_the_question_did_not_survive(tmp_path: Path) -> None:
    async def play() -> None:
        executor = Locked()
        journal = str(tmp_path / "tasks.db")
        async with serving(executor, journal=journal, idempotent=True) as house:
            task_id, _ = await withdrawn(house, executor, "unlock")
        async with serving(executor, journal=journal, idempotent=True) as house:
            await refuse(house, task_id)
            ended = await house.task("tuesday", task_id=task_id)
            assert ended.status.state == COMPLETED
        assert SECRET.encode() not in held(tmp_path)

    asyncio.run(play())


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[House, House, Locked]]:
    executor = Locked()
    journal = str(folder / "tasks.db")
    async with (
        serving(executor, journal=journal) as first,
        serving(executor, journal=journal) as second,
    ):
        yield first, second, executor
        with closing(connect(Path(journal), "ro", 1.0)) as connection:
            requests = connection.execute("SELECT body FROM requests").fetchall()
        assert requests
        assert SECRET not in str(requests)
        assert SECRET.encode() not in held(folder)


def test_a_late_answer_at_the_other_server(tmp_path: Path) -> None:
    """Not even what one server asks the other holds it."""

    async def play() -> None:
        async with two(tmp_path) as (first, second, executor):
            task_id, question = await withdrawn(first, executor, "unlock")
            await refuse(second, task_id)
            await refuse(second, task_id, **data(question=question, answer=SECRET))
            ended = await second.task("tuesday", task_id=task_id)
            assert ended.status.state == COMPLETED, "told once is told, by whichever server"

    asyncio.run(play())


def test_an_answer_that_is_too_late_when_the_other_server_has_it(tmp_path: Path) -> None:
    """It was in time where it was sent, and it is no message where it came."""

    async def play() -> None:
        async with two(tmp_path) as (first, second, executor):
            task = await first.task("unlock")
            elsewhere = second.handler.tasks().elsewhere
            ask = elsewhere._ask

            async def ask_late(*asked: Any) -> dict[str, Any]:
                executor.go_on.set()
                while words(await first.get(task.id)) != "which day?":
                    await asyncio.sleep(0.005)
                # Somebody who was told what his message might be sends it all the same.
                await refuse(first, task.id, "monday")
                return await ask(*asked)

            elsewhere._ask = ask_late  # type: ignore[method-assign,assignment]
            await refuse(second, task.id)
            ended = await first.task("tuesday", task_id=task.id)
            assert ended.status.state == COMPLETED

    asyncio.run(play())


def test_an_answer_at_a_server_that_has_not_seen_the_question(tmp_path: Path) -> None:
    async def play() -> None:
        async with two(tmp_path) as (first, second, executor):
            task = await first.begin("later")
            await first.until(task.id, WORKING)
            tasks = second.handler.tasks()
            behind = LiveTask(task.id, tasks.limits)
            behind.view, behind.remote = await tasks.view(task.id), True
            executor.go_on.set()
            await first.until(task.id, INPUT_REQUIRED)
            assert not behind.view.questions
            await tasks.send(behind, Request(second.request(SECRET, task_id=task.id), by()))
            await first.until(task.id, COMPLETED)
            assert executor.heard == [SECRET]

    asyncio.run(play())


def test_an_answer_that_a_model_must_not_be_told(tmp_path: Path) -> None:
    """Neither the record nor the model gets it, whatever the conversation does meanwhile."""
    go_on = Signal()
    hold = Signal()

    @tool
    async def unlock() -> str:
        """Open it."""
        asking = asyncio.ensure_future(context().ask("password?", secret=True))
        await go_on.wait()
        asking.cancel()
        await asyncio.wait({asking})
        await hold.wait()
        return "still locked"

    async def play() -> None:
        model = Scripted([Say(calls=[("unlock", {})]), "locked", "again"])
        agent = ModelAgent(name="clerk", model=model, tools=[unlock])
        journal = str(tmp_path / "tasks.db")
        async with serving(agent, journal=journal) as house:
            task = await house.task("open it")
            assert task.status.state == INPUT_REQUIRED
            go_on.set()
            await house.until(task.id, WORKING)
            await refuse(house, task.id)
            hold.set()
            ended = await house.until(task.id, COMPLETED)
            assert SECRET not in str(ended)
        assert SECRET.encode() not in held(tmp_path)

    asyncio.run(play())
