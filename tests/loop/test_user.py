"""What a user says meanwhile: steering skips what has not begun, a follow-up waits for the end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from endstop import Outcome, Runtime, tool
from endstop.agents import Ended, Loop, LoopResult, ModelAgent
from endstop.agents.models import Ask, Say, Scripted
from endstop.agents.transcript import Step
from endstop.core import events as e
from tests.loop.support import FORMATS, Held, check_pairs, results_in

SKIPPED = "Tool call not started: a newer request took its place."


def asked(model: Scripted) -> list[list[str]]:
    """What the user had said in each ask."""
    return [[m["content"] for m in ask.messages if m.get("role") == "user"] for ask in model.asks]


@pytest.mark.parametrize("from_thread", [False, True])
def test_steering_skips_what_has_not_begun_and_is_no_cancel(from_thread: bool) -> None:
    """What runs finishes, the rest is answered in order, and the model hears it next."""
    gate, running = asyncio.Event(), asyncio.Event()
    began: list[str] = []

    @tool
    async def work(name: str) -> str:
        began.append(name)
        running.set()
        await gate.wait()
        return name

    calls = [("work", {"name": name}) for name in "abc"]
    model = Scripted([Say(calls=calls), "done"])

    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            run = runtime.run("r1")
            agent = ModelAgent(name="a", model=model, tools=[work], parallel=1)
            loop = Loop(runtime, run, agent)
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            await running.wait()
            if from_thread:
                thread = threading.Thread(target=lambda: loop.steer("rather not"))
                thread.start()
                thread.join()
            else:
                assert loop.steer("rather not")
            async with asyncio.timeout(10):
                while len(runtime.calls()) > 1:
                    await asyncio.sleep(0.001)
            gate.set()
            result = await going
            events = [one.event for one in runtime.engine.journal.read("r1")]
            assert not [one for one in events if isinstance(one, e.RunCancelled)]
            return result

    result = asyncio.run(scene())
    assert (result.ended, result.outcome) == (Ended.DONE, Outcome.SUCCEEDED)
    assert began == ["a"]
    assert results_in(result.messages) == ["a", SKIPPED, SKIPPED]
    assert asked(model) == [["go"], ["go", "rather not"]]
    assert result.messages[-2]["content"] == "rather not"


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_said_while_the_model_replies_skips_all_its_calls(format: str) -> None:
    """None of them was asked for with that in mind; none ever begins."""
    began: list[str] = []

    @tool
    async def work(name: str) -> str:
        began.append(name)
        return name

    script = Scripted([Say(calls=[("work", {"name": "a"}), ("nope", {})]), "done"], format=format)

    async def scene() -> LoopResult:
        model = Held(script)
        async with Runtime() as runtime:
            run = runtime.run()
            loop = Loop(runtime, run, ModelAgent(name="a", model=model, tools=[work]))
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            await model.holds.wait()
            loop.steer("one more thing")
            model.go_on.set()
            return await going

    result = asyncio.run(scene())
    assert result.ok
    assert began == []
    check_pairs(result.messages, format)
    for ask in script.asks:
        check_pairs(list(ask.messages), format)
    if format == "openai-chat":
        assert results_in(result.messages) == [SKIPPED, SKIPPED]
    assert "one more thing" in str(script.asks[1].messages[-1])
    assert "one more thing" not in str(script.asks[0].messages)


def test_what_is_said_while_the_last_word_comes_is_heard_after_it() -> None:
    script = Scripted(["first", "second"])

    async def scene() -> LoopResult:
        model = Held(script)
        async with Runtime() as runtime:
            run = runtime.run()
            loop = Loop(runtime, run, ModelAgent(name="a", model=model))
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            await model.holds.wait()
            loop.steer("wait")
            model.go_on.set()
            return await going

    assert asyncio.run(scene()).text == "second"
    assert [m["content"] for m in script.asks[1].messages] == ["go", "first", "wait"]


def test_follow_ups_wait_for_the_end_one_after_the_other() -> None:
    """They skip nothing, and each is heard once the model has nothing else to do."""
    began: list[str] = []

    @tool
    async def work(name: str) -> str:
        began.append(name)
        return name

    def line(ask: Ask) -> Say | str:
        said = [m["content"] for m in ask.messages if m["role"] == "user"]
        if ask.messages[-1]["role"] == "user" and said[-1] == "go":
            return Say(calls=[("work", {"name": "a"})])
        return f"after {said[-1]}"

    script = Scripted(line)

    async def scene() -> LoopResult:
        model = Held(script)
        async with Runtime() as runtime:
            run = runtime.run()
            loop = Loop(runtime, run, ModelAgent(name="a", model=model, tools=[work]))
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            await model.holds.wait()
            loop.say("one")
            loop.say("two")
            model.go_on.set()
            return await going

    result = asyncio.run(scene())
    assert began == ["a"]
    assert asked(script) == [["go"], ["go"], ["go", "one"], ["go", "one", "two"]]
    texts = [m["content"] for m in result.messages if m["role"] == "assistant"]
    assert texts == [None, "after go", "after one", "after two"]


def test_nothing_that_was_accepted_is_left_unheard() -> None:
    """What `say` took is answered, or it said that the run is over; from many threads at once."""
    script = Scripted(lambda ask: "ok")

    async def scene() -> tuple[int, LoopResult]:
        async with Runtime() as runtime:
            run = runtime.run()
            loop = Loop(runtime, run, ModelAgent(name="a", model=script))
            loop.say("go")
            taken: list[bool] = []

            def talk() -> None:
                for _ in range(10):
                    taken.append(loop.say("more"))
                    taken.append(loop.steer("more"))

            threads = [threading.Thread(target=talk) for _ in range(4)]
            for thread in threads:
                thread.start()
            result = await loop.drive(close=True)
            for thread in threads:
                await asyncio.to_thread(thread.join)
            return sum(taken), result

    for _ in range(5):
        taken, result = asyncio.run(scene())
        said = [m for m in result.messages if m["role"] == "user"]
        assert len(said) == taken + 1
        assert result.messages[-1]["role"] == "assistant"


def test_what_is_said_in_the_last_moment_is_heard() -> None:
    """Between the look at what is left to do and the closing of the run."""

    class Interrupted(Loop):
        spoken = False

        def _over(self) -> bool:
            if not self.spoken and self.transcript.step is Step.REST:
                self.spoken = True
                assert self.say("one more")
            return super()._over()

    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=Scripted(["first", "second"]))
            loop = Interrupted(runtime, runtime.run(), agent)
            loop.say("go")
            return await loop.drive(close=True)

    result = asyncio.run(scene())
    assert result.text == "second"
    assert [m["content"] for m in result.messages] == ["go", "first", "one more", "second"]


def test_what_is_said_while_calls_are_handed_in_still_skips_those_that_have_not_begun() -> None:
    """In the moment between the decision to hand them in and the batch."""
    gate = asyncio.Event()
    began: list[str] = []

    @tool
    async def work(name: str) -> str:
        began.append(name)
        await gate.wait()
        return name

    class Late(Loop):
        async def _hand_in(self, *given: Any, **more: Any) -> None:
            assert self.steer("rather not")
            # Rung before the batch is there.
            await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.05, gate.set)
            await super()._hand_in(*given, **more)

    async def scene() -> LoopResult:
        model = Scripted([Say(calls=[("work", {"name": name}) for name in "ab"]), "done"])
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[work], parallel=1)
            loop = Late(runtime, runtime.run(), agent)
            loop.say("go")
            return await loop.drive(close=True)

    result = asyncio.run(scene())
    assert began == ["a"]
    assert results_in(result.messages) == ["a", SKIPPED]
