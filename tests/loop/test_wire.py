"""A loop whose model is a real HTTP server on this machine: streams end, break and are stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest

from endstop import OpenAICompatible, Runtime, tool
from endstop.agents import Ended, LoopEvent, LoopLimits, ModelAgent, Spoke, Voided
from tests.loop.support import check_pairs, results_in
from tests.models.server import (
    DONE,
    WAIT_S,
    Line,
    Request,
    answers,
    chat,
    chunk,
    play,
    serving,
    streams,
)

began: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    began.clear()


@tool
async def work(name: str) -> str:
    began.append(name)
    return f"{name} is done"


def call(name: str = "a") -> list[bytes]:
    """The events of a reply that says something and calls the tool."""
    function = {"name": "work", "arguments": f'{{"name": "{name}"}}'}
    asked = {"index": 0, "id": f"call_{name}", "type": "function", "function": function}
    return [
        chunk({"role": "assistant", "content": "let me"}),
        chunk({"tool_calls": [asked]}),
        chunk({}, "tool_calls", usage={"prompt_tokens": 5, "completion_tokens": 2}),
        DONE,
    ]


def agent(url: str) -> ModelAgent:
    model = OpenAICompatible("m", base_url=url)
    return ModelAgent(name="a", model=model, tools=[work], limits=LoopLimits(turns=9, breaks=1))


def test_a_conversation_over_the_wire() -> None:
    async def scene() -> None:
        async with serving(streams(*call()), streams(*chat("all done"))) as server:
            made = agent(server.url)
            async with Runtime() as runtime:
                result = await made.run(runtime, "go")
            await made.model.aclose()
            assert (result.ended, result.text, result.tokens) == (Ended.DONE, "alldone", 14)
            sent = server.requests[1].body["messages"]
            assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
            check_pairs(sent, "openai-chat")
            assert server.requests[0].body["tools"][0]["function"]["name"] == "work"

    play(scene)
    assert began == ["a"]


@pytest.mark.parametrize("sent", [1, 2, 3])
@pytest.mark.parametrize("from_thread", [False, True])
def test_one_door_a_call_of_a_stream_that_was_stopped_never_runs(
    sent: int, from_thread: bool
) -> None:
    """However much of it had arrived: also all of it but the last word."""
    seen: list[LoopEvent] = []

    async def scene() -> None:
        waits = asyncio.Event()

        async def answer(line: Line, request: Request) -> None:
            await line.stream_head()
            for piece in call()[:sent]:
                await line.chunk(piece)
            waits.set()
            await line.gone()

        async with serving(answer) as server, Runtime() as runtime:
            made = agent(server.url)
            going = asyncio.create_task(made.run(runtime, "go", run_id="r", on_event=seen.append))
            await asyncio.wait_for(waits.wait(), WAIT_S)
            while not any(isinstance(event, Spoke) for event in seen):
                await asyncio.sleep(0.001)
            if from_thread:
                await asyncio.to_thread(lambda: runtime.cancel("r"))
            else:
                await runtime.cancel("r")
            result = await asyncio.wait_for(going, WAIT_S)
            assert result.ended is Ended.CANCELLED
            await server.emptied()
            assert len(server.requests) == 1
            await made.model.aclose()

    before = threading.active_count()
    play(scene)
    assert threading.active_count() <= before + 1
    assert began == []
    assert isinstance(seen[-1], Voided)


@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("end", ["hang up", "reset"])
def test_one_door_a_stream_that_breaks_runs_nothing_and_is_asked_again(sent: int, end: str) -> None:
    """What was shown of it is void; whatever it called is called by the next one, or not at all."""
    seen: list[LoopEvent] = []

    async def scene() -> None:
        broken = streams(*call("broken")[:sent], end=end)
        async with serving(broken, streams(*call("whole")), streams(*chat("done"))) as server:
            made = agent(server.url)
            async with Runtime() as runtime:
                result = await made.run(runtime, "go", on_event=seen.append)
            await made.model.aclose()
            assert result.ended is Ended.DONE
            assert results_in(result.messages) == ["whole is done"]

    play(scene)
    assert began == ["whole"]


def test_an_error_of_the_provider_fails_the_run_in_its_words() -> None:
    async def scene() -> None:
        body = {"error": {"message": "You have no credit left", "type": "insufficient_quota"}}
        async with serving(answers(body, "401 Unauthorized")) as server:
            made = agent(server.url)
            async with Runtime() as runtime:
                result = await made.run(runtime, "go")
            await made.model.aclose()
            assert result.ended is Ended.FAILED
            assert "You have no credit left" in result.why
            assert len(server.requests) == 1

    play(scene)
