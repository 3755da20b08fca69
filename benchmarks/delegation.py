"""What a delegated call costs: submit, await and close, beside a bare task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.measure import Sample, Stopwatch, interleave
from benchmarks.rows import Row, beside
from endstop import DeferredAgent, Runtime, close_turn, delegate
from endstop.agents import Task

CALLS = 500
"""Delegated calls in one sample, each in a batch of its own, as `delegate` makes them."""


class Counted:
    """An agent that answers at once, and counts how often it was asked."""

    def __init__(self) -> None:
        self.ran = 0

    async def submit(self, task: Task) -> str:
        """The whole of its work."""
        self.ran += 1
        return "done"

    async def bare(self) -> str:
        """The same work for the floor."""
        self.ran += 1
        return "done"

    def take(self) -> int:
        """How often since the last time."""
        ran, self.ran = self.ran, 0
        return ran


def delegated(quick: bool) -> Iterator[Row]:
    """`await delegate(…)` and the closing check of the turn, beside `await create_task(…)`."""
    counted = Counted()
    agent = DeferredAgent(name="counted", submit=counted.submit, contract={"effect": "read_only"})
    with asyncio.Runner() as runner:
        runtime = Runtime()

        async def ours() -> Sample:
            watch = Stopwatch()
            async with runtime.run() as run:
                with watch:
                    answers = [await delegate(agent, "go", run=run) for _ in range(CALLS)]
                    await close_turn(run)
            check(counted, answers)
            return watch.sample(CALLS)

        async def floor() -> Sample:
            watch = Stopwatch()
            loop = asyncio.get_running_loop()
            with watch:
                answers = [await loop.create_task(counted.bare()) for _ in range(CALLS)]
            check(counted, answers)
            return watch.sample(CALLS)

        pair = interleave(
            lambda: runner.run(floor()), lambda: runner.run(ours()), 5 if quick else 15
        )
        runner.run(runtime.close())
    yield beside(
        pair,
        name="delegate",
        mode="async",
        n=1,
        floor="create_task and await",
        journal="memory",
        resources="none",
        effect="read_only",
        executed=CALLS * (pair.rounds + 1),
        note="submit, await and close of one handle",
    )


def check(counted: Counted, answers: list[str]) -> None:
    """Refuse a sample in which not every call ran exactly once and succeeded."""
    ran = counted.take()
    if ran != CALLS or answers.count("done") != CALLS:
        raise AssertionError(f"{CALLS} calls were delegated, {ran} ran, {len(answers)} answered")
