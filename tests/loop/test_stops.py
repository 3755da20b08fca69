"""Stopping a loop: in the model's stream, between two steps, and while its calls run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from endstop import AsyncContext, Mode, Outcome, Reason, RunSuspended, Runtime, tool
from endstop.agents import Ended, Loop, LoopEvent, LoopResult, ModelAgent, Spoke, Voided
from endstop.agents.models import Ask, Delta, ModelError, ModelReply, Say, Scripted
from endstop.store.memory import MemoryJournal
from tests.loop.support import Held, check_pairs, results_in

began: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    began.clear()


@tool
async def work(name: str) -> str:
    began.append(name)
    return name


@tool
async def wait(name: str, ctx: AsyncContext) -> str:
    began.append(name)
    await ctx.sleep(60)
    return name


def held(*, hold_at: int = 1) -> Held:
    calls = [("work", {"name": "a"}), ("work", {"name": "b"})]
    return Held(Scripted([Say(calls=calls), Say(calls=calls), "done"]), hold_at=hold_at)


Stop = Callable[[Runtime, str], Any]


def by_run(runtime: Runtime, run_id: str) -> Any:
    return runtime.cancel(run_id)


def by_thread(runtime: Runtime, run_id: str) -> None:
    thread = threading.Thread(target=lambda: runtime.cancel(run_id, mode=Mode.KILL))
    thread.start()
    thread.join()


def by_closing(runtime: Runtime, run_id: str) -> Any:
    return asyncio.ensure_future(runtime.close())


@pytest.mark.parametrize("stop", [by_run, by_thread, by_closing])
@pytest.mark.parametrize("hold_at", [1, 2])
def test_one_door_nothing_starts_after_a_cancel_in_the_stream(stop: Stop, hold_at: int) -> None:
    """The stream is closed at once; no call of it runs, and the model is not asked again."""
    seen: list[LoopEvent] = []

    async def scene() -> LoopResult:
        model = held(hold_at=hold_at)
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[work])
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1", on_event=seen.append))
            await model.holds.wait()
            stopping = stop(runtime, "r1")
            result = await asyncio.wait_for(going, 5)
            if stopping is not None:
                await stopping
            assert (model.asked, model.closed) == (hold_at, 1)
            return result

    result = asyncio.run(scene())
    assert (result.ended, result.outcome) == (Ended.CANCELLED, Outcome.CANCELLED)
    assert began == ["a", "b"] * (hold_at - 1)
    assert result.turns == hold_at - 1
    assert isinstance(seen[-1], Voided)
    check_pairs(result.messages, "openai-chat")


def test_one_door_a_reply_in_the_same_tick_as_the_cancel_is_not_taken() -> None:
    """Whichever comes first in the loop's queue: after the cancel nothing of the reply runs."""

    async def scene(cancel_first: bool) -> LoopResult:
        model = held()
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[work])
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1"))
            await model.holds.wait()
            if cancel_first:
                stopping = runtime.cancel("r1")
                model.go_on.set()
            else:
                model.go_on.set()
                stopping = runtime.cancel("r1")
            await stopping
            return await asyncio.wait_for(going, 5)

    for cancel_first in (True, False):
        result = asyncio.run(scene(cancel_first))
        assert result.ended is Ended.CANCELLED
        assert began == []
        assert result.turns == 0
        check_pairs(result.messages, "openai-chat")


def test_one_answer_a_cancel_while_calls_run_leaves_a_transcript_that_pairs() -> None:
    """One done, one running, one that never began; and no further turn."""
    calls = [("work", {"name": "a"}), ("wait", {"name": "b"}), ("work", {"name": "c"})]
    model = Scripted([Say(calls=calls), "never"])

    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[work, wait], parallel=1)
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1"))
            while began != ["a", "b"]:
                await asyncio.sleep(0.001)
            await runtime.cancel("r1")
            return await asyncio.wait_for(going, 5)

    result = asyncio.run(scene())
    assert result.ended is Ended.CANCELLED
    check_pairs(result.messages, "openai-chat")
    first, second, third = results_in(result.messages)
    assert first == "a"
    assert second.startswith("Tool call was started and then cancelled by interrupt")
    assert third == "Tool call cancelled by interrupt."
    assert model.left == 1
    assert began == ["a", "b"]


def test_a_cancel_of_the_waiting_task_cancels_the_run() -> None:
    """As for `Run.execute`: it is raised when everything is over, and the result is there."""

    async def scene() -> None:
        for hold in (True, False):
            model = held() if hold else Scripted([Say(calls=[("wait", {"name": "x"})]), "never"])
            async with Runtime() as runtime:
                run = runtime.run()
                loop = Loop(runtime, run, ModelAgent(name="a", model=model, tools=[work, wait]))
                loop.say("go")
                going = asyncio.create_task(loop.drive(close=True))
                if isinstance(model, Held):
                    await model.holds.wait()
                else:
                    while not began:
                        await asyncio.sleep(0.001)
                going.cancel()
                going.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(going, 5)
                assert loop.result is not None
                assert loop.result.ended is Ended.CANCELLED
                check_pairs(loop.result.messages, "openai-chat")
                assert runtime.calls() == []

    asyncio.run(scene())
    assert began == ["x"]


def test_bounded_stop_a_model_that_ignores_the_cancel_holds_nothing_up() -> None:
    """Law 6: it is waited for in bounds, and what it says afterwards is not heard."""
    seen: list[LoopEvent] = []

    class Deaf(Held):
        async def reply(self, ask: Ask, on_delta: Callable[[Delta], None]) -> ModelReply:
            self.asked += 1
            self.holds.set()
            while not self.go_on.is_set():
                try:
                    await self.go_on.wait()
                except asyncio.CancelledError:
                    self.closed += 1
                    on_delta(Delta(text="still here"))
            on_delta(Delta(text="and here"))
            return await self.script.reply(ask, on_delta)

    async def scene() -> None:
        model = Deaf(Scripted([Say(calls=[("work", {"name": "a"})])]))
        loop = asyncio.get_running_loop()
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[work])
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1", on_event=seen.append))
            await model.holds.wait()
            start = loop.time()
            await runtime.cancel("r1")
            await asyncio.wait({going}, timeout=10)
            ended = going.done()
            model.go_on.set()
            assert ended, "it is waited for"
            assert loop.time() - start < 4
            assert going.result().ended is Ended.CANCELLED
            await asyncio.sleep(0.01)
        assert model.closed == 1

    asyncio.run(scene())
    assert began == []
    assert not [event for event in seen if isinstance(event, Spoke)]


def test_every_wait_listens_also_the_rest_before_another_try() -> None:
    """Law 7: a cancel in the back-off ends the loop, and the model is not asked again."""
    model = Scripted([ModelError("broken_stream", "it broke")] * 3)
    seen: list[LoopEvent] = []

    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model)
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1", on_event=seen.append))
            while not any(isinstance(event, Voided) for event in seen):
                await asyncio.sleep(0.001)
            await runtime.cancel("r1")
            return await asyncio.wait_for(going, 5)

    result = asyncio.run(scene())
    assert result.ended is Ended.CANCELLED
    assert len(model.asks) == 1


def test_drain_ends_after_the_calls_that_run() -> None:
    """What runs may finish, nothing new starts, and the model is not asked about it."""
    gate = asyncio.Event()

    @tool
    async def slow() -> str:
        began.append("slow")
        await gate.wait()
        return "finished"

    model = Scripted([Say(calls=[("slow", {}), ("work", {"name": "b"})]), "never"])

    async def scene() -> LoopResult:
        async with Runtime() as runtime:
            agent = ModelAgent(name="a", model=model, tools=[slow, work], parallel=1)
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1"))
            while not began:
                await asyncio.sleep(0.001)
            stopping = runtime.cancel("r1", mode=Mode.DRAIN)
            gate.set()
            await stopping
            return await asyncio.wait_for(going, 5)

    result = asyncio.run(scene())
    assert result.ended is Ended.CANCELLED
    assert results_in(result.messages) == ["finished", "Tool call cancelled by interrupt."]
    assert model.left == 1


def test_a_run_that_somebody_else_closes_is_worked_on_no_more() -> None:
    """An ending that was declared from outside stops the model; it is no cancel."""

    async def scene() -> LoopResult:
        model = held()
        async with Runtime() as runtime, runtime.run() as run:
            loop = Loop(runtime, run, ModelAgent(name="a", model=model, tools=[work]))
            loop.say("go")
            going = asyncio.create_task(loop.drive())
            await model.holds.wait()
            run.close(outcome=Outcome.REJECTED)
            result = await asyncio.wait_for(going, 5)
            assert model.closed == 1
            return result

    result = asyncio.run(scene())
    assert (result.ended, result.outcome) == (Ended.CLOSED, Outcome.REJECTED)
    assert began == []


def test_children_settle_a_cancel_reaches_the_model_of_a_sub_agent() -> None:
    """Law 17: the stream of a sub-agent's model is closed with the parent's run."""
    from endstop import agent_tool

    async def scene() -> LoopResult:
        model = held()
        inner = ModelAgent(name="inner", model=model, tools=[work])
        outer = Scripted([Say(calls=[("inner", {"prompt": "go"})]), "never"])
        async with Runtime() as runtime:
            agent = ModelAgent(name="outer", model=outer, tools=[agent_tool(inner)])
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1"))
            await model.holds.wait()
            report = await runtime.cancel("r1", Reason.CANCELLED_BY_USER)
            assert [one.outcome for one in report.ended] == [Outcome.CANCELLED]
            result = await asyncio.wait_for(going, 5)
            assert model.closed == 1
            assert outer.left == 1
            return result

    check_pairs(asyncio.run(scene()).messages, "openai-chat")
    assert began == []


def test_a_run_is_not_let_go_while_its_model_is_asked() -> None:
    """Law 16: at a shutdown it is, and whoever takes it up asks again."""

    async def scene() -> None:
        model = held()
        journal = MemoryJournal()
        agent = ModelAgent(name="a", model=model, tools=[work])
        async with Runtime(journal=journal) as runtime:
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1"))
            await model.holds.wait()
            assert not await runtime.suspend("r1")
            await runtime.close(suspend=True)
            with pytest.raises(RunSuspended):
                await asyncio.wait_for(going, 5)
            assert model.closed == 1
        assert began == []
        async with Runtime(journal=journal) as runtime:
            result = await agent.resume(runtime, "r1")
        assert result.ended is Ended.DONE
        check_pairs(result.messages, "openai-chat")

    asyncio.run(scene())
    assert began == ["a", "b", "a", "b"]


def test_a_run_whose_calls_wait_for_a_human_can_be_let_go() -> None:
    """The loop is told, and goes on where it is taken up, once the human has answered."""

    @tool(approval="always")
    async def risky() -> str:
        began.append("risky")
        return "done it"

    async def scene() -> LoopResult:
        journal = MemoryJournal()
        agent = ModelAgent(
            name="a", model=Scripted([Say(calls=[("risky", {})]), "done"]), tools=[risky]
        )
        async with Runtime(journal=journal) as runtime:
            going = asyncio.create_task(agent.run(runtime, "go", run_id="r1"))
            while not runtime.pending():
                await asyncio.sleep(0.001)
            assert await runtime.suspend("r1")
            with pytest.raises(RunSuspended):
                await asyncio.wait_for(going, 5)
            going = asyncio.create_task(agent.resume(runtime, "r1"))
            while not runtime.pending():
                await asyncio.sleep(0.001)
            runtime.approve(runtime.pending()[0].call_id)
            return await asyncio.wait_for(going, 5)

    result = asyncio.run(scene())
    assert (result.ended, result.turns) == (Ended.DONE, 2)
    assert began == ["risky"]
