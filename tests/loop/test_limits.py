"""Limits: each ends the loop with a clear reason, and leaves a transcript that pairs."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from endstop import AsyncContext, Money, Outcome, Runtime, tool
from endstop.agents import Ended, Limit, LoopLimits, LoopResult, ModelAgent
from endstop.agents.models import Ask, ModelError, ModelReply, Say, Scripted, Usage
from tests.loop.support import FORMATS, Held, check_pairs, results_in


@tool
async def work(name: str) -> str:
    return name


@tool(cost="0.40 USD")
async def buy() -> str:
    return "bought"


@tool
async def wait(ctx: AsyncContext) -> str:
    await ctx.sleep(60)
    return "never"


def cost(amount: str) -> Usage:
    spent = Money(amount=Decimal(amount), currency="USD")
    return Usage(input_tokens=100, output_tokens=20, cost=spent)


def run(agent: ModelAgent) -> LoopResult:
    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            result = await agent.run(runtime, "go", run_id="r1")
            again = await agent.resume(runtime, "r1")
            assert again == result, "what is recorded says the same"
            return result

    return asyncio.run(asyncio.wait_for(scene(), 20))


def always(*calls: tuple[str, dict[str, str]], usage: Usage | None = None) -> Scripted:
    say = Say(calls=calls) if usage is None else Say(calls=calls, usage=usage)
    return Scripted(lambda ask: say)


def test_turns_a_model_that_never_ends_is_ended() -> None:
    """Also one that makes the same failing call again and again."""
    model = always(("nope", {}))
    result = run(ModelAgent(name="a", model=model, limits=LoopLimits(turns=4)))
    assert (result.ended, result.outcome) == (Ended.LIMIT, Outcome.FAILED)
    assert result.why == "the limit of 4 turns is used up"
    assert len(model.asks) == result.turns == 4
    check_pairs(result.messages, "openai-chat")


def test_turns_are_limited_where_nothing_is_said() -> None:
    assert LoopLimits().turns == 100


@pytest.mark.parametrize("format", FORMATS)
def test_calls_the_first_one_too_many_ends_the_loop_answered(format: str) -> None:
    """Law 4 one-answer: what is over the limit is rejected in its place, the rest has run."""
    calls = [
        ("work", {"name": "a"}),
        ("nope", {}),
        ("work", {"name": "b"}),
        ("work", {"name": "c"}),
    ]
    model = Scripted([Say(calls=calls[:1]), Say(calls=calls), "never"], format=format)
    agent = ModelAgent(name="a", model=model, tools=[work], limits=LoopLimits(calls=3))
    result = run(agent)
    assert result.ended is Ended.LIMIT
    assert result.why == "the limit of 3 tool calls is used up"
    assert (result.calls, model.left) == (3, 1)
    check_pairs(result.messages, format)
    if format == "openai-chat":
        *_, last = results_in(result.messages)
        assert last.startswith("Tool call not started: it would exceed the budget.")


def test_calls_a_model_that_stays_within_the_limit_says_its_last_word() -> None:
    model = Scripted([Say(calls=[("work", {"name": "a"})] * 2), "done"])
    agent = ModelAgent(name="a", model=model, tools=[work], limits=LoopLimits(calls=2))
    assert run(agent).ended is Ended.DONE


def test_calls_of_sub_agents_count() -> None:
    """Law 20 paid-once: a sub-agent draws on the same budget."""
    from endstop import agent_tool

    inner = ModelAgent(
        name="inner",
        model=Scripted([Say(calls=[("work", {"name": "x"})] * 3), "did it", "did it again"]),
        tools=[work],
    )
    outer = Scripted(
        [
            Say(calls=[("inner", {"prompt": "x"})]),
            Say(calls=[("inner", {"prompt": "x"})]),
            "never",
        ]
    )
    limits = LoopLimits(calls=3)
    result = run(ModelAgent(name="o", model=outer, tools=[agent_tool(inner)], limits=limits))
    assert result.ended is Ended.LIMIT
    assert result.calls == 1
    assert "used up" in result.why


def test_tokens() -> None:
    model = always(("work", {"name": "a"}), usage=cost("0"))
    agent = ModelAgent(name="a", model=model, tools=[work], limits=LoopLimits(tokens=300))
    result = run(agent)
    assert result.why == "360 tokens are used, and the limit is 300"
    assert result.tokens == 360


def test_money_of_replies_and_of_calls_is_one_sum() -> None:
    """Law 20 paid-once: what a reply cost leaves less for calls, and the other way round."""
    model = always(("buy", {}), usage=cost("0.10"))
    limits = LoopLimits(money="1.20 USD")
    result = run(ModelAgent(name="a", model=model, tools=[buy], limits=limits))
    assert result.ended is Ended.LIMIT
    assert results_in(result.messages)[:2] == ["bought", "bought"]
    # 0.10 + 0.40 + 0.10 + 0.40 + 0.10 is 1.10, and 0.10 are left: the third is too dear.
    assert all("would exceed the budget" in text for text in results_in(result.messages)[2:])
    assert result.why == "1.20 USD are spent, and the limit is 1.20"
    assert result.spent == (Money(amount=Decimal("1.20"), currency="USD"),)
    check_pairs(result.messages, "openai-chat")


def test_wall_ends_the_stream() -> None:
    async def scene() -> None:
        model = Held(Scripted(["never"]))
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, limits=LoopLimits(wall_s=0.05))
            result = await asyncio.wait_for(agent.run(runtime, "go"), 10)
        assert result.ended is Ended.LIMIT
        assert result.why == "the limit of 0.05 s is used up"
        assert model.closed == 1

    asyncio.run(scene())


def test_wall_ends_the_calls() -> None:
    """What runs is timed out by the ladder, and answered."""
    model = Scripted([Say(calls=[("wait", {})]), "never"])
    agent = ModelAgent(name="a", model=model, tools=[wait], limits=LoopLimits(wall_s=0.2))
    result = run(agent)
    assert result.ended is Ended.LIMIT
    assert results_in(result.messages)[0].startswith("Tool call timed out with its batch")
    assert model.left == 1


def test_machine_time_the_wall_stands_still_while_a_human_decides() -> None:
    """Law 8: an approval that takes longer than the whole limit costs nothing of it."""

    @tool(approval="always")
    async def risky() -> str:
        return "done it"

    model = Scripted([Say(calls=[("risky", {})]), "done"])

    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            limits = LoopLimits(wall_s=0.3)
            agent = ModelAgent(name="a", model=model, tools=[risky], limits=limits)
            going = asyncio.create_task(agent.run(runtime, "go"))
            while not runtime.pending():
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.6)
            runtime.approve(runtime.pending()[0].call_id)
            return await asyncio.wait_for(going, 10)

    assert asyncio.run(scene()).ended is Ended.DONE


# -- replies that are not whole


@pytest.mark.parametrize("format", FORMATS)
def test_a_reply_that_was_cut_off_runs_nothing_and_the_model_is_told(format: str) -> None:
    began: list[str] = []

    @tool(effect="read_only")
    async def look() -> str:
        began.append("look")
        return "seen"

    cut = Say(text="I will", calls=[("look", {}), ("nope", {})], cut=True)
    model = Scripted([cut, Say(calls=[("look", {})]), "done"], format=format)
    result = run(ModelAgent(name="a", model=model, tools=[look]))
    assert result.ended is Ended.DONE
    assert began == ["look"]
    assert result.calls == 1
    check_pairs(result.messages, format)
    assert "cut off" in str(model.asks[1].messages)


@pytest.mark.parametrize("format", FORMATS)
def test_a_last_word_that_was_cut_off_is_gone_on_with(format: str) -> None:
    model = Scripted([Say(text="It is", cut=True), "three"], format=format)
    result = run(ModelAgent(name="a", model=model))
    assert result.text == "three"
    assert "Your last reply was cut off" in str(model.asks[1].messages[-1])


def test_replies_that_are_cut_off_again_and_again_end_the_loop() -> None:
    model = Scripted(lambda ask: Say(calls=[("work", {"name": "a"})], cut=True))
    result = run(ModelAgent(name="a", model=model, tools=[work], limits=LoopLimits(cuts=1)))
    assert (result.ended, result.outcome) == (Ended.FAILED, Outcome.FAILED)
    assert result.why == "2 replies in a row were cut off (length)"
    assert result.calls == 0
    check_pairs(result.messages, "openai-chat")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("refusal", "refused to let the model answer"),
        ("model_context_window_exceeded", "does not fit into the model's context"),
    ],
)
def test_a_cut_that_asking_again_does_not_mend_ends_the_loop(reason: str, words: str) -> None:
    call = {"type": "tool_use", "id": "x", "name": "work", "input": {"name": "a"}}
    body = {"type": "message", "role": "assistant", "content": [call], "stop_reason": reason}
    model = Scripted([ModelReply(body=body), "never"], format="anthropic-messages")
    result = run(ModelAgent(name="a", model=model, tools=[work]))
    assert result.ended is Ended.FAILED
    assert words in result.why
    assert result.calls == 0
    check_pairs(result.messages, "anthropic-messages")


# -- models that fail


@pytest.mark.parametrize(
    "error",
    [
        ModelError("auth", "No key was given: set KEY"),
        ModelError("too_large", "The conversation is larger than the model's context"),
        ModelError("overloaded", "503, five times"),
    ],
)
def test_a_model_that_gives_no_reply_fails_the_run_in_words(error: ModelError) -> None:
    model = Scripted([Say(calls=[("work", {"name": "a"})]), error, "never"])
    result = run(ModelAgent(name="a", model=model, tools=[work]))
    assert (result.ended, result.outcome) == (Ended.FAILED, Outcome.FAILED)
    assert result.why == str(error)
    assert model.left == 1
    check_pairs(result.messages, "openai-chat")


def test_a_stream_that_breaks_is_asked_again_within_bounds() -> None:
    broken = ModelError("broken_stream", "The stream ended in the middle of a reply")
    model = Scripted([broken, Say(calls=[("work", {"name": "a"})]), broken, "done"])
    agent = ModelAgent(name="a", model=model, tools=[work], limits=LoopLimits(breaks=1))
    assert run(agent).ended is Ended.DONE
    model = Scripted([broken, broken, "never"])
    result = run(ModelAgent(name="a", model=model, limits=LoopLimits(breaks=1)))
    assert result.ended is Ended.FAILED
    assert result.why == str(broken)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (ValueError("boom"), "Model 'scripted' failed: ValueError: boom"),
        (SystemExit(3), "Model 'scripted' failed: SystemExit"),
        ({"nothing": 1}, "cannot be read"),
        ({"choices": []}, "cannot be read"),
    ],
)
def test_any_payload_whatever_a_model_does_is_a_failure_in_words(line: object, words: str) -> None:
    """Law 19: what is anybody's code neither takes the loop down nor is it a traceback."""

    def answer(ask: Ask) -> object:
        if isinstance(line, BaseException):
            raise line
        return line

    model = Scripted(answer)
    result = run(ModelAgent(name="a", model=model, limits=LoopLimits(breaks=0)))
    assert result.ended is Ended.FAILED
    assert words in result.why


def test_a_limit_has_a_name() -> None:
    assert [str(one) for one in Limit] == ["turns", "calls", "tokens", "money", "wall_s"]


# -- tools that ask for the end


@tool(terminate=True)
async def submit(text: str) -> str:
    if text == "bad":
        raise ValueError("no")
    return text


def test_terminate_ends_the_loop_only_if_every_call_asks_for_it() -> None:
    mixed = Say(calls=[("submit", {"text": "a"}), ("work", {"name": "b"})])
    failed = Say(calls=[("submit", {"text": "a"}), ("submit", {"text": "bad"})])
    all_of_them = Say(calls=[("submit", {"text": "a"}), ("submit", {"text": "b"})])
    model = Scripted([mixed, failed, all_of_them, "never"])
    result = run(ModelAgent(name="a", model=model, tools=[submit, work]))
    assert (result.ended, result.outcome) == (Ended.TERMINATED, Outcome.SUCCEEDED)
    assert result.turns == 3
    assert model.left == 1
    check_pairs(result.messages, "openai-chat")


def test_terminate_waits_for_what_a_user_said_meanwhile() -> None:
    """Who has something to say is heard: only a conversation with nothing left to do ends."""
    script = Scripted([Say(calls=[("submit", {"text": "a"})]), "heard you"])

    async def scene() -> LoopResult:
        from endstop.agents import Loop

        model = Held(script)
        async with Runtime() as runtime:
            opened = runtime.run()
            loop = Loop(runtime, opened, ModelAgent(name="a", model=model, tools=[submit]))
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            await model.holds.wait()
            loop.say("and then?")
            model.go_on.set()
            return await going

    result = asyncio.run(scene())
    assert (result.ended, result.text) == (Ended.DONE, "heard you")
