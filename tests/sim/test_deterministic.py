"""The same settings give the same trace, and both drivers tell the same story."""

from __future__ import annotations

import pytest

from endstop.testing.playing import play_story, same_order, same_story
from endstop.testing.simulator import Driver, Settings
from endstop.testing.story import story_of

DRIVERS: list[Driver] = ["async", "blocking"]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_settings_give_the_same_trace(driver: Driver, shuffle: bool) -> None:
    for seed in range(25):
        settings = Settings(seed=seed, driver=driver, shuffle=shuffle, commit_s=0.3)
        first, second = (play_story(story_of(seed), settings) for _ in range(2))
        assert first.trace, f"seed {seed} told nothing"
        assert first.trace == second.trace, f"seed {seed}"
        assert first.steps == second.steps, f"seed {seed}"


def test_another_seed_takes_another_order() -> None:
    story = story_of(1)
    plays = [play_story(story, Settings(seed=seed, shuffle=True)) for seed in range(10)]
    assert len({repr(told.trace) for told in plays}) > 1


@pytest.mark.parametrize("commit_s", [None, 0.3])
def test_both_drivers_tell_the_same_story(commit_s: float | None) -> None:
    for seed in range(100):
        story = story_of(seed)
        one, other = (
            play_story(story, Settings(seed=seed, driver=driver, commit_s=commit_s))
            for driver in DRIVERS
        )
        assert same_story(one, other) == [], f"seed {seed}"
        if commit_s is None:
            assert same_order(one, other), f"seed {seed}: the same, but in another order"


def test_a_difference_between_two_stories_is_seen() -> None:
    one, other = (play_story(story_of(seed), Settings(seed=seed)) for seed in (1, 2))
    assert same_story(one, other)
