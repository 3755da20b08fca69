"""A loop that is gone is continued from what its journal says, from wherever it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from endstop import CallerError, Mode, NotFound, Outcome, Reason, Runtime, tool
from endstop.agents import Ended, Loop, LoopResult, ModelAgent, notes
from endstop.agents.models import Ask, Say, Scripted
from endstop.core import events as e
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability
from endstop.testing.laws import check_story
from tests.loop.support import FORMATS, check_pairs, results_in


class World:
    """The bodies of one story, and which of them began, in this life and the ones before."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.asks = 0

    def agent(self, format: str = "openai-chat") -> ModelAgent:
        @tool
        async def pay(name: str) -> str:
            self.began.append(f"pay {name}")
            return f"paid {name}"

        @tool(effect="idempotent")
        async def put(name: str) -> str:
            self.began.append(f"put {name}")
            return f"put {name}"

        @tool(approval="always")
        async def ask_first(name: str) -> str:
            self.began.append(f"ask {name}")
            return f"asked {name}"

        model = Scripted(self.answer, format=format)
        return ModelAgent(name="a", model=model, tools=[pay, put, ask_first])

    def answer(self, ask: Ask) -> Say:
        """One reply after the other, by what stands in the transcript."""
        self.asks += 1
        said = str(ask.messages)
        if "reply one" not in said:
            calls = [(name, {"name": "1"}) for name in ("pay", "put", "ask_first", "nope")]
            return Say(text="reply one", calls=calls)
        if "reply two" not in said:
            return Say(text="reply two", calls=[("pay", {"name": "2"})])
        return Say(text="reply three")


async def approving(runtime: Runtime, going: asyncio.Task[LoopResult]) -> LoopResult:
    """Say yes to whatever asks, until the loop is over."""
    while not going.done():
        for pending in runtime.pending():
            runtime.approve(pending.call_id)
        await asyncio.wait({going}, timeout=0.001)
    return await going


async def lived(world: World, journal: MemoryJournal, format: str) -> LoopResult:
    """One whole life of the story."""
    async with Runtime(journal=journal) as runtime:
        going = asyncio.create_task(world.agent(format).run(runtime, "go", run_id="r"))
        return await approving(runtime, going)


async def resumed(world: World, journal: MemoryJournal, format: str) -> LoopResult:
    """The life after a crash."""
    async with Runtime(journal=journal) as runtime:
        going = asyncio.create_task(world.agent(format).resume(runtime, "r"))
        return await approving(runtime, going)


def first_half(journal: MemoryJournal) -> list[e.Event]:
    """What was recorded when about half of it was."""
    upto = journal._logs["r"].upto
    return [one.event for one in journal.read("r")][: upto[len(upto) // 2]]


def crashed(events: list[e.Event]) -> MemoryJournal:
    """A journal whose driver is gone after these events."""
    journal = MemoryJournal()
    journal.append("r", 0, events, Durability.PROCESS)
    journal.close()
    return journal


@pytest.mark.parametrize("format", FORMATS)
def test_survives_restart_wherever_the_loop_was_killed(format: str) -> None:
    """Law 16: after every event the run can be gone on with, to the same last word.

    What was answered keeps its answer and never runs again; what may have begun is lost, or runs
    again only where that does no harm (law 10 no-blind-retry).
    """

    async def scene() -> None:
        journal = MemoryJournal()
        first = await lived(World(), journal, format)
        assert first.ended is Ended.DONE
        events = [one.event for one in journal.read("r")]
        # What is recorded in one step is there whole or not at all.
        cuts = set(journal._logs["r"].upto[:-1])
        assert len(cuts) > 12
        # Only somebody else records a reply without its calls; that is gone on with, too.
        cuts |= {n for n, one in enumerate(events, 1) if _is_reply(one)} - {len(events)}
        for cut in sorted(cuts):
            before = events[:cut]
            world = World()
            left = crashed(before)
            result = await resumed(world, left, format)
            judge(before, [one.event for one in left.read("r")], result, world, format)

    asyncio.run(scene())


def _is_reply(event: e.Event) -> bool:
    return isinstance(event, e.Noted) and event.kind == notes.REPLY


def judge(
    before: list[e.Event], after: list[e.Event], result: LoopResult, world: World, format: str
) -> None:
    said = any(isinstance(one, e.Noted) and one.kind == notes.USER for one in before)
    if not said:
        # Nobody had said anything yet: there is nothing to do.
        assert (result.ended, result.turns) == (Ended.DONE, 0)
        return
    assert (result.ended, result.text) == (Ended.DONE, "reply three")
    assert result.outcome is Outcome.SUCCEEDED
    check_pairs(result.messages, format)
    assert check_story(after, complete=False) == []
    settled = {one.call for one in before if isinstance(one, e.CallSettled)}
    started = [one.call for one in after[len(before) :] if isinstance(one, e.CallStarted)]
    assert settled.isdisjoint(started), "a call that was over runs again"
    granted = {one.call for one in before if isinstance(one, e.CallGranted)}
    paid = {one.call for one in after if isinstance(one, e.CallAccepted) and one.tool == "pay"}
    assert not [call for call in started if call in granted and call in paid], "paid twice"
    # By what was done, not by ids: a second batch of the same calls would have new ones.
    over = settled | (granted & paid)
    done = {
        f"{one.tool.removesuffix('_first')} {(one.arguments or {}).get('name')}"
        for one in before
        if isinstance(one, e.CallAccepted) and one.call in over
    }
    assert done.isdisjoint(world.began), "what was over is done again"
    assert len(world.began) == len(set(world.began)), "something is done twice"
    replies = sum(isinstance(one, e.Noted) and one.kind == notes.REPLY for one in before)
    assert world.asks == 3 - replies, "a reply that was recorded is not asked for again"


def test_survives_restart_what_was_said_is_heard_once() -> None:
    """Steering and a follow-up, in the middle of it all: none is lost, and none is heard twice."""

    async def talked(world: World, journal: MemoryJournal) -> LoopResult:
        async with Runtime(journal=journal) as runtime:
            loop = Loop(runtime, runtime.run("r"), world.agent())
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            while not runtime.pending():
                await asyncio.sleep(0.001)
            loop.say("and then?")
            loop.steer("faster")
            return await approving(runtime, going)

    async def scene() -> None:
        journal = MemoryJournal()
        first = await talked(World(), journal)
        events = [one.event for one in journal.read("r")]
        for cut in journal._logs["r"].upto[:-1]:
            before = events[:cut]
            words = [
                one.body["text"]
                for one in before
                if isinstance(one, e.Noted) and one.kind == notes.USER
            ]
            result = await resumed(World(), crashed(before), "openai-chat")
            check_pairs(result.messages, "openai-chat")
            heard = [m["content"] for m in result.messages if m["role"] == "user"]
            assert sorted(heard) == sorted(words)
            if len(words) == 3:
                assert heard == ["go", "faster", "and then?"]
                assert result.text == first.text
                assert result.messages[-1]["role"] == "assistant"

    asyncio.run(scene())


def test_a_lost_call_is_answered_as_lost_and_the_model_decides() -> None:
    """Law 5 honest-effect: what may have happened is not called undone."""

    async def scene() -> None:
        journal = MemoryJournal()
        await lived(World(), journal, "openai-chat")
        events = [one.event for one in journal.read("r")]
        cut = next(n for n, one in enumerate(events) if isinstance(one, e.CallStarted))
        result = await resumed(World(), crashed(events[: cut + 1]), "openai-chat")
        lost = results_in(result.messages)[0]
        assert lost.startswith("Tool call lost: the program that drove it was gone")

    asyncio.run(scene())


def test_a_run_that_was_stopped_while_nobody_drove_it_is_over() -> None:
    """The reply that was recorded has its calls answered, though nobody handed them in."""

    async def scene() -> None:
        journal = MemoryJournal()
        await lived(World(), journal, "openai-chat")
        events = [one.event for one in journal.read("r")]
        cut = next(
            n
            for n, one in enumerate(events)
            if isinstance(one, e.Noted) and one.kind == notes.REPLY
        )
        left = crashed(events[: cut + 1])
        left.adopt("r")
        ending: list[e.Event] = [
            e.RunCancelled(run="r", reason=Reason.CANCELLED_BY_USER, mode=Mode.INTERRUPT),
            e.RunEnded(run="r", outcome=Outcome.CANCELLED, reason=Reason.CANCELLED_BY_USER),
        ]
        left.append("r", cut + 1, ending, Durability.PROCESS)
        left.close()
        world = World()
        result = await resumed(world, left, "openai-chat")
        assert (result.ended, result.outcome) == (Ended.CANCELLED, Outcome.CANCELLED)
        assert world.began == []
        assert world.asks == 0
        check_pairs(result.messages, "openai-chat")
        assert "may or may not have run" in results_in(result.messages)[0]

    asyncio.run(scene())


def test_what_cannot_be_gone_on_with_is_left_as_it_is() -> None:
    async def scene() -> None:
        journal = MemoryJournal()
        await lived(World(), journal, "openai-chat")
        left = crashed(first_half(journal))
        async with Runtime(journal=left) as runtime:
            other = World().agent("anthropic-messages")
            with pytest.raises(CallerError, match="speaks 'openai-chat'"):
                await other.resume(runtime, "r")
            with pytest.raises(NotFound):
                await other.resume(runtime, "nobody")
            agent = World().agent()
            going = asyncio.create_task(agent.resume(runtime, "r"))
            assert (await approving(runtime, going)).ended is Ended.DONE
            with pytest.raises(CallerError, match="is over and takes no prompt"):
                await agent.resume(runtime, "r", "more")

    asyncio.run(scene())


def test_a_prompt_is_said_behind_what_was_left() -> None:
    async def scene() -> None:
        journal = MemoryJournal()
        await lived(World(), journal, "openai-chat")
        left = crashed(first_half(journal))
        async with Runtime(journal=left) as runtime:
            going = asyncio.create_task(World().agent().resume(runtime, "r", "and now?"))
            result = await approving(runtime, going)
        users = [m["content"] for m in result.messages if m["role"] == "user"]
        assert users == ["go", "and now?"]
        assert result.messages[-2]["content"] == "and now?"

    asyncio.run(scene())


def test_the_same_in_a_file(tmp_path: Path) -> None:
    """A journal that another runtime opens, after the first one was closed in the middle."""

    async def scene() -> None:
        world = World()
        name = f"sqlite:{tmp_path / 'a.db'}"
        async with Runtime(journal=name) as runtime:
            result = await approving(
                runtime, asyncio.create_task(world.agent().run(runtime, "go", run_id="r"))
            )
        async with Runtime(journal=name) as runtime:
            assert await world.agent().resume(runtime, "r") == result
        assert world.asks == 3

    asyncio.run(scene())
