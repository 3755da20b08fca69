"""Meters and the timer queue against models (law 8 machine-time)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.core.deadlines import Meter, Timers

STEPS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["pause", "resume", "look"])))


@given(STEPS, st.integers(1, 10))
def test_a_meter_counts_the_seconds_in_which_nobody_thinks(
    steps: list[tuple[int, str]], limit: int
) -> None:
    now, ran, pauses = 100.0, 0.0, 0
    meter = Meter(now)
    for seconds, what in steps:
        ran += 0 if pauses else seconds
        now += seconds
        if what == "pause":
            meter.pause(now)
            pauses += 1
        elif what == "resume" and pauses:
            meter.resume(now)
            pauses -= 1
        assert meter.paused == (pauses > 0)
        assert meter.ran_s(now) == ran
        due = meter.due_at(float(limit))
        if pauses:
            assert due is None
        else:
            assert due is not None
            assert due - now == limit - ran, "due when the rest is used up without a pause"


def test_a_meter_without_a_limit_is_never_due() -> None:
    assert Meter(0.0).due_at(None) is None


def test_a_meter_is_not_resumed_more_often_than_paused() -> None:
    with pytest.raises(AssertionError, match="paused"):
        Meter(0.0).resume(1.0)


class Item:
    """Something that can be due."""

    def __init__(self) -> None:
        self.due: float | None = None


MOVES = st.lists(
    st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 3)),
    max_size=60,
)


@given(MOVES)
def test_the_queue_knows_what_is_due(moves: list[tuple[int, int | None, int]]) -> None:
    timers, items = Timers(), [Item() for _ in range(7)]
    model: dict[int, float] = {}
    now = 0.0
    for which, due, passes in moves:
        timers.set(items[which], None if due is None else float(due))
        model.pop(which, None)
        if due is not None:
            model[which] = float(due)
        now += passes
        taken: list[float] = []
        expected = sorted(due for due in model.values() if due <= now)
        while (item := timers.take_due(now)) is not None:
            place = items.index(item)  # type: ignore[arg-type]
            taken.append(model.pop(place))
            assert item.due is None
        assert taken == expected, "all that is due, earliest first"
        assert len(timers) == len(model)
        assert timers.next_due() == (min(model.values()) if model else None)


def test_dead_entries_do_not_pile_up() -> None:
    timers, item = Timers(), Item()
    for second in range(10_000):
        timers.set(item, float(second))
    assert len(timers) == 1
    assert len(timers._heap) <= 65, "changing one instant keeps one entry, and a few dead ones"
    assert timers.next_due() == 9_999.0


def test_finished_items_are_let_go() -> None:
    timers = Timers()
    items = [Item() for _ in range(1000)]
    for item in items:
        timers.set(item, 420.0)
    for item in items:
        timers.set(item, None)
    assert len(timers) == 0
    assert len(timers._heap) <= 64
