"""Runs that are let go and taken up again in mid-story, on both drivers, where the seed puts it.

A run that can be let go at that instant is, and is resumed a while later by the same runtime; the
laws hold over the whole (laws 15 record-first and 16 survives-restart). Closing a runtime so that
what has not begun stays pending is among the simulations of `tests/sim/seeds.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial

import pytest

from endstop import CallerError, NotFound
from endstop.core import events as e
from endstop.run.runtime import Runtime
from endstop.testing.playing import make_sim, play_sim
from endstop.testing.simthreads import hang
from endstop.testing.simulator import Settings, Sim
from endstop.testing.story import story_of

SEEDS = 250


def interrupt(sim: Sim, run: str, rest_s: float) -> None:
    """Let a run go now, where that can be, and take it up after a rest."""
    if isinstance(sim.runtime, Runtime):
        sim._waiters.append(sim.loop.create_task(_async(sim, run, rest_s), name=f"interrupt {run}"))
    else:
        sim._waiters.append(sim.on_thread(partial(_blocking, sim, run, rest_s), f"interrupt {run}"))


def ask_again(sim: Sim, run: str) -> None:
    """The human who was asked before looks at the list of the heir."""
    assert sim._answer is not None
    for asked in list(sim.runtime.engine.state.approvals.values()):
        if asked.run == run:
            sim._answer(sim, asked)


async def _async(sim: Sim, run: str, rest_s: float) -> None:
    rt = sim.runtime
    assert isinstance(rt, Runtime)
    try:
        if not await rt.suspend(run):
            return
    except NotFound:
        return
    await asyncio.sleep(rest_s)
    if rt._closed:
        return
    resumed = await rt.resume(run)
    ask_again(sim, run)
    await resumed.finish()
    resumed.close()


def _blocking(sim: Sim, run: str, rest_s: float) -> None:
    rt = sim.runtime
    assert not isinstance(rt, Runtime)
    try:
        if not rt.suspend(run):
            return
    except NotFound:
        return
    hang(rest_s)
    if rt._closed:
        return
    resumed = rt.resume(run)
    ask_again(sim, run)
    resumed.finish()
    resumed.close()


def played(seed: int, driver: str) -> tuple[list[str], int]:
    """What is wrong with the story of a seed that is interrupted, and how often it was."""
    rng = random.Random(f"suspended {seed}")
    story = story_of(seed)
    settings = Settings(
        seed=seed,
        driver="async" if driver == "async" else "blocking",
        shuffle=True,
        commit_s=rng.choice((None, 0.5)),
    )
    sim = make_sim(story, settings)
    for run in story.runs:
        for _ in range(rng.randint(1, 3)):
            at = run.begins_s + rng.random() * 8
            sim.loop.call_at(at, interrupt, sim, run.id, rng.random() * 5)
    told = play_sim(sim, story)
    wrong = list(told.wrong)
    wrong += [
        f"law 16 survives-restart: {error!r}"
        for error in told.errors
        if isinstance(error, CallerError) and "is driven" in str(error)
    ]
    return wrong, sum(isinstance(event, e.RunInterrupted) for _, event in told.log)


@pytest.mark.parametrize("driver", ["async", "blocking"])
def test_every_law_holds_for_runs_that_are_let_go_and_taken_up(
    driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    interrupted = 0
    for seed in range(SEEDS):
        wrong, count = played(seed, driver)
        assert not wrong, "\n".join([f"seed {seed}", *dict.fromkeys(wrong)])
        interrupted += count
    assert interrupted > SEEDS // 4, "hardly any run could be let go"
