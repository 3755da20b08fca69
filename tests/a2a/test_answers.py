"""Questions of running bodies and approvals, answered by messages to the task (law 13)."""

from __future__ import annotations

import asyncio

import pytest
from a2a.types.a2a_pb2 import Message, Part, Role
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import ParseDict

from endstop import Runtime, current, tool
from endstop.a2a.answers import Approval, Told, read_answer
from endstop.core import events as e
from endstop.core.terms import ToolCall
from endstop.run.approvals import Approve, Edit, Reject, Respond
from endstop.run.handles import Run
from endstop.tools.context import AsyncContext
from tests.a2a.serving import (
    COMPLETED,
    INPUT_REQUIRED,
    Executor,
    Work,
    everything,
    serving,
    words,
)


def asked(call: str = "r/0.0") -> e.ApprovalAsked:
    return e.ApprovalAsked(
        run="r",
        call=call,
        digest=f"d-{call}",
        prompt="",
        expires_s=None,
        arguments={"amount": 5},
        claims=(),
        cost=None,
    )


def said(text: str = "", data: object = None) -> Message:
    message = Message(message_id="m", role=Role.ROLE_USER)
    if text:
        message.parts.append(Part(text=text))
    if data is not None:
        part = Part()
        ParseDict(data, part.data)  # type: ignore[arg-type]
        message.parts.append(part)
    return message


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (said("yes"), Approve()),
        (said("Approve!"), Approve()),
        (said("no"), Reject("")),
        (said("no: too dear"), Reject("too dear")),
        (said('edit {"amount": 3}'), Edit({"amount": 3})),
        (said("respond: it is 5"), Respond("it is 5")),
        (said(data={"approve": True}), Approve()),
        (said(data={"approve": False, "message": "never"}), Reject("never")),
        (said(data={"verdict": "edit", "arguments": {"amount": 3, "to": ["a", 1]}}),
         Edit({"amount": 3, "to": ["a", 1]})),
        (said(data={"verdict": "respond", "text": "done by hand"}), Respond("done by hand")),
    ],
)  # fmt: skip
def test_what_is_an_answer(message: Message, answer: object) -> None:
    read = read_answer(message, {"r/0.0": asked()}, {})
    assert read == Approval(call="r/0.0", digest="d-r/0.0", answer=answer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        said("yes, but only after lunch"),
        said("maybe"),
        said("edit nonsense"),
        said("edit [1]"),
        said(data={"approve": "yes"}),
        said(data={"call": "r/0.7", "approve": True}),
    ],
)
def test_what_is_no_clear_answer_is_no_yes(message: Message) -> None:
    with pytest.raises(InvalidParamsError):
        read_answer(message, {"r/0.0": asked()}, {})


def test_of_several_calls_one_is_named() -> None:
    both = {"r/0.0": asked(), "r/0.1": asked("r/0.1")}
    with pytest.raises(InvalidParamsError, match="several calls wait"):
        read_answer(said("yes"), both, {})
    read = read_answer(said(data={"call": "r/0.1", "approve": True}), both, {})
    assert isinstance(read, Approval)
    assert (read.call, read.digest) == ("r/0.1", "d-r/0.1")


def test_a_question_is_answered_by_text_or_by_name() -> None:
    one = e.QuestionAsked(run="r", call="r/0.0", question="r/0.0?1", text="which?")
    two = e.QuestionAsked(run="r", call="r/0.0", question="r/0.0?2", text="when?")
    assert read_answer(said("blue"), {}, {one.question: one}) == Told(
        question=one.question, text="blue"
    )
    with pytest.raises(InvalidParamsError, match="by name"):
        read_answer(said("blue"), {}, {one.question: one, two.question: two})
    named = said(data={"question": two.question, "answer": "now"})
    assert read_answer(named, {}, {one.question: one, two.question: two}) == Told(
        question=two.question, text="now"
    )


def test_what_a_running_agent_asks_is_answered_by_a_message() -> None:
    async def paint(work: Work) -> None:
        await work.begin()
        ctx = current()
        assert isinstance(ctx, AsyncContext)
        colour = await ctx.ask("which colour?", choices=["red", "blue"])
        await work.updater.complete(work.say(colour))

    executor = Executor(paint=paint)

    async def play() -> None:
        async with serving(executor) as house:
            task = await house.task("paint")
            assert task.status.state == INPUT_REQUIRED
            assert "which colour?" in words(task)
            assert "red, blue" in words(task)
            with pytest.raises(InvalidParamsError, match="'red', 'blue'"):
                await house.task("green", task_id=task.id)
            watching = asyncio.create_task(everything(house.subscribe(task.id)))
            await asyncio.sleep(0)
            ended = await house.task("blue", task_id=task.id)
            assert (ended.status.state, words(ended)) == (COMPLETED, "blue")
            assert executor.executions == ["paint"], "an answer starts nothing"
            seen = await watching
            states = [one.status.state for one in seen]
            assert states[0] == INPUT_REQUIRED
            assert states[-1] == COMPLETED
            assert "blue" in [one.parts[0].text for one in ended.history]

    asyncio.run(play())


def test_a_yes_to_something_else_is_refused_and_the_call_goes_on_waiting() -> None:
    paid: list[int] = []

    @tool(name="pay", effect="effectful", isolation="coroutine", approval="always")
    async def pay(amount: int) -> None:
        """Pay something."""
        paid.append(amount)

    async def play() -> None:
        async with Runtime([pay], bodies="own-loop") as runtime:

            async def buy(work: Work) -> None:
                await work.begin()
                run = Run(runtime, work.context.task_id or "")
                await run.execute([ToolCall(model_id="x", tool="pay", arguments={"amount": 3})])
                await work.updater.complete()

            async with serving(Executor(buy=buy), runtime=runtime) as house:
                task = await house.task("buy")
                assert task.status.state == INPUT_REQUIRED
                part = Part()
                ParseDict({"approve": True, "digest": "of something else"}, part.data)
                with pytest.raises(InvalidParamsError, match="something else"):
                    await house.send("", task_id=task.id, parts=[part])
                still = await house.get(task.id)
                assert still.status.state == INPUT_REQUIRED
                assert len(still.history) == len(task.history)
                assert paid == []
                ended = await house.task("yes", task_id=task.id)
                assert ended.status.state == COMPLETED
                assert paid == [3]

    asyncio.run(play())
