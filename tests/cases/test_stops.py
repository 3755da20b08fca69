"""Public reports about cancels: that had no effect, came too late, or hit somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncContext, Context, NotFound, Runtime, Tool, tool
from endstop.core import events as e
from tests.cases import bodies
from tests.driving import (
    LIMIT_S,
    OK,
    UNSTARTED,
    House,
    Street,
    call,
    endings,
    quick,
    until,
)

STOPPED = ("cancelled", "cancelled_by_user", "unknown")


def ticker(threads: bool, ticks: list[float], cleaned: list[str]) -> Tool:
    """A tool that works until it is stopped, and cleans up."""

    @tool(name="tick", resources=())
    def tick(ctx: Context) -> None:
        try:
            while True:
                ticks.append(time.monotonic())
                ctx.sleep(0.01)
        finally:
            cleaned.append("thread")

    @tool(name="tick", resources=())
    async def atick() -> None:
        try:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.01)
        finally:
            await asyncio.sleep(0.02)
            cleaned.append("coroutine")

    return tick if threads else atick


@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_BH02_cancelling_the_awaiting_task_stops_the_tool(threads: bool) -> None:
    ticks: list[float] = []
    cleaned: list[str] = []

    async def story() -> None:
        async with Runtime([ticker(threads, ticks, cleaned)], config=quick(grace_s=5)) as rt:
            task = asyncio.create_task(rt.execute([call("tick")]))
            async with asyncio.timeout(LIMIT_S):
                while len(ticks) < 3:
                    await asyncio.sleep(0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cleaned, "the caller was let go before the tool's cleanup"
            seen = len(ticks)
            await asyncio.sleep(0.1)
            assert len(ticks) == seen, "the tool ticks on"

    asyncio.run(story())


@pytest.mark.usefixtures("ctrl_c")
def test_BH02_ctrl_c_stops_the_tool(street: Street) -> None:
    ticks: list[float] = []
    cleaned: list[str] = []
    house = street.open("blocking", [ticker(True, ticks, cleaned)], config=quick(grace_s=5))

    def press() -> None:
        house.watch.wait(e.CallStarted)
        until(lambda: len(ticks) > 3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    run = house.rt.run("r")
    with pytest.raises(KeyboardInterrupt):
        run.execute([call("tick")])
    seen = len(ticks)
    assert cleaned == ["thread"]
    assert endings(run.batches[0]) == [STOPPED]
    time.sleep(0.1)
    assert len(ticks) == seen, "the tool ticks on"


@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_BH03_a_wait_for_a_human_listens_to_a_cancel(
    street: Street, kind: str, threads: bool
) -> None:
    withdrawn: list[str] = []

    @tool(name="ask", resources=(), timeout="off")
    def ask(ctx: Context) -> str:
        with ctx.human("which one?"):
            if ctx.wait_cancelled():
                withdrawn.append("question")
                ctx.check()
        return "never"

    @tool(name="ask", resources=(), timeout="off")
    async def aask(ctx: AsyncContext) -> str:
        async with ctx.human("which one?"):
            try:
                await ctx.sleep(600)
            finally:
                withdrawn.append("question")
        return "never"

    house = street.open(kind, [ask if threads else aask])
    run = house.run("r")
    going = run.begin([call("ask")])
    house.watch.wait(e.CallPaused)
    run.cancel()
    assert endings(going.result(6.0)) == [STOPPED]
    assert withdrawn == ["question"]
    assert not house.rt.pending()


def test_BH03_an_approval_is_withdrawn_and_a_late_answer_refused(street: Street, kind: str) -> None:
    ran: list[str] = []

    @tool(resources=(), approval="always")
    def pay() -> str:
        ran.append("paid")
        return "paid"

    house = street.open(kind, [pay])
    run = house.run("r")
    going = run.begin([call("pay")])
    house.watch.wait(e.ApprovalAsked)
    run.cancel()
    assert endings(going.result(6.0)) == [UNSTARTED]
    assert house.rt.pending() == []
    assert not house.rt.approve("r/0.0"), "a late answer was taken"
    assert ran == []


def test_BH04_a_cancel_does_the_same_to_thread_and_coroutine(street: Street, kind: str) -> None:
    ticks: list[float] = []
    cleaned: list[str] = []
    answers = []
    for threads in (True, False):
        house = street.open(kind, [ticker(threads, ticks, cleaned)], config=quick(grace_s=5))
        run = house.run("r")
        going = run.begin([call("tick", "the-id")])
        house.watch.wait(e.CallStarted)
        run.cancel()
        (result,) = going.result(6.0)
        answers.append((*endings([result]), str(result.stopped_by), result.model_id))
        house.watch.wait(e.BatchClosed)
        assert len(house.watch.told(e.CallSettled)) == 1
        assert house.rt.calls() == []
    assert answers[0] == answers[1] == (STOPPED, "asked", "the-id")


def test_BH04_what_cannot_be_stopped_is_said_to_run_on(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=())
    def block() -> str:
        door.wait()
        return "finished after all"

    house = street.open(kind, [block], config=quick(grace_s=0.05))
    run = house.run("r")
    going = run.begin([call("block")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    (result,) = going.result(6.0)
    assert endings([result]) == [STOPPED]
    assert result.alive
    assert "may still be running" in result.text
    door.open()
    house.watch.wait(e.LateEnd)
    assert endings([result]) == [STOPPED], "a late success was stored as the result"


def test_BH06_the_cancel_between_two_waits_is_seen(street: Street, kind: str) -> None:
    """A lock, then a slot: the cancel comes while the second wait lasts."""
    doors = [street.door(), street.door()]
    ran: list[str] = []

    @tool(resources=["file:/bh06"])
    def write(name: str) -> str:
        ran.append(name)
        if name == "holder":
            doors[0].wait()
        return name

    @tool(resources=())
    def busy() -> str:
        doors[1].wait()
        return "busy"

    house = street.open(kind, [write, busy], config=quick(slots={"thread": 2}))
    holding = house.run("h").begin([call("write", name="holder")])
    house.watch.wait(e.CallStarted, "h/0.0")
    working = house.run("b").begin([call("busy"), call("busy")])
    house.watch.wait(e.CallStarted, "b/0.0")
    run = house.run("w")
    going = run.begin([call("write", name="w")])
    until(lambda: waits(house, "w/0.0") == "file:/bh06")
    doors[0].open()
    until(lambda: waits(house, "w/0.0") == "a free thread slot")
    run.cancel()
    assert endings(going.result(6.0)) == [UNSTARTED]
    doors[1].open()
    assert endings([*holding.result(), *working.result()]) == [OK] * 3
    assert ran == ["holder"]
    assert endings(house.execute(call("write", name="next"))) == [OK], "the lock was lost"


def waits(house: House, call_id: str) -> str | None:
    """What a call waits for."""
    return next((v.waits_for for v in house.rt.calls() if v.call_id == call_id), None)


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.005])
def test_BH12_a_cancel_before_the_pick_up_is_kept(
    street: Street, kind: str, delay_s: float
) -> None:
    ran: list[str] = []

    @tool(resources=())
    def work() -> str:
        ran.append("ran")
        return "ran"

    house = street.open(kind, [work])
    worker = house.rt.engine.workers[work.declared.isolation]
    start = worker.start
    picked_up: list[threading.Thread] = []
    cancelled = threading.Event()

    def pick_up_late(job: Any) -> None:
        # Granted; the worker comes to it after the cancel.
        thread = threading.Thread(target=lambda: (cancelled.wait(5), start(job)))
        picked_up.append(thread)
        thread.start()

    worker.start = pick_up_late
    run = house.run("r")
    going = run.begin([call("work")])
    house.watch.wait(e.CallGranted)
    time.sleep(delay_s)
    assert run.cancel().accepted
    cancelled.set()
    assert endings(going.result(6.0)) == [UNSTARTED]
    for thread in picked_up:
        thread.join()
    until(lambda: not worker._bodies)
    assert ran == [], "the cancel answered, and the run was executed"


def test_BH12_a_cancel_before_anything_was_submitted_is_kept(street: Street, kind: str) -> None:
    @tool(resources=())
    def work() -> str:
        return "ran"

    house = street.open(kind, [work])
    run = house.run("r")
    assert run.cancel().accepted
    assert endings(run.begin([call("work")]).result(6.0)) == [UNSTARTED]
    assert not house.watch.told(e.CallStarted)


def test_BH13_an_old_turn_s_abort_does_not_touch_the_next(street: Street, kind: str) -> None:
    doors = {"first": street.door(), "second": street.door()}

    @tool(resources=())
    def turn(name: str) -> str:
        doors[name].wait()
        return name

    house = street.open(kind, [turn], config=quick(grace_s=0.3))
    session = house.run("session")
    first = session.begin([call("turn", name="first")])
    house.watch.wait(e.CallStarted, "session/0.0")
    house.cancel("session/0")
    second = session.begin([call("turn", name="second")])
    house.watch.wait(e.CallStarted, "session/1.0")
    # The abort is retried, and its cleanup comes while the second turn is under way.
    for _ in range(3):
        assert not house.cancel("session/0").accepted
    assert endings(first.result(6.0)) == [STOPPED]
    doors["first"].open()
    house.watch.wait(e.LateEnd, "session/0.0")
    assert not house.cancel("session/0").accepted
    view = next(v for v in house.rt.calls() if v.call_id == "session/1.0")
    assert (view.phase, view.abandoned) == ("running", False)
    doors["second"].open()
    assert endings(second.result()) == [OK]


def test_BH15_cancelling_one_call_leaves_the_rest_served(street: Street, kind: str) -> None:
    @tool(resources=())
    async def handle(steps: int) -> int:
        for _ in range(steps):
            await asyncio.sleep(0)
        return steps

    house = street.open(kind, [handle], config=quick(grace_s=5))
    seeds = random.Random(15)
    for number in range(120):
        run = house.run(f"r{number}")
        going = run.begin([call("handle", steps=seeds.randrange(0, 4))])
        for _ in range(seeds.choice((0, 10, 1000, 20_000))):
            pass
        with contextlib.suppress(NotFound):  # it may not have been submitted yet
            house.rt.cancel(f"r{number}/0.0")
        (answer,) = going.result(5.0)
        assert endings([answer])[0] in (OK, UNSTARTED, STOPPED)
        assert endings(run.execute([call("handle", steps=1)])) == [OK], "call 3 was not served"
        run.close()
    house.watch.wait(e.CallSettled, count=240)
    assert len(house.watch.told(e.CallSettled)) == 240


@pytest.mark.parametrize("mode", ["before", "same", "after"])
def test_BH16_a_cancel_at_the_instant_of_completion(street: Street, kind: str, mode: str) -> None:
    meet = threading.Barrier(3)
    spin = {"before": (3000, 0), "same": (0, 0), "after": (0, 3000)}[mode]

    @tool(resources=())
    def work() -> str:
        meet.wait(5)
        for _ in range(spin[0]):
            pass
        return "done"

    house = street.open(kind, [work], config=quick(grace_s=5))
    for number in range(40):
        run = house.run(f"r{number}")
        going = run.begin([call("work")])
        reports: list[Any] = []

        def stop(run: Any = run, reports: list[Any] = reports) -> None:
            meet.wait(5)
            for _ in range(spin[1]):
                pass
            reports.append(run.cancel())

        # Two cancels at once.
        threads = [threading.Thread(target=stop) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        stored = endings(going.result(5.0))
        assert stored in ([OK], [UNSTARTED])
        for report in (stop.wait() for stop in reports):
            assert endings((*report.ended, *report.already_over)) == stored
        assert sum(stop.accepted for stop in reports) == 1, "one cancel took effect"
        ended = house.watch.wait(e.RunEnded, count=number + 1)
        assert (ended.run, str(ended.outcome)) == (run.id, "cancelled")
        assert len(house.watch.told(e.CallSettled, f"r{number}/0.0")) == 1
        run.close()


def test_BH18_a_cancel_that_lost_says_what_won(street: Street, kind: str) -> None:
    @tool(resources=())
    def work(fail: bool) -> str:
        if fail:
            raise ValueError("broken")
        return "committed"

    house = street.open(kind, [work])
    run = house.run("r")
    run.execute([call("work", fail=False), call("work", fail=True)])
    stop = house.cancel("r/0")
    report = stop.wait()
    assert not stop.accepted
    assert report.ended == ()
    assert endings(report.already_over) == [OK, ("failed", "tool_error", "unknown")]
    assert report.already_over[0].value == "committed"


def test_BH21_the_words_tell_denied_unstarted_and_interrupted_apart(
    street: Street, kind: str, tmp_path: Path
) -> None:
    door = street.door()
    written = tmp_path / "step1"

    @tool(resources=["file:/bh21"])
    def edit(ctx: Context) -> str:
        written.write_text("step 1")
        ctx.sleep(60)
        return "never"

    @tool(resources=(), approval="always")
    def risky() -> str:
        door.wait()
        return "never"

    house = street.open(kind, [edit, risky])
    denied = house.run("d").begin([call("risky")])
    house.watch.wait(e.ApprovalAsked)
    house.rt.reject("d/0.0", "not on my machine")
    run = house.run("r")
    going = run.begin([call("edit"), call("edit")])
    house.watch.wait(e.CallStarted, "r/0.0")
    until(written.exists)
    run.cancel()
    interrupted, unstarted = going.result(6.0)
    (rejected,) = denied.result()
    texts = [rejected.text, unstarted.text, interrupted.text]
    assert len(set(texts)) == 3
    assert "not on my machine" in rejected.text
    assert "a human denied it" in rejected.text
    assert unstarted.text == "Tool call cancelled by interrupt."
    for lie in ("not executed", "not started", "rejected", "No effect", "no effect"):
        assert lie not in interrupted.text
    assert "unknown" in interrupted.text
    assert [str(r.effect) for r in (rejected, unstarted, interrupted)] == [
        "none",
        "none",
        "unknown",
    ]


def test_BH31_a_cancel_of_what_is_over_signals_nobody(street: Street, kind: str) -> None:
    """The call is over and its process serves the next one; only identity decides."""
    house = street.open(kind, [bodies.read])
    run = house.run("r")
    assert endings(run.execute([call("read")])) == [OK]
    worker = house.rt.engine.workers[bodies.read.declared.isolation]
    asked: list[str] = []
    ask, kill = worker.ask, worker.kill
    worker.ask = lambda name: (asked.append(name), ask(name))
    worker.kill = lambda name: (asked.append(name), kill(name))
    assert not house.cancel("r/0.0", mode="kill").accepted
    assert not house.cancel("r/0").accepted
    assert asked == []
    assert endings(run.execute([call("read")])) == [OK]
