"""A stop after every event and before every step, and a fault at every append."""

from __future__ import annotations

import pytest

from endstop.core.terms import Mode
from endstop.testing.playing import play_story
from endstop.testing.simjournal import Fault, Trouble
from endstop.testing.simulator import Driver, Interrupt, Settings
from endstop.testing.story import Story, story_of
from tests.sim.seeds import with_trouble

DRIVERS: list[Driver] = ["async", "blocking"]
STORIES = [3, 4, 10, 36]
"""Seeds whose stories are long: hooks, approvals, two runs, every kind of worker."""


def busy(seed: int) -> Story:
    """A story that nobody stops but the test."""
    return story_of(seed).without_stops()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("seed", STORIES)
def test_stopped_after_every_event(seed: int, mode: Mode, driver: Driver) -> None:
    story = busy(seed)
    events = len(play_story(story, Settings(seed=seed, driver=driver)).check().trace)
    assert events > 10
    for target in ("r0", "r0/0", "r0/0.1"):
        for point in range(1, events + 1):
            interrupt = Interrupt(target=target, mode=mode, after_event=point)
            play_story(story, Settings(seed=seed, driver=driver, interrupt=interrupt)).check()


@pytest.mark.parametrize("target", ["r0", "task"])
@pytest.mark.parametrize("seed", STORIES)
def test_stopped_before_every_step(seed: int, target: str) -> None:
    story = busy(seed)
    steps = play_story(story, Settings(seed=seed, shuffle=True)).check().steps
    assert steps > 10
    for point in range(1, steps + 1):
        interrupt = Interrupt(target=target, at_step=point)
        settings = Settings(seed=seed, shuffle=True, interrupt=interrupt)
        play_story(story, settings, plain_hooks=False).check()


@pytest.mark.parametrize("commit_s", [None, 0.5])
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("seed", STORIES)
def test_a_fault_at_every_append(seed: int, fault: Fault, commit_s: float | None) -> None:
    story = story_of(seed)
    for driver in DRIVERS:
        settings = Settings(seed=seed, driver=driver, commit_s=commit_s)
        appends = play_story(story, settings).check().appends
        assert appends > 5
        for at in range(1, appends + 1):
            wrong = with_trouble(story, settings, Trouble(at=at, fault=fault))
            assert not wrong, (at, wrong)
