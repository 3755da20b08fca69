"""Model, tools, model: what the model is asked, what is shown of it, and what comes back."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal

import pytest

from endstop import CallerError, Money, Outcome, Runtime, agent_tool, tool
from endstop.agents import Began, Ended, Loop, LoopEvent, LoopLimits, ModelAgent, Replied, Spoke
from endstop.agents.models import Ask, ModelReply, Say, Scripted, Usage
from endstop.core import events as e
from tests.loop.support import FORMATS, check_pairs, results_in


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@pytest.mark.parametrize("format", FORMATS)
def test_one_answer_for_every_call_in_every_format(format: str) -> None:
    """Good, invalid and unknown calls alike; the transcript pairs at every ask."""
    calls = [("add", {"a": 1, "b": 2}), ("add", {"a": "x"}), ("nope", {}), ("shout", {"text": "a"})]
    model = Scripted([Say(text="wait", calls=calls), Say(calls=calls[:1]), "done"], format=format)
    agent = ModelAgent(name="adder", model=model, tools=[add, shout], instructions="Be brief.")

    async def scene() -> None:
        async with Runtime() as runtime:
            result = await agent.run(runtime, "go")
        assert result.ended is Ended.DONE
        assert (result.outcome, result.text) == (Outcome.SUCCEEDED, "done")
        assert (result.turns, result.calls) == (3, 3)
        check_pairs(result.messages, format)

    asyncio.run(scene())
    assert [ask.system for ask in model.asks] == ["Be brief."] * 3
    assert [len(ask.tools) for ask in model.asks] == [2] * 3
    for ask in model.asks:
        check_pairs(list(ask.messages), format)


def test_what_is_said_is_shown_as_it_arrives() -> None:
    model = Scripted([Say(text="one two", calls=[("add", {"a": 1, "b": 1})]), "three"])
    seen: list[LoopEvent] = []

    def watch(event: LoopEvent) -> None:
        seen.append(event)
        raise ValueError("a watcher that fails changes nothing")

    async def scene() -> None:
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[add])
            result = await agent.run(runtime, "go", run_id="r1", on_event=watch)
            assert result.ok

    asyncio.run(scene())
    assert seen == [
        Began(run="r1", turn=1),
        Spoke(run="r1", turn=1, text="one "),
        Spoke(run="r1", turn=1, text="two"),
        Replied(run="r1", turn=1, text="one two", calls=1),
        Began(run="r1", turn=2),
        Spoke(run="r1", turn=2, text="three"),
        Replied(run="r1", turn=2, text="three", calls=0),
    ]


def test_record_first_a_reply_is_in_the_journal_before_its_calls_begin() -> None:
    """Law 15 record-first: whoever takes up the run finds the reply that asked for the calls."""
    model = Scripted([Say(calls=[("add", {"a": 1, "b": 1})]), "two"])
    kinds: list[str] = []

    async def scene() -> None:
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[add])
            await agent.run(runtime, "go", run_id="r1", labels={"who": "me"})
            for recorded in runtime.engine.journal.read("r1"):
                event = recorded.event
                kinds.append(event.kind if isinstance(event, e.Noted) else type(event).__name__)
            assert runtime.engine.journal.labelled({"who": "me"}) == ["r1"]

    asyncio.run(scene())
    told = [k for k in kinds if k in ("user", "reply", "BatchOpened", "CallSettled", "RunEnded")]
    assert told == ["user", "reply", "BatchOpened", "CallSettled", "reply", "RunEnded"]


def test_an_agent_is_offered_its_own_tools_and_no_others() -> None:
    """Two agents share a runtime: a call of a tool that another one has is a call of none."""
    model = Scripted([Say(calls=[("shout", {"text": "a"}), ("add", {"a": 1, "b": 1})]), "ok"])

    async def scene() -> list[str]:
        async with Runtime([shout]) as runtime:
            result = await ModelAgent(name="a", model=model, tools=[add]).run(runtime, "go")
            return results_in(result.messages)

    first, second = asyncio.run(scene())
    assert "no tool named 'shout'" in first
    assert second == "2"


def test_a_sub_agent_works_below_its_call_on_one_budget() -> None:
    """Law 20 paid-once: what a sub-agent's replies and calls cost counts in its parent's run."""
    price = Usage(
        input_tokens=10, output_tokens=5, cost=Money(amount=Decimal("0.02"), currency="USD")
    )

    @tool(cost="0.10 USD")
    async def buy() -> str:
        return "bought"

    inner = Scripted([Say(calls=[("buy", {})], usage=price), Say(text="it is done", usage=price)])
    clerk = ModelAgent(name="clerk", model=inner, tools=[buy], description="Buys things.")
    outer = Scripted([Say(calls=[("clerk", {"prompt": "buy it"})], usage=price), "thanks"])
    boss = ModelAgent(
        name="boss", model=outer, tools=[agent_tool(clerk)], limits=LoopLimits(money="1 USD")
    )

    async def scene() -> None:
        async with Runtime() as runtime:
            run = boss.open(runtime)
            loop = Loop(runtime, run, boss)
            loop.say("go")
            result = await loop.drive()
            assert results_in(result.messages) == ["it is done"]
            taken = runtime.engine.state.runs[run.id].budget.taken("USD")
            assert taken == Decimal("0.16")
            run.close()

    asyncio.run(scene())
    assert inner.asks[0].messages[0]["content"] == "buy it"


def test_a_sub_agent_that_fails_is_a_failed_call() -> None:
    inner = Scripted([])
    clerk = ModelAgent(name="clerk", model=inner)
    boss = ModelAgent(
        name="boss",
        model=Scripted([Say(calls=[("clerk", {"prompt": "x"})]), "oh"]),
        tools=[agent_tool(clerk)],
    )

    async def scene() -> list[str]:
        async with Runtime() as runtime:
            return results_in((await boss.run(runtime, "go")).messages)

    (text,) = asyncio.run(scene())
    assert "agent clerk: The script of model 'scripted' has run out" in text


def test_a_loop_goes_on_with_what_is_said_next() -> None:
    """The run stays open between two drives, and is closed by whoever opened it."""

    def echo(ask: Ask) -> str:
        return f"{len(ask.messages)} messages"

    async def scene() -> None:
        async with Runtime() as runtime, runtime.run() as run:
            loop = Loop(runtime, run, ModelAgent(name="a", model=Scripted(echo)))
            assert (await loop.drive()).turns == 0
            assert loop.say("one")
            assert (await loop.drive()).text == "1 messages"
            assert loop.say("two", source="a form")
            assert (await loop.drive()).text == "3 messages"
            with pytest.raises(CallerError, match="blank"):
                loop.say("  ")
            assert run.id in runtime.engine.state.runs
            run.close()
            assert not loop.say("three")

    asyncio.run(scene())


def test_ids_that_come_again_do_not_confuse_the_transcript() -> None:
    """Law 4 one-answer: some servers give every call the same id, or none."""
    call = {"type": "tool_use", "id": "x", "name": "add", "input": {"a": 1, "b": 1}}
    body = {
        "type": "message",
        "role": "assistant",
        "content": [call, call],
        "stop_reason": "tool_use",
    }
    lines = [ModelReply(body=body), ModelReply(body=body), ModelReply(body=body), "done"]
    model = Scripted(lines, format="anthropic-messages")

    async def scene() -> None:
        async with Runtime() as runtime:
            result = await ModelAgent(name="a", model=model, tools=[add]).run(runtime, "go")
        assert result.calls == 6
        check_pairs(result.messages, "anthropic-messages")

    asyncio.run(scene())
    for ask in model.asks:
        check_pairs(list(ask.messages), "anthropic-messages")
        ids = [
            block["id"]
            for message in ask.messages
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_use"
        ]
        assert len(ids) == len(set(ids))


def test_what_is_wrong_with_an_agent_is_said_where_it_is_made() -> None:
    model = Scripted(["x"])
    for problem, words in [
        ({"name": ""}, "name is text"),
        ({"model": object()}, "is no model"),
        ({"tools": [print]}, "is no tool"),
        ({"limits": 3}, "LoopLimits"),
    ]:
        with pytest.raises(CallerError, match=words):
            ModelAgent(**({"name": "a", "model": model} | problem))  # type: ignore[arg-type]
    for bad, words in [
        ({"turns": 0}, "turns"),
        ({"calls": True}, "calls"),
        ({"tokens": 1.5}, "tokens"),
        ({"money": "cheap"}, "money"),
        ({"wall_s": -1}, "wall_s"),
        ({"cuts": -1}, "cuts"),
    ]:
        with pytest.raises(CallerError, match=words):
            LoopLimits(**bad)  # type: ignore[arg-type]


def test_an_amount_that_is_none_is_refused_before_the_core_believes_it() -> None:
    async def scene() -> None:
        async with Runtime() as runtime, runtime.run() as run:
            for bad in (
                "1 USD",
                3,
                Money(amount=Decimal("-1"), currency="USD"),
                Money(amount=Decimal("NaN"), currency="USD"),
            ):
                with pytest.raises(CallerError, match="spent is Money"):
                    run.note("paid", {}, spent=bad)  # type: ignore[arg-type]
            assert run.note("paid", {}, spent=Money(amount=Decimal("1"), currency="USD"))

    asyncio.run(scene())


@pytest.mark.parametrize("stop", [False, True])
def test_a_sub_agent_on_a_loop_of_its_own(stop: bool) -> None:
    """Bodies may live on worker loops; a sub-agent and its model then do, too."""
    holding = threading.Event()

    def answer(ask: Ask) -> Say:
        if ask.messages[-1]["role"] == "tool":
            return Say(text="inner done")
        if stop:
            holding.set()
        return Say(calls=[("add", {"a": 1, "b": 1})], delay_s=60 if stop else 0)

    inner = ModelAgent(name="inner", model=Scripted(answer), tools=[add])
    outer = Scripted([Say(calls=[("inner", {"prompt": "go"})]), "outer done"])
    boss = ModelAgent(name="boss", model=outer, tools=[agent_tool(inner)])

    async def scene() -> None:
        async with Runtime(bodies="own-loop") as runtime:
            going = asyncio.create_task(boss.run(runtime, "go", run_id="r1"))
            if stop:
                await asyncio.to_thread(holding.wait, 10)
                await runtime.cancel("r1")
            result = await asyncio.wait_for(going, 10)
            assert result.ended is (Ended.CANCELLED if stop else Ended.DONE)
            if not stop:
                assert results_in(result.messages) == ["inner done"]

    asyncio.run(scene())
