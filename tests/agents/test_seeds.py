"""Trees of agents that are cancelled anywhere, by anybody, at any moment: the laws hold after each.

Law 17 children-settle over many seeds: whatever was cancelled when, every call has one ending, the
ledger is empty, no slot and no resource is taken, and nothing is left on the loop.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from endstop import (
    AsyncAgent,
    DeferredAgent,
    DelegationFailed,
    DroppedHandles,
    HandleCancelled,
    LocalAgent,
    Runtime,
    agent_tool,
    close_turn,
    delegate,
    delegate_all,
)
from endstop.agents import Agent, Patience, Task
from endstop.agents.ledger import ledger_of
from endstop.testing.laws import check_state, check_story
from tests.driving import call, quick

SEEDS = 80
LIMIT_S = 30.0
"""Longer than anything here takes; who waits so long waits for ever."""
PATIENCE = Patience(every_s=0.0005, most_every_s=0.002, linger_s=1.0)


class Forest:
    """Grows agents at random, out of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.handles: list[Any] = []

    def agent(self, depth: int) -> Agent:
        """An agent of any kind; deeper ones are more often the last."""
        kind = self.random.choice(["deferred", "plain", "async", "local", "local"])
        if kind == "local" and depth < 3:
            return self.local(depth)
        return self.peer() if kind == "async" else self.deferred(plain=kind == "plain")

    def deferred(self, *, plain: bool) -> DeferredAgent:
        """Works for a moment, and sometimes fails."""
        pause_s, fails = self.random.random() * 0.004, self.random.random() < 0.2

        async def work(task: Task) -> str:
            await asyncio.sleep(pause_s)
            if fails:
                raise RuntimeError("it failed")
            return task.prompt

        def work_plainly(task: Task) -> str:
            task.check()
            if fails:
                raise RuntimeError("it failed")
            return task.prompt

        return DeferredAgent(name="deferred", submit=work_plainly if plain else work)

    def peer(self) -> AsyncAgent:
        """Is over after some questions, or when it is told to stop; some of them are deaf."""
        left = {"n": self.random.randrange(6)}
        deaf, broken = self.random.random() < 0.3, self.random.random() < 0.2

        async def status(ref: str) -> str:
            left["n"] -= 1
            if broken and left["n"] < 0:
                raise OSError("no route")
            return "running" if left["n"] > 0 else "succeeded"

        async def cancel(ref: str) -> None:
            if not deaf:
                left["n"] = 0

        async def submit(task: Task) -> str:
            await asyncio.sleep(0)
            return task.id

        async def fetch(ref: str) -> str:
            await asyncio.sleep(0)
            return ref

        return AsyncAgent(
            name="peer",
            submit=submit,
            status=status,
            fetch=fetch,
            cancel=cancel,
            patience=PATIENCE,
            contract={"resources": ("service:peer",)} if self.random.random() < 0.3 else {},
        )

    def local(self, depth: int) -> LocalAgent:
        """Delegates on, one by one or as a group, and sometimes drops a handle."""
        wanted = [(self.agent(depth + 1), str(n)) for n in range(1 + self.random.randrange(3))]
        grouped, drops = self.random.random() < 0.5, self.random.random() < 0.15

        async def drive(task: Task, run: Any) -> list[Any]:
            if grouped:
                group = delegate_all(wanted)
                self.handles += group
                return await group
            values = []
            for agent, prompt in wanted:
                handle = delegate(agent, prompt, run=run)
                self.handles.append(handle)
                if not drops:
                    values.append(await handle)
            return values

        return LocalAgent(name="local", fn=drive)


async def season(seed: int, sqlite: str | None) -> None:
    """One forest, from its seed to the last closing check."""
    forest, told = Forest(seed), list[Any]()
    chance = forest.random
    roots = [forest.agent(0) for _ in range(3)]
    offered = agent_tool(forest.agent(0), name="offered")
    config = quick(grace_s=0.05, slots={"remote": chance.choice([1, 2, 8])})
    async with Runtime([offered], config=config, observers=[told.append], journal=sqlite) as rt:
        run = rt.run("r")
        forest.handles += [delegate(agent, "root", run=run) for agent in roots]
        tops = forest.handles[:3]
        waiters = [asyncio.ensure_future(handle.answered()) for handle in tops]
        waiters.append(asyncio.ensure_future(run.execute([call("offered", prompt="x")])))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(chance.random() * 0.006)
            match chance.choice(["handle", "waiter", "run", "nobody"]):
                case "handle":
                    chance.choice(forest.handles).cancel(chance.choice(["interrupt", "kill"]))
                case "waiter":
                    chance.choice(waiters).cancel()
                case "run":
                    _ = run.cancel()
                case _:
                    pass
        for waiter in waiters:
            with suppress(asyncio.CancelledError):
                await waiter
        with suppress(DroppedHandles):
            # A cancelled waiter has taken nothing.
            await close_turn(run)
        run.close()
        ledger = ledger_of(rt)
        # What the thread of the journal says last comes a moment later, and is acted on then.
        engine = rt.engine
        async with asyncio.timeout(LIMIT_S):
            while (
                rt.calls()
                or ledger.open()
                or ledger._ordinals
                or engine.state.runs
                or engine._recording
                or engine._promises
            ):
                await asyncio.sleep(0.002)
        assert all(handle.done for handle in forest.handles)
        for handle in tops:
            with suppress(DelegationFailed, HandleCancelled):
                await handle
        assert not rt.engine.plans
        assert not check_state(rt.engine.state)
        assert len(rt.engine.state.resources) == 0
        assert not any(slots.taken for slots in rt.engine.state.slots.values())
    assert not check_story(told)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_season_ends_clean(seed: int) -> None:
    asyncio.run(season(seed, None))


@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 8))
def test_every_season_ends_clean_with_a_file(seed: int, tmp_path: Any) -> None:
    asyncio.run(season(seed, f"sqlite:{tmp_path}/runs.db"))
