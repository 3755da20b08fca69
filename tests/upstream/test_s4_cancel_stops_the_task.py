"""S4 · inference-gateway/adk #112: cancelling a task changes its state and does not stop it.

The original stored "canceled", answered success, and let the work run on until it was "completed".
At the level of the core a cancel is an input to the run, its status is a reading of what happened,
and endings absorb.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from endstop import AsyncContext, Context, NotFound, Tool, tool
from endstop.core import decide, inputs, settling
from endstop.core import events as e
from endstop.core.terms import Mode
from endstop.run import engine
from tests.driving import (
    OK,
    UNSTARTED,
    Street,
    call,
    endings,
    fails_when,
    quick,
    until,
)

STOPPED = ("cancelled", "cancelled_by_user", "unknown")


class Ticker:
    """A task that works on until it is stopped, and counts."""

    def __init__(self) -> None:
        self.ticks = 0
        self.ticked = threading.Event()

    def tick(self) -> None:
        self.ticks += 1
        self.ticked.set()

    def tool(self, threads: bool) -> Tool:
        @tool(name="task", resources=())
        def task(ctx: Context) -> str:
            for _ in range(1000):
                self.tick()
                ctx.sleep(0.01)
            return "completed"

        @tool(name="task", resources=())
        async def atask() -> str:
            for _ in range(1000):
                self.tick()
                await asyncio.sleep(0.01)
            return "completed"

        return task if threads else atask


def cancel_stops(street: Street, kind: str, threads: bool, background: bool) -> None:
    ticker = Ticker()
    house = street.open(kind, [ticker.tool(threads)], config=quick(grace_s=0.3))
    run = house.run("task")
    going = run.begin([call("task"), call("task")], parallel=1)
    assert ticker.ticked.wait(5)
    if background:
        # Nobody waits for the batch; the cancel itself says what became of it.
        report = run.cancel().wait()
        assert report.over
        ended = report.ended
    else:
        run.cancel()
        ended = tuple(going.result(6.0))
    ticks = ticker.ticks
    assert endings(ended) == [STOPPED, UNSTARTED]
    assert str(ended[0].stopped_by) == "asked"
    # The last word: what ran is over, so there is nobody left who could tick.
    assert house.rt.calls() == []
    threading.Event().wait(0.1)
    assert ticker.ticks == ticks, "the task runs on after its cancel"
    (over,) = [x for x in house.watch.told(e.RunEnded) if x.run == "task"]
    assert (str(over.outcome), str(over.reason)) == ("cancelled", "cancelled_by_user")


def plant_cancel_flips_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug: the state is changed and nobody tells the work."""
    monkeypatch.delitem(engine._ACT, e.AskSent)


@pytest.mark.parametrize("background", [True, False], ids=["background", "awaited"])
@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_cancel_stops_what_runs(street: Street, kind: str, threads: bool, background: bool) -> None:
    cancel_stops(street, kind, threads, background)


@pytest.mark.parametrize("background", [True, False], ids=["background", "awaited"])
@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_cancel_fails_on_the_original_bug(kind: str, threads: bool, background: bool) -> None:
    fails_when(plant_cancel_flips_the_state, cancel_stops, kind, threads, background)


def cancelled_stays_cancelled(street: Street, kind: str) -> None:
    """What a deaf body returns after its cancel is kept as late, and is no second ending."""
    door = street.door()

    @tool(resources=())
    def task() -> str:
        door.wait()
        return "completed"

    house = street.open(kind, [task], config=quick(grace_s=0.05))
    run = house.run("task")
    going = run.begin([call("task")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    results = going.result(6.0)
    assert endings(results) == [STOPPED]
    door.open()
    house.watch.wait(e.LateEnd, limit_s=3.0)
    assert endings(results) == [STOPPED]
    assert [str(x.outcome) for x in house.watch.told(e.CallSettled)] == ["cancelled"]
    assert [str(x.outcome) for x in house.watch.told(e.RunEnded)] == ["cancelled"]
    # A cancel of what is over says so and changes nothing.
    again = house.cancel("task")
    assert not again.accepted


def plant_late_completion_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record waits for the work: whatever comes back from it decides the end."""
    monkeypatch.setattr(settling, "abandoned", lambda one, now: settling.ask(one, 60.0))
    monkeypatch.setattr(settling, "last_rungs", lambda one, now: [])


def test_cancelled_stays_cancelled(street: Street, kind: str) -> None:
    cancelled_stays_cancelled(street, kind)


def test_cancelled_stays_cancelled_fails_where_the_work_decides(kind: str) -> None:
    fails_when(plant_late_completion_wins, cancelled_stays_cancelled, kind)


def test_nothing_of_a_cancelled_task_is_processed_further(street: Street, kind: str) -> None:
    ticker = Ticker()
    house = street.open(kind, [ticker.tool(threads=False)])
    run = house.run("task")
    run.cancel()
    assert endings(run.begin([call("task")]).result(6.0)) == [UNSTARTED]
    assert ticker.ticks == 0


def test_unknown_and_over_are_told_apart(street: Street, kind: str) -> None:
    @tool(resources=())
    def task() -> str:
        return "completed"

    house = street.open(kind, [task])
    with pytest.raises(NotFound, match="nowhere"):
        house.rt.cancel("nowhere")
    with pytest.raises(NotFound):
        house.rt.cancel("nowhere/0")
    with pytest.raises(NotFound):
        house.rt.cancel("nowhere/0.0")
    run = house.run("task")
    assert endings(run.execute([call("task")])) == [OK]
    for target in ("task/0", "task/0.0"):
        stop = house.cancel(target)
        assert not stop.accepted, "there was nothing left to cancel"
        report = stop.wait()
        assert endings(report.already_over) == [OK], "a lost race says what won it"
        assert report.ended == ()
    run.close()
    with pytest.raises(NotFound):
        house.rt.cancel("task")


def test_the_registry_is_clean_after_every_end(street: Street, kind: str) -> None:
    """Completed, failed, cancelled, abandoned: nothing of a closed run stays behind."""
    door = street.door()

    @tool(resources=())
    def task(how: str, ctx: Context) -> str:
        if how == "raise":
            raise ValueError("no")
        if how == "wait":
            ctx.sleep(60)
        if how == "wedge":
            door.wait()
        return "completed"

    house = street.open(kind, [task], config=quick(grace_s=0.05))
    for how in ("return", "raise"):
        house.execute(call("task", how=how))
    run = house.run("r")
    going = run.begin([call("task", how="wait")] * 2)
    house.watch.wait(e.CallStarted, "r/0.0")
    run.cancel()
    going.result()
    run.close()
    wedged = house.run("w")
    going = wedged.begin([call("task", how="wedge")])
    house.watch.wait(e.CallStarted, "w/0.0")
    wedged.cancel()
    going.result()
    wedged.close()
    assert [view.call_id for view in house.rt.calls()] == ["w/0.0"], "what lives is listed"
    door.open()
    house.watch.wait(e.LateEnd)
    until(lambda: not house.state.runs)
    assert not house.state.calls
    assert not house.rt.engine.plans
    assert not house.rt.engine._promises


def test_cancel_by_id_reaches_one_task_only(street: Street, kind: str) -> None:
    a, b = Ticker(), Ticker()
    tools = [tool(name=n, resources=())(t.tool(threads=False).fn) for n, t in (("a", a), ("b", b))]
    house = street.open(kind, tools)
    runs = [house.run(name) for name in ("ra", "rb")]
    goings = [run.begin([call(name)]) for run, name in zip(runs, ("a", "b"), strict=True)]
    assert a.ticked.wait(5)
    assert b.ticked.wait(5)
    runs[0].cancel()
    assert endings(goings[0].result(6.0)) == [STOPPED]
    before = b.ticks
    until(lambda: b.ticks > before + 2)
    runs[1].cancel()
    assert endings(goings[1].result(6.0)) == [STOPPED]


def test_cancel_and_completion_in_one_instant(street: Street, kind: str) -> None:
    """One ending, and the cancel's own answer is that ending."""
    gate = threading.Barrier(2)
    cancelled = threading.Event()

    @tool(resources=())
    def task(delay: int) -> str:
        gate.wait(5)
        if delay < 0:
            cancelled.wait(20)
        for _ in range(delay):
            pass
        return "completed"

    house = street.open(kind, [task], config=quick(grace_s=5))
    seeds = random.Random(4)
    seen = set()
    for number in range(150):
        run = house.run(f"r{number}")
        # The two ends of the race come first and are sure; what lies between them is left to luck.
        delay = -1 if number == 0 else seeds.choice((0, 500, 50_000))
        going = run.begin([call("task", delay=delay)])
        gate.wait(5)
        if number == 1:
            house.watch.wait(e.CallSettled, count=2)
        for _ in range(seeds.choice((0, 500, 50_000))):
            pass
        first, second = run.cancel(), run.cancel()
        cancelled.set()
        results = going.result()
        report = first.wait()
        told = (*report.ended, *report.already_over)
        assert endings(told) == endings(results) == [OK], "a paid result was lost"
        assert endings((*second.wait().ended, *second.wait().already_over)) == [OK]
        seen.add(results[0].flags)
        ended = house.watch.wait(e.RunEnded, count=number + 1)
        assert (ended.run, str(ended.outcome)) == (run.id, "cancelled"), "the run was, too"
        run.close()
    assert len(seen) == 2, "the race went one way only; it proves nothing"


def test_a_stronger_cancel_escalates_and_a_weaker_one_does_not(street: Street, kind: str) -> None:
    @tool(resources=(), grace=30)
    def task(ctx: Context) -> str:
        while not door.is_open:
            ctx.wait_cancelled(0.01)
        return "completed"

    door = street.door()
    house = street.open(kind, [task])
    run = house.run("r")
    going = run.begin([call("task")])
    house.watch.wait(e.CallStarted)
    assert run.cancel(mode="drain").accepted
    assert not house.watch.told(e.AskSent)
    assert run.cancel(mode="interrupt").accepted
    house.watch.wait(e.AskSent)
    assert not run.cancel(mode="drain").accepted
    assert not run.cancel(mode="interrupt").accepted
    assert run.cancel(mode=Mode.KILL).accepted
    # A thread cannot be killed: it is let go at once instead of after its 30 s of grace.
    results = going.result(6.0)
    assert endings(results) == [STOPPED]
    assert str(results[0].stopped_by) == "abandoned"
    door.open()
    house.watch.wait(e.LateEnd)


async def _never() -> None:
    await asyncio.Event().wait()


def test_a_caller_that_goes_away_is_a_cancel_of_its_run(street: Street) -> None:
    """The awaiting task is cancelled: the tool is stopped and over before the caller is."""
    ended = threading.Event()

    @tool(resources=())
    async def task(ctx: AsyncContext) -> None:
        try:
            await _never()
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    house = street.open("async", [task], config=quick(grace_s=2))
    run = house.run("r")
    going = run.begin([call("task")])
    house.watch.wait(e.CallStarted)
    assert going.future.cancel()
    house.watch.wait(e.RunEnded)
    assert ended.is_set(), "the run was over before the tool's cleanup was"
    until(lambda: run.run.batches)
    assert endings(run.run.batches[0]) == [STOPPED]


def test_the_plants_are_where_the_code_is() -> None:
    """A plant that no longer touches anything would prove nothing."""
    assert e.AskSent in engine._ACT
    assert inputs.BodyEnded in decide._DECIDE
    planted: Any = settling.last_rungs
    assert callable(planted)
