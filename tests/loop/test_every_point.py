"""A loop that is stopped, steered or spoken to at every point, on a virtual clock and drawn orders.

The real engine, the real loop and a scripted model; only the clock and the order of what is ready
are drawn. After every story the laws hold, the transcript pairs, and nothing happened after a
cancel that may not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from endstop import AsyncContext, NotFound, Runtime, StaleWriter, tool
from endstop.agents import Ended, Loop, LoopLimits, LoopResult, ModelAgent, Replied, notes
from endstop.agents.models import Ask, ModelError, Say, Scripted
from endstop.core import events as e
from endstop.store.memory import MemoryJournal
from endstop.testing.laws import check_state, check_story
from endstop.testing.simloop import SimLoop
from tests.loop.support import FORMATS, check_pairs

STEPS_MIN = 40
SEEDS = range(120)


class Story:
    """One conversation: a batch of three tools, one more, a reply that breaks off, a last word."""

    def __init__(self, seed: int, format: str = "openai-chat") -> None:
        self.random = random.Random(seed)
        self.format = format
        self.began: list[str] = []
        self.asked = 0
        self.journal = MemoryJournal()
        self.loop: Loop | None = None
        self.runtime: Runtime | None = None
        self.broke = False
        self.asked_before: int | None = None

    def agent(self) -> ModelAgent:
        @tool
        async def work(name: str, ctx: AsyncContext) -> str:
            self.began.append(ctx.call_id)
            await asyncio.sleep(self.random.random() / 4)
            return name

        @tool(effect="read_only")
        async def look(ctx: AsyncContext) -> str:
            self.began.append(ctx.call_id)
            await ctx.sleep(self.random.random())
            return "seen"

        model = Scripted(self.answer, format=self.format, delay_s=0.05)
        limits = LoopLimits(turns=8)
        tools = [work, look]
        return ModelAgent(name="a", model=model, tools=tools, limits=limits, parallel=2)

    def answer(self, ask: Ask) -> Say | Exception:
        """What the model says depends on what it has said before, and on nothing else."""
        self.asked += 1
        said = str(ask.messages)
        if "first" not in said:
            names = [("work", {"name": name}) for name in "ab"]
            return Say(text="first", calls=[*names, ("look", {}), ("nope", {})])
        if "second" not in said:
            return Say(text="second", calls=[("look", {})], cut=True)
        if not self.broke:
            self.broke = True
            return ModelError("broken_stream", "it broke")
        if "third" not in said:
            return Say(text="third", calls=[("work", {"name": "c"})])
        return Say(text="last")

    async def tell(self, seed: int = 0) -> LoopResult | None:
        async with Runtime(journal=self.journal) as runtime:
            self.runtime = runtime
            run = runtime.run("r")
            runtime.observe(self.see)
            self.loop = Loop(runtime, run, self.agent())
            self.loop.say("go")
            result = None
            with suppress(asyncio.CancelledError):
                result = await self.loop.drive(close=True)
            assert check_state(runtime.engine.state) == []
            assert not runtime.calls()
        return result or self.loop.result

    def see(self, event: e.Event) -> None:
        if isinstance(event, e.RunCancelled) and self.asked_before is None:
            self.asked_before = self.asked

    @property
    def events(self) -> list[e.Event]:
        return [one.event for one in self.journal.read("r")]


def judge(story: Story, result: LoopResult | None) -> None:
    """What must be true of every story, however it went."""
    assert result is not None
    events = story.events
    assert check_story(events) == []
    check_pairs(result.messages, story.format)
    assert len(story.began) == len(set(story.began)), "no body begins twice"
    cancelled = next((n for n, one in enumerate(events) if isinstance(one, e.RunCancelled)), None)
    if cancelled is not None:
        later = events[cancelled:]
        assert not [one for one in later if isinstance(one, e.CallStarted)], "law 1 one-door"
        replies = [one for one in later if isinstance(one, e.Noted) and one.kind == notes.REPLY]
        assert not replies, "no further turn after a cancel"
        assert result.ended is Ended.CANCELLED
    else:
        assert result.ended in (Ended.DONE, Ended.LIMIT)


def play(seed: int, step: int, do: Callable[[Story], Any], format: str = "openai-chat") -> int:
    """Tell a story and do something before step number `step`; returns how many steps it took."""
    story = Story(seed, format)
    sim = SimLoop(seed, shuffle=seed > 0)

    def on_step(number: int) -> None:
        if number == step and story.loop is not None:
            do(story)

    sim.on_step = on_step
    result = sim.run(story.tell())
    assert not sim.errors
    judge(story, result)
    assert story.asked_before in (None, story.asked), "the model is not asked after a cancel"
    return sim.steps


def cancel(story: Story) -> None:
    assert story.runtime is not None
    with suppress(NotFound):
        story.runtime.cancel("r")


def kill(story: Story) -> None:
    assert story.runtime is not None
    with suppress(NotFound):
        story.runtime.cancel("r", mode="kill")


def drain(story: Story) -> None:
    assert story.runtime is not None
    with suppress(NotFound):
        story.runtime.cancel("r", mode="drain")


def cancel_task(story: Story) -> None:
    for task in asyncio.all_tasks(story.runtime._loop if story.runtime else None):
        if task.get_name() == "story":
            task.cancel()


def steer(story: Story) -> None:
    assert story.loop is not None
    story.loop.steer("rather not")


def say(story: Story) -> None:
    assert story.loop is not None
    story.loop.say("and then?")


@pytest.mark.parametrize("do", [cancel, kill, cancel_task])
def test_one_door_and_one_answer_wherever_the_cancel_comes(do: Callable[[Story], Any]) -> None:
    steps = play(0, 0, do)
    assert steps > STEPS_MIN, "the story is long enough to be stopped anywhere"
    for step in range(1, steps + 1):
        play(0, step, do)


@pytest.mark.parametrize("do", [steer, say])
@pytest.mark.parametrize("format", FORMATS)
def test_what_a_user_says_is_answered_wherever_it_comes(
    do: Callable[[Story], Any], format: str
) -> None:
    """Steering never counts as a cancel, and what it skips is answered in its place."""
    steps = play(0, 0, do, format)
    for step in range(1, steps + 1, 3):
        play(0, step, do, format)


def test_orders_that_are_drawn() -> None:
    """Anything at any moment, in many orders."""
    for seed in SEEDS:
        draw = random.Random(f"point {seed}")
        do = draw.choice([cancel, kill, cancel_task, steer, say])
        play(seed + 1, draw.randrange(1, 90), do, draw.choice(FORMATS))


def test_a_drained_run_finishes_what_runs_and_asks_no_more() -> None:
    """Bodies may end after the cancel, but none begins; the transcript pairs all the same."""
    steps = play(0, 0, drain)
    for step in range(1, steps + 1, 3):
        play(0, step, drain)


def test_right_target_a_fenced_loop_stops_and_says_so() -> None:
    """Law 16: another driver took the run: nothing of it goes on here."""
    for step in range(10, 50, 4):
        story = Story(0)
        sim = SimLoop(0)
        taken: list[int] = []

        def on_step(number: int, story: Story = story, at: int = step, taken: Any = taken) -> None:
            if number == at and story.loop is not None:
                steal(story.journal)
                taken.append(len(story.began))

        async def tell(story: Story = story) -> None:
            async with Runtime(journal=story.journal) as runtime:
                # In its own time, not on a thread that knows no virtual clock.
                runtime.engine.aside = asyncio.get_running_loop().call_soon
                run = runtime.run("r")
                story.loop = Loop(runtime, run, story.agent())
                story.loop.say("go")
                with pytest.raises(StaleWriter):
                    await story.loop.drive(close=True)

        sim.on_step = on_step
        with suppress(StaleWriter):
            sim.run(tell())
        assert taken, "the story was long enough"


def steal(journal: MemoryJournal) -> None:
    """Write as another process would: an event that this driver does not know of."""
    log = journal._logs["r"]
    log.events.append(e.Noted(run="r", kind="stolen", body={}))
    log.upto.append(len(log.events))
    log.times.append(0.0)


def test_right_target_a_loop_that_is_done_closes_no_run_of_another_driver() -> None:
    async def scene() -> None:
        journal = MemoryJournal()

        def watch(event: object) -> None:
            if isinstance(event, Replied):
                steal(journal)

        async with Runtime(journal=journal) as runtime:
            agent = ModelAgent(name="a", model=Scripted(["done"]))
            with pytest.raises(StaleWriter):
                await asyncio.wait_for(agent.run(runtime, "go", run_id="r", on_event=watch), 5)
        assert not [one for one in journal.read("r") if isinstance(one.event, e.RunEnded)]

    with suppress(StaleWriter):
        asyncio.run(scene())
