"""Sending messages: what is answered, when, and what a task is made of, on both journals."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Message, Part, Role, Task
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.a2a.serving import (
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    SUBMITTED,
    WORKING,
    Executor,
    Work,
    ask,
    by,
    complete,
    everything,
    serving,
    sleep,
    words,
)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


def test_a_blocking_send_waits_for_the_end_and_keeps_everything(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(hello=complete), journal=journal) as house:
            task = await house.task("hello world")
            assert task.status.state == COMPLETED
            assert words(task) == "done"
            assert [one.artifact_id for one in task.artifacts] == ["result"]
            assert [one.parts[0].text for one in task.history] == ["hello world"]
            assert task.context_id == task.history[0].context_id
            again = await house.get(task.id)
            again.status.timestamp.CopyFrom(task.status.timestamp)
            assert again == task, "answer and store are readings of one record"

    asyncio.run(play())


def test_an_executor_finds_its_task_as_it_left_it(journal: str | None) -> None:
    """Many executors look whether they are being answered: at the state that they published."""
    seen: list[tuple[int, list[str]]] = []

    async def answered(work: Work) -> None:
        current = work.context.current_task
        assert current is not None
        assert not current.status.HasField("message"), "what it asked is in the history"
        seen.append((current.status.state, [one.parts[0].text for one in current.history]))
        await complete(work)

    async def play() -> None:
        async with serving(Executor(ask=ask, tuesday=answered), journal=journal) as house:
            task = await house.task("ask me")
            assert (await house.task("tuesday", task_id=task.id)).status.state == COMPLETED
            assert seen == [(INPUT_REQUIRED, ["ask me", "which one?", "tuesday"])]

    asyncio.run(play())


def test_return_immediately_answers_before_the_first_event(journal: str | None) -> None:
    async def silent(work: Work) -> None:
        await asyncio.sleep(60)

    async def play() -> None:
        async with serving(Executor(silent=silent), journal=journal) as house:
            began = time.monotonic()
            task = await house.begin("silent")
            assert time.monotonic() - began < 1.0
            assert task.status.state in (SUBMITTED, WORKING)
            assert (await house.until(task.id, WORKING)).id == task.id

    asyncio.run(play())


def test_an_agent_may_answer_with_a_message(journal: str | None) -> None:
    async def reply(work: Work) -> None:
        await work.queue.enqueue_event(
            Message(message_id="r", role=Role.ROLE_AGENT, parts=[Part(text="hi")])
        )

    async def play() -> None:
        async with serving(Executor(reply=reply), journal=journal) as house:
            answer = await house.send("reply")
            assert isinstance(answer, Message)
            assert answer.parts[0].text == "hi"
            seen = await everything(house.stream("reply"))
            assert [type(one) for one in seen] == [Message]

    asyncio.run(play())


def test_an_agent_that_returns_without_an_ending_has_failed(journal: str | None) -> None:
    async def forget(work: Work) -> None:
        await work.begin()

    async def play() -> None:
        async with serving(Executor(forget=forget), journal=journal) as house:
            task = await house.task("forget")
            assert task.status.state == FAILED
            assert "returned without a terminal state" in words(task)
            assert (await house.get(task.id)).status.state == FAILED

    asyncio.run(play())


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), asyncio.CancelledError()])
def test_an_agent_that_raises_has_failed_in_words(error: BaseException) -> None:
    async def wreck(work: Work) -> None:
        await work.begin()
        raise error

    async def play() -> None:
        async with serving(Executor(wreck=wreck)) as house:
            task = await house.task("wreck")
            assert task.status.state == FAILED
            assert type(error).__name__ in words(task)
            assert "endstop/" not in words(task).replace("endstop/calls", "")
            assert ".py" not in words(task)

    asyncio.run(play())


def test_a_question_is_answered_by_a_message_to_the_task(journal: str | None) -> None:
    executor = Executor(book=ask, tuesday=complete)

    async def play() -> None:
        async with serving(executor, journal=journal) as house:
            task = await house.task("book")
            assert task.status.state == INPUT_REQUIRED
            assert words(task) == "which one?"
            ended = await house.task("tuesday", task_id=task.id)
            assert ended.id == task.id
            assert ended.context_id == task.context_id, "inferred from the task"
            assert ended.status.state == COMPLETED
            said = [one.parts[0].text for one in ended.history]
            assert said == ["book", "which one?", "tuesday"]
            assert executor.executions == ["book", "tuesday"]

    asyncio.run(play())


def test_a_message_waits_while_the_agent_works() -> None:
    going = asyncio.Event

    async def play() -> None:
        gate: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        beside = 0

        async def first(work: Work) -> None:
            await work.begin()
            event = going()
            gate.append((asyncio.get_running_loop(), event))
            await event.wait()
            await work.updater.requires_input()

        async def second(work: Work) -> None:
            nonlocal beside
            beside += 1
            await complete(work)

        executor = Executor(first=first, second=second)
        async with serving(executor) as house:
            task = await house.begin("first")
            waiting = asyncio.create_task(house.task("second", task_id=task.id))
            while not gate:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert (beside, waiting.done()) == (0, False)
            loop, event = gate[0]
            loop.call_soon_threadsafe(event.set)
            assert (await waiting).status.state == COMPLETED
            assert executor.executions == ["first", "second"]

    asyncio.run(play())


def test_the_same_message_twice_is_worked_on_once(journal: str | None) -> None:
    executor = Executor(book=ask, tuesday=complete)

    async def play() -> None:
        async with serving(executor, journal=journal) as house:
            task = await house.task("book")
            both = await asyncio.gather(
                house.task("tuesday", task_id=task.id, message_id="same"),
                house.task("tuesday", task_id=task.id, message_id="same"),
            )
            assert [one.status.state for one in both] == [COMPLETED, COMPLETED]
            assert executor.executions == ["book", "tuesday"]
            third = await house.task("tuesday", task_id=task.id, message_id="same")
            assert third.status.state == COMPLETED

    asyncio.run(play())


def test_what_cannot_be_taken_is_refused_with_the_protocols_errors(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(hello=complete, sleep=sleep), journal=journal) as house:
            done = await house.task("hello")
            open_ = await house.begin("sleep")
            with pytest.raises(UnsupportedOperationError, match="COMPLETED"):
                await house.task("hello", task_id=done.id)
            with pytest.raises(TaskNotFoundError):
                await house.task("hello", task_id="nowhere")
            with pytest.raises(InvalidParamsError, match="belongs to context"):
                await house.task("hello", task_id=open_.id, context_id="another")
            with pytest.raises(InvalidParamsError):
                await house.task("hello", parts=[])
            with pytest.raises(InvalidParamsError):
                await house.task("hello", message_id="")
            with pytest.raises(InvalidParamsError):
                await house.task("hello", role=Role.ROLE_UNSPECIFIED)
            with pytest.raises(InvalidParamsError, match="bytes"):
                await house.task("hello", parts=[Part(raw=b"x" * 5_000_000)])
            with pytest.raises(TaskNotFoundError):
                await house.get("x" * 10_000)

    asyncio.run(play())


def test_history_is_as_long_as_was_asked(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(book=ask, hello=complete), journal=journal) as house:
            task = await house.task("book")
            await house.task("hello", task_id=task.id)
            lengths = {
                asked: len((await house.get(task.id, history_length=asked)).history)
                for asked in (0, 1, 2, 50)
            }
            assert lengths == {0: 0, 1: 1, 2: 2, 50: 3}
            assert (await house.get(task.id, history_length=1)).history[0].parts[0].text == "hello"
            with pytest.raises(InvalidParamsError):
                await house.get(task.id, history_length=-1)
            request = house.request("hello")
            request.configuration.history_length = 0
            answer = await house.handler.on_message_send(request, by())
            assert isinstance(answer, Task)
            assert not answer.history

    asyncio.run(play())


def test_a_message_that_cannot_be_kept_leaves_no_task_behind() -> None:
    async def play() -> None:
        async with serving(Executor(go=complete)) as house:
            part = Part()
            part.data.number_value = float("nan")
            for more in ({"parts": [part]}, {"parts": [Part(text="go"), part]}):
                with pytest.raises(InvalidParamsError, match="cannot be kept"):
                    await house.send("go", **more)
            assert (await house.list()).total_size == 0
            assert not house.handler.tasks().hall.tasks

    asyncio.run(play())


@pytest.mark.parametrize("word", ["complete", "failed", "cancel"])
def test_a_last_word_after_the_call_is_over_ends_nothing(word: str, journal: str | None) -> None:
    said = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def go(work: Work) -> None:
        await work.begin()

        async def later() -> None:
            await returned.wait()
            await getattr(work.updater, word)(work.say("too late"))
            loops[0].call_soon_threadsafe(said.set)

        returned = asyncio.Event()
        left.append((asyncio.get_running_loop(), returned, asyncio.create_task(later())))
        await work.updater.requires_input(work.say("which one?"))

    left: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, asyncio.Task[None]]] = []

    async def play() -> None:
        loops.append(asyncio.get_running_loop())
        async with serving(Executor(go=go, on=complete), journal=journal) as house:
            task = await house.task("go")
            await house.settled()
            loop, returned, _ = left[0]
            loop.call_soon_threadsafe(returned.set)
            await asyncio.wait_for(said.wait(), 20)
            assert (await house.get(task.id)).status.state == INPUT_REQUIRED
            ended = await house.task("on", task_id=task.id)
            assert (ended.status.state, words(ended)) == (COMPLETED, "done")

    asyncio.run(play())


def test_a_whole_task_holds_no_message_twice(journal: str | None) -> None:
    """An executor that publishes its task as it sees it has said most of it before."""

    async def whole(work: Work) -> None:
        await work.begin()
        said, told = work.say("once"), work.say("told")
        await work.updater.update_status(WORKING, said)
        await work.updater.update_status(WORKING)
        assert work.context.message is not None
        task = Task(id=work.context.task_id, history=[work.context.message, said, told, told])
        await work.queue.enqueue_event(task)
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(whole=whole), journal=journal) as house:
            for _ in range(5):
                task = await house.task("whole")
                found = [message.parts[0].text for message in task.history]
                assert found == ["whole", "once", "told"]

    asyncio.run(play())
