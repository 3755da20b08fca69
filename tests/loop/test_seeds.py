"""Conversations that are stopped and spoken to at any moment, on real loops and real files.

Coroutines, threads, sub-agents and approvals, in memory and in SQLite, on the caller's loop and on
worker loops. After every story the laws hold, and the journal gives the same result again.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncContext, Context, NotFound, Runtime, agent_tool, tool
from endstop.agents import Ended, Loop, LoopLimits, LoopResult, ModelAgent, notes
from endstop.agents.models import Ask, ModelError, Say, Scripted
from endstop.agents.transcript import Transcript
from endstop.core import events as e
from endstop.store.memory import MemoryJournal
from endstop.testing.laws import check_state, check_story
from tests.loop.support import FORMATS, check_pairs

SEEDS = range(int(os.environ.get("ENDSTOP_TALKS", "60")))
NAMES = ("work", "thread", "again", "nope", "risky", "inner")
ACTS = ("cancel", "cancel the task", "cancel from a thread", "drain", "nothing")


class Talk:
    """One conversation, drawn from a seed."""

    def __init__(self, seed: int, journal: Any) -> None:
        self.random = random.Random(seed)
        self.journal = journal
        self.run_id = f"r{seed}"
        self.format = self.random.choice(FORMATS)
        self.began: list[str] = []
        self.asked = 0
        self.asked_before: int | None = None
        self.said = 1
        self.act = self.random.choice(ACTS)

    def agent(self) -> ModelAgent:
        draw = self.random

        @tool
        async def work(name: str, ctx: AsyncContext) -> str:
            self.began.append(ctx.call_id)
            await asyncio.sleep(draw.random() * 0.01)
            return name

        @tool
        def thread(name: str, ctx: Context) -> str:
            self.began.append(ctx.call_id)
            ctx.sleep(draw.random() * 0.01)
            return name

        @tool(effect="idempotent")
        async def again(name: str, ctx: AsyncContext) -> str:
            self.began.append(ctx.call_id)
            await ctx.sleep(draw.random() * 0.01)
            return name

        @tool(approval="always")
        async def risky(name: str) -> str:
            return name

        def below(ask: Ask) -> Say:
            first = "below" not in str(ask.messages)
            return Say(text="below", calls=[("work", {"name": "i"})] * first, delay_s=0.001)

        model = Scripted(below, format=self.format)
        inner = ModelAgent(name="inner", model=model, tools=[work])
        return ModelAgent(
            name="a",
            model=Scripted(self.answer, format=self.format),
            tools=[work, thread, again, risky, agent_tool(inner)],
            limits=LoopLimits(turns=20, breaks=9, cuts=9),
            parallel=draw.choice([None, 1, 2]),
        )

    def answer(self, ask: Ask) -> Say | Exception:
        self.asked += 1
        draw = self.random
        if draw.random() < 0.1:
            return ModelError("broken_stream", "it broke")
        if str(ask.messages).count("above") >= 4:
            return Say(text="above, at last", delay_s=0.001)
        calls = [
            (name, {"prompt": "go"} if name == "inner" else {"name": "x"})
            for name in draw.choices(NAMES, k=draw.randrange(1, 4))
        ]
        return Say(text="above", calls=calls, delay_s=0.001, cut=draw.random() < 0.1)

    def watch(self, event: e.Event) -> None:
        cancelled = isinstance(event, e.RunCancelled) and event.run == self.run_id
        if cancelled and self.asked_before is None:
            self.asked_before = self.asked

    async def told(self) -> LoopResult:
        """The whole story; what came of it."""
        draw = self.random
        bodies = draw.choice(["caller-loop", "own-loop"])
        async with Runtime(journal=self.journal, bodies=bodies) as runtime:
            runtime.observe(self.watch)
            loop = Loop(runtime, runtime.run(self.run_id), self.agent())
            loop.say("go")
            going = asyncio.create_task(loop.drive(close=True))
            end = asyncio.get_running_loop().time() + draw.random() * 0.08
            while not going.done():
                await asyncio.sleep(draw.random() * 0.005)
                self.talk(runtime, loop)
                if asyncio.get_running_loop().time() > end and self.act:
                    await self.stop(runtime, going)
            with suppress(asyncio.CancelledError):
                await going
            # Sub-agents are over and forgotten, and their calls with them; their budget counts on.
            wrong = check_state(runtime.engine.state)
            assert [one for one in wrong if not one.startswith("law 20")] == []
            assert loop.result is not None
            return loop.result

    def talk(self, runtime: Runtime, loop: Loop) -> None:
        for pending in runtime.pending():
            with suppress(NotFound):
                (pending.approve if self.random.random() < 0.5 else pending.reject)()
        if self.random.random() < 0.15:
            self.said += loop.steer("rather not")
        if self.random.random() < 0.1:
            self.said += loop.say("and then?")

    async def stop(self, runtime: Runtime, going: asyncio.Task[LoopResult]) -> None:
        act, self.act = self.act, ""
        with suppress(NotFound):
            match act:
                case "cancel":
                    await runtime.cancel(self.run_id)
                case "drain":
                    await runtime.cancel(self.run_id, mode="drain")
                case "cancel from a thread":
                    await asyncio.to_thread(lambda: runtime.cancel(self.run_id))
                case "cancel the task":
                    going.cancel()
                case _:
                    pass

    def judge(self, result: LoopResult, events: list[e.Event]) -> None:
        assert check_story(events) == []
        check_pairs(result.messages, self.format)
        assert len(self.began) == len(set(self.began)), "a body begins twice"
        users = [one for one in events if isinstance(one, e.Noted) and one.kind == notes.USER]
        assert len(users) == self.said, "what was taken is recorded, and nothing else"
        cut = next((n for n, one in enumerate(events) if isinstance(one, e.RunCancelled)), None)
        if cut is not None:
            later = events[cut:]
            assert not [one for one in later if isinstance(one, e.CallStarted)]
            assert not [one for one in later if isinstance(one, e.Noted) and one.kind == "reply"]
            assert result.ended is Ended.CANCELLED
            assert self.asked == self.asked_before, "no further turn after a cancel"
        seen = Transcript(self.format)
        for one in events:
            seen.apply(one)
        assert result.ended is not Ended.DONE or not (seen.said or seen.later), "nothing is unheard"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_laws_hold_whatever_is_said_and_stopped_when(kind: str, tmp_path: Path) -> None:
    """Laws 1, 3, 4, 15 and 16 over drawn conversations."""

    async def scene(seed: int) -> str:
        journal: Any = MemoryJournal() if kind == "memory" else f"sqlite:{tmp_path / 'a.db'}"
        talk = Talk(seed, journal)
        result = await asyncio.wait_for(talk.told(), 60)
        async with Runtime(journal=journal) as runtime:
            again = await talk.agent().resume(runtime, talk.run_id)
            events = [one.event for one in runtime.engine.journal.read(talk.run_id)]
        assert again == result, "the journal says the same"
        talk.judge(result, events)
        return str(result.ended)

    seeds = SEEDS if kind == "memory" else SEEDS[::2]
    endings = {asyncio.run(scene(seed)) for seed in seeds}
    assert {"cancelled", "done"} <= endings
