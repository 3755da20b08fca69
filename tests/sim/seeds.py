"""The simulations of one seed, and how to run that seed again.

python -m tests.sim.seeds 4711          every simulation of this seed, with its trace if it fails
python -m tests.sim.seeds 0 10000       many seeds, one after the other
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import replace

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.recovery import Unfinished
from endstop.core.restore import restore
from endstop.core.state import State
from endstop.core.terms import Mode, Reason
from endstop.testing.laws import check_state, check_story
from endstop.testing.playing import make_sim, play_sim, play_story, same_story
from endstop.testing.promises import check_recovery
from endstop.testing.simjournal import Fault, Trouble
from endstop.testing.simulator import Interrupt, Settings, Simulated
from endstop.testing.story import Story, story_of

COMMIT_S = 0.5
CHUNK = 50


def broken_laws(seed: int) -> list[str]:
    """Every law that any simulation of this seed breaks."""
    return [f"[{name}] {wrong}" for name, told in simulations(seed) for wrong in told]


def simulations(seed: int) -> Iterator[tuple[str, list[str]]]:
    """The simulations of a seed, by name, with what they found wrong."""
    story = story_of(seed)
    one = play_story(story, Settings(seed=seed))
    yield "async", one.wrong
    other = play_story(story, Settings(seed=seed, driver="blocking"))
    yield "blocking", other.wrong
    yield "async and blocking", same_story(one, other)
    rng = random.Random(f"variant {seed}")
    driver = rng.choice(("async", "blocking"))
    commit_s = rng.choice((None, COMMIT_S))
    mixed = Settings(seed=seed, driver=driver, shuffle=True, commit_s=commit_s)
    plain = rng.random() < 0.5
    mixed_told = play_story(story, mixed, plain_hooks=plain)
    yield f"{driver}, shuffled", mixed_told.wrong
    yield "interrupted", _interrupted(story, mixed_told, rng, plain).wrong
    yield "in trouble", _in_trouble(story, mixed_told, rng)
    parents = story_of(seed, children=True)
    family = play_story(parents, mixed, plain_hooks=plain, rough=True)
    yield f"children, {driver}", family.wrong
    yield "children, interrupted", _interrupted(parents, family, rng, plain, rough=True).wrong
    yield "children, in trouble", _in_trouble(parents, family, rng, rough=True)
    yield "suspended", _suspended(story, mixed, rng)
    yield "children, suspended", _suspended(parents, mixed, rng)


def _interrupted(
    story: Story, told: Simulated, rng: random.Random, plain: bool, *, rough: bool = False
) -> Simulated:
    """The same again, stopped at a point that the seed draws."""
    targets = [run.id for run in story.runs] + ["r0/0", "r0/0.0", "r0/0.1"]
    if told.settings.driver == "async":
        targets.append("task")
    at_event = rng.random() < 0.5
    count = max(1, len(told.trace) if at_event else told.steps)
    point = rng.randint(1, count)
    interrupt = Interrupt(
        target=rng.choice(targets),
        mode=rng.choice((Mode.INTERRUPT, Mode.INTERRUPT, *Mode)),
        after_event=point if at_event else None,
        at_step=None if at_event else point,
    )
    settings = Settings(
        seed=story.seed,
        driver=told.settings.driver,
        shuffle=True,
        commit_s=told.settings.commit_s,
        interrupt=interrupt,
    )
    return play_story(story, settings, plain_hooks=plain, rough=rough)


def _suspended(story: Story, like: Settings, rng: random.Random) -> list[str]:
    """The same, closed at an instant that the seed draws so that what has not begun is pending;
    then every run that was let go is taken up again, as far as the core goes."""
    settings = replace(like, closes_s=rng.random() * 15, suspends=True)
    told = play_story(story.without_stops() if rng.random() < 0.5 else story, settings)
    wrong = list(told.wrong)
    runs: dict[str, list[e.Event]] = {}
    for event in told.committed:
        runs.setdefault(event.run, []).append(event)
    for run, events in runs.items():
        left = Unfinished(run)
        left.read(events)
        if left.ended:
            continue
        if events[-1] != e.RunInterrupted(run=run, clean=True):
            wrong.append(f"law 15 record-first: {run} was not let go, its last is {events[-1]}")
            continue
        wrong += [f"law 15 record-first: {one} had begun" for one in left.begun]
        failed = [one for one in left.settled.values() if one.reason is Reason.DRIVER_LOST]
        wrong += [f"law 15 record-first: {one} is stored as lost" for one in failed]
        state = State()
        restore(state, [(0.0, event) for event in events], 0.0, 0.0)
        found = step(state, i.ResumeRun(run=run), 0.0)
        wrong += check_state(state) + check_story([*events, *found], complete=False)
    return wrong


def _in_trouble(
    story: Story, told: Simulated, rng: random.Random, *, rough: bool = False
) -> list[str]:
    """The same again, with a journal that fails or dies at an append that the seed draws."""
    at = rng.randint(1, max(1, told.appends))
    trouble = Trouble(at=at, fault=rng.choice((Fault.DIES, *Fault)))
    return with_trouble(story, told.settings, trouble, rough=rough)


def with_trouble(
    story: Story, like: Settings, trouble: Trouble, *, rough: bool = False
) -> list[str]:
    """Play a story with a fault in its journal, and recover where the process died."""
    settings = Settings(
        seed=story.seed,
        driver=like.driver,
        shuffle=like.shuffle,
        commit_s=like.commit_s,
        trouble=trouble,
    )
    sim = make_sim(story, settings, rough=rough)
    told = play_sim(sim, story)
    if not told.crashed:
        return told.wrong
    return told.wrong + check_recovery(told.committed, told.events, sim.world)


def chunks(part: int) -> list[range]:
    """The seeds of one of the two files that share them, so that two workers do."""
    count = int(os.environ.get("ENDSTOP_SIM_SEEDS", "1000"))
    found = [range(at, min(at + CHUNK, count)) for at in range(0, count, CHUNK)]
    return found[part::2]


def check(seeds: range) -> None:
    """Raise AssertionError with what is wrong and how to see it again."""
    for seed in seeds:
        wrong = broken_laws(seed)
        assert not wrong, "\n".join([f"seed {seed}: {again(seed)}", *dict.fromkeys(wrong)])


def again(seed: int) -> str:
    """How to run one seed again."""
    return f"run it again with: python -m tests.sim.seeds {seed}"


def main(arguments: list[str]) -> int:
    """Run one seed, or a range of seeds; the number of seeds that broke a law."""
    logging.disable(logging.CRITICAL)
    first = int(arguments[0])
    last = int(arguments[1]) if len(arguments) > 1 else first + 1
    bad = 0
    for seed in range(first, last):
        wrong = broken_laws(seed)
        bad += bool(wrong)
        for one in dict.fromkeys(wrong):
            print(f"seed {seed}: {one}")
    print(f"{last - first} seeds, {bad} broke a law")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
