"""Testing: plays a drawn story, and says whether two drivers told the same one.

Public test tool, used by the seeds in `tests/sim` and by whoever wants to replay one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from endstop.config import Config, SlotLimits, Timeouts
from endstop.core import events as e
from endstop.core.terms import Isolation, ToolCall, Verdict
from endstop.run.blocking import BlockingRuntime
from endstop.run.results import CallResult
from endstop.run.runtime import Runtime
from endstop.store.protocol import Journal
from endstop.testing.acting import Delegate, make_hook, make_tools
from endstop.testing.promises import Log
from endstop.testing.simulator import Asking, Settings, Sim, Simulated
from endstop.testing.simworker import PLAIN_FATE, Fate
from endstop.testing.story import RunScript, Story
from endstop.work.protocol import Job


def play_story(
    story: Story,
    settings: Settings,
    *,
    plain_hooks: bool = True,
    rough: bool = False,
    journal: Callable[[], Journal] | None = None,
) -> Simulated:
    """Play a story on a driver; `wrong` of what is returned lists every broken law.

    `plain_hooks`: the before-hook is a plain function; False for an async one. `journal` makes a
    real journal in place of the simulated one. `rough`: callers close runs under their own feet,
    and an after-hook is slow, wedged or broken.
    """
    sim = make_sim(story, settings, plain_hooks=plain_hooks, rough=rough, journal=journal)
    return play_sim(sim, story)


def play_sim(sim: Sim, story: Story) -> Simulated:
    """Play a story on the simulation that was made for it."""
    stops = [(stop.at_s, stop.target, stop.mode) for stop in story.stops]
    return sim.play(askings_of(story), stops=stops)


def make_sim(
    story: Story,
    settings: Settings,
    *,
    plain_hooks: bool = True,
    rough: bool = False,
    journal: Callable[[], Journal] | None = None,
) -> Sim:
    """The simulation of a story, not yet played."""
    scripts = story.calls()

    def fate(job: Job) -> Fate:
        script = scripts.get(job.arguments["n"])
        return script.body.fate if script is not None else PLAIN_FATE

    def answer(sim: Sim, asked: e.ApprovalAsked) -> None:
        script = scripts[asked.arguments["n"]]
        sim.loop.call_later(script.answer_s, _answer, sim, asked.call, script.verdict)

    closes_s = settings.closes_s if settings.closes_s is not None else story.closes_s
    made = Sim(
        replace(settings, closes_s=closes_s),
        tools=lambda sim: make_tools(story, lambda: sim.world),
        config=Config(
            timeouts=replace(Timeouts(), **story.timeouts), slots=SlotLimits(**story.slots)
        ),
        before=[make_hook(story, plain=plain_hooks)] if story.hooked else [],
        after=[_after_hook(story)] if rough else [],
        fate=fate,
        answer=answer,
        journal=journal,
        bodies_report=True,
    )
    _let_delegate(made)
    if rough:
        rng = random.Random(f"closes {story.seed}")
        for run in story.runs:
            made.loop.call_at(rng.random() * 15, made.close_run, run.id)
    return made


def _after_hook(story: Story) -> Callable[[CallResult], Any]:
    """An after-hook that takes its time; what it does changes nothing."""
    rng = random.Random(f"after {story.seed}")
    hooks_s = story.timeouts["hooks"]

    async def after(result: CallResult) -> None:
        await asyncio.sleep(rng.random() * hooks_s * 1.5)
        if rng.random() < 0.3:
            raise RuntimeError("the after-hook fails")

    return after


def _let_delegate(sim: Sim) -> None:
    """Let bodies start runs of their own, where the driver lets them."""

    def terms(what: Delegate, call: str) -> tuple[str, ToolCall]:
        sim.parents.add(call.partition("/")[0])
        script = what.child.call
        arguments = {"n": what.number, "key": script.key}
        name = f"{call.replace('/', '-')}-{what.number.rpartition('.')[2]}"
        return name, ToolCall(model_id=script.model_id, tool=script.tool, arguments=arguments)

    async def delegate_async(call: str, what: Delegate) -> None:
        runtime = sim.runtime
        if isinstance(runtime, Runtime):
            name, asked = terms(what, call)
            detached = what.child.detached
            async with runtime.run(name, parent=call, detached=detached) as run:
                await run.execute([asked])

    def delegate_plain(call: str, what: Delegate) -> None:
        runtime = sim.runtime
        kind = runtime.engine.plans[call].contract.isolation
        if isinstance(runtime, BlockingRuntime) and kind is Isolation.THREAD:
            name, asked = terms(what, call)
            with runtime.run(name, parent=call, detached=what.child.detached) as run:
                run.execute([asked])

    sim.world.delegate_async = delegate_async
    sim.world.delegate_plain = delegate_plain


def _answer(sim: Sim, call: str, verdict: Verdict) -> None:
    """A human answers; a question that is not open any more is left alone."""
    runtime = sim.runtime
    if call not in runtime.engine.state.calls:
        return
    match verdict:
        case Verdict.APPROVE:
            runtime.approve(call)
        case Verdict.REJECT:
            runtime.reject(call, "no")
        case Verdict.RESPOND:
            runtime.respond(call, "it was done by hand")
        case Verdict.EDIT:
            arguments = dict(runtime.engine.plans[call].arguments)
            runtime.edit(call, {**arguments, "key": "b"})


def askings_of(story: Story) -> list[Asking]:
    """What the callers of a story ask for."""
    numbers = iter(range(10_000))

    def of_run(run: RunScript) -> Asking:
        batches = [
            (
                [
                    ToolCall(
                        model_id=call.model_id,
                        tool=call.tool,
                        arguments={"n": str(next(numbers)), "key": call.key},
                    )
                    for call in batch.calls
                ],
                batch.terms,
            )
            for batch in run.batches
        ]
        return Asking(run=run.id, batches=batches, begins_s=run.begins_s, limits=run.limits)

    return [of_run(run) for run in story.runs]


def by_call(log: Log) -> dict[str, list[str]]:
    """What happened to each call, batch and run, with instants: the same for two tellings of one
    story, also where unrelated things of one instant changed places."""
    told: dict[str, list[str]] = {}
    for at, event in log:
        of = getattr(event, "call", None) or getattr(event, "batch", None) or event.run
        told.setdefault(of, []).append(_line(at, event))
    return told


def _line(at: float, event: e.Event) -> str:
    """An event in words. Instants that are reached by different sums differ in the last digit."""
    if isinstance(event, e.CallSettled):
        event = replace(event, ran_s=round(event.ran_s, 9))
    return f"{at:.9f} {event}"


def same_order(one: Simulated, other: Simulated) -> bool:
    """Whether two simulations recorded the same, in the same order, at the same instants."""
    return [_line(*entry) for entry in one.log] == [_line(*entry) for entry in other.log]


def same_story(one: Simulated, other: Simulated) -> list[str]:
    """Where two simulations of one story differ; empty if they tell the same."""
    mine, theirs = by_call(one.log), by_call(other.log)
    found = []
    for name in sorted(mine.keys() | theirs.keys()):
        a, b = mine.get(name, []), theirs.get(name, [])
        if a != b:
            at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
            at = min(len(a), len(b)) if at is None else at
            found.append(f"{name} differs at {at}:\n    {a[at : at + 1]}\n    {b[at : at + 1]}")
    return found


__all__ = ["by_call", "make_sim", "play_sim", "play_story", "same_order", "same_story"]
