"""Public reports about time: no deadline, the wrong one, or one that waits for its own cleanup."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from endstop import AsyncContext, Context, HookCall, tool
from endstop.core import events as e
from endstop.run.heartbeat import Heartbeat
from tests.cases import bodies
from tests.driving import OK, Street, call, endings, quick, until

TIMED_OUT = ("timed_out", "deadline", "unknown")
NOT_STARTED = ("rejected", "batch_deadline", "none")


def test_BH22_a_lone_call_has_a_deadline_and_the_next_one_runs(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=["browser:1"])
    def fetch(hang: bool) -> str:
        if hang:
            door.wait()  # a blocking call in C: deaf to everything
        return "fetched"

    @tool(resources=())
    def other() -> str:
        return "other"

    config = quick(grace_s=0.1, timeouts={"tools": {"sequential_call": 0.2}})
    house = street.open(kind, [fetch, other], config=config)
    session = house.run("session")
    assert endings(session.begin([call("fetch", hang=True)]).result(6.0)) == [TIMED_OUT]
    assert endings(session.begin([call("other")]).result(6.0)) == [OK]
    door.open()
    house.watch.wait(e.LateEnd)
    assert len(house.watch.told(e.CallSettled, "session/0.0")) == 1


def test_BH22_a_peer_that_exits_mid_call_ends_the_call(street: Street, kind: str) -> None:
    house = street.open(kind, [bodies.vanish, bodies.read])
    results = house.run("r").begin([call("vanish"), call("read")]).result(15.0)
    assert endings(results) == [("lost", "worker_lost", "unknown"), OK]
    assert "status 3" in results[0].text or "status 3" in (results[0].error or "")


def test_BH23_a_heartbeat_neither_hides_nor_extends_anything(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=(), timeout=0.5)
    def wedge() -> str:
        door.wait()
        return "late"

    @tool(resources=())
    def fine() -> str:
        return "fine"

    house = street.open(kind, [wedge, fine], config=quick(grace_s=0.1, heartbeat_s=0.02))
    beats: list[Heartbeat] = []
    house.rt.listen(beats.append)
    began = time.monotonic()
    results = house.run("r").begin([call("wedge"), call("fine")]).result(6.0)
    assert endings(results) == [TIMED_OUT, OK]
    assert time.monotonic() - began < 2.5, "the return joined the wedged worker"
    assert len(beats) > 3
    assert house.rt.calls()[0].stack, "the wedged one is listed with where it stands"


def test_BH23_a_cancel_gets_out_past_a_wedged_worker(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=(), timeout="off")
    def wedge() -> str:
        door.wait()
        return "late"

    house = street.open(kind, [wedge], config=quick(grace_s=0.1))
    run = house.run("r")
    going = run.begin([call("wedge")])
    house.watch.wait(e.CallStarted)
    began = time.monotonic()
    run.cancel()
    (result,) = going.result(6.0)
    assert time.monotonic() - began < 1.0
    assert result.alive


def test_BH23_set_up_does_not_count_as_running_time(street: Street, kind: str) -> None:
    """A healthy call is not killed because it was prepared for longer than it may run."""

    def slow(seen: HookCall) -> None:
        time.sleep(0.4)

    @tool(resources=(), timeout=0.3)
    def quick_one() -> str:
        return "ok"

    house = street.open(kind, [quick_one], before=[slow])
    (result,) = house.execute(call("quick_one"))
    assert endings([result]) == [OK]
    assert result.ran_s < 0.3


@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_BH24_what_never_began_did_not_time_out(street: Street, kind: str, threads: bool) -> None:
    door = street.door()
    ran: list[int] = []

    @tool(name="step", resources=())
    def step(n: int) -> int:
        ran.append(n)
        door.wait()
        return n

    @tool(name="step", resources=())
    async def astep(n: int) -> int:
        ran.append(n)
        await door.pass_through()
        return n

    house = street.open(kind, [step if threads else astep], config=quick(grace_s=0.1))
    count = threading.active_count()
    calls = [call("step", f"m{n}", n=n) for n in range(10)]
    results = house.run("r").begin(calls, parallel=2, deadline_s=0.3).result(6.0)
    timed_out = ("timed_out", "batch_deadline", "unknown")
    assert endings(results) == [timed_out] * 2 + [NOT_STARTED] * 8
    assert ran == [0, 1]
    for result in results[2:]:
        assert "timed out" not in result.text
        assert "not started" in result.text
    assert threading.active_count() <= count + 4, "threads were left parked"
    door.open()
    until(lambda: house.rt.calls() == [])
    assert ran == [0, 1]


@pytest.mark.parametrize(
    ("cleanup_s", "expected", "waited_for"),
    [(0.05, "asked", True), (10.0, "abandoned", False)],
    ids=["short", "long"],
)
def test_BH26_cleanup_is_waited_for_within_grace_and_no_longer(
    street: Street, kind: str, cleanup_s: float, expected: str, waited_for: bool
) -> None:
    cleaned = threading.Event()
    door = street.door()

    @tool(resources=(), timeout=0.1)
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if cleanup_s > 1:
                await door.pass_through()
            else:
                await asyncio.sleep(cleanup_s)
            cleaned.set()

    house = street.open(kind, [work], config=quick(grace_s=0.5))
    began = time.monotonic()
    (result,) = house.run("r").begin([call("work")]).result(6.0)
    assert endings([result]) == [TIMED_OUT]
    assert str(result.stopped_by) == expected
    assert time.monotonic() - began < 2.0
    assert cleaned.is_set() == waited_for
    door.open()
    if not waited_for:
        # Handed over to the books: its end is reported when it comes.
        house.watch.wait(e.LateEnd)
        assert cleaned.is_set()


def test_BH26_a_second_cancel_does_not_break_the_cleanup(street: Street, kind: str) -> None:
    cleaned: list[str] = []
    cleaning = threading.Event()

    @tool(resources=())
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.sleep(0.1)
            cleaned.append("all of it")

    house = street.open(kind, [work], config=quick(grace_s=5))
    run = house.run("r")
    going = run.begin([call("work")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    assert cleaning.wait(5)
    for _ in range(3):
        run.cancel()
    (result,) = going.result(6.0)
    assert str(result.stopped_by) == "asked"
    assert cleaned == ["all of it"]


def test_BH26_a_cleanup_that_fails_is_reported(street: Street, kind: str) -> None:
    @tool(resources=())
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the lock file is still there")

    house = street.open(kind, [work], config=quick(grace_s=5))
    run = house.run("r")
    going = run.begin([call("work")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    (result,) = going.result(6.0)
    assert endings([result]) == [("cancelled", "cancelled_by_user", "unknown")]
    assert "the lock file is still there" in result.text


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_BH27_progress_extends_the_idle_limit(street: Street, kind: str, watched: bool) -> None:
    @tool(resources=(), idle_timeout=0.4, timeout=20)
    def work(ctx: Context) -> str:
        for step in range(8):
            ctx.sleep(0.1)
            ctx.progress(f"step {step}", step / 8)
        return "done"

    house = street.open(kind, [work])
    if not watched:
        house.rt.engine.audience.remove(house.watch)
        house.lawful = False
    (result,) = house.begin(call("work")).result(5.0)
    assert endings([result]) == [OK]


def test_BH27_endless_progress_meets_the_hard_limit(street: Street, kind: str) -> None:
    @tool(resources=(), idle_timeout=0.3, timeout=0.6)
    async def work(ctx: AsyncContext) -> None:
        while True:
            ctx.progress("still at it")
            await ctx.sleep(0.02)

    house = street.open(kind, [work])
    (result,) = house.begin(call("work")).result(6.0)
    assert endings([result]) == [TIMED_OUT]
    assert 0.5 < result.ran_s < 2.0


def test_BH27_silence_is_told_from_the_deadline_and_late_progress_is_dropped(
    street: Street, kind: str
) -> None:
    door = street.door()
    late: list[Any] = []

    @tool(resources=(), idle_timeout=0.15, timeout=30)
    def work(ctx: Context) -> str:
        door.wait()
        ctx.progress("too late")
        late.append("said")
        return "late"

    house = street.open(kind, [work], config=quick(grace_s=0.05))
    (result,) = house.begin(call("work")).result(6.0)
    assert endings([result]) == [("timed_out", "idle", "unknown")]
    door.open()
    house.watch.wait(e.LateEnd)
    assert late == ["said"]
    assert not house.watch.told(e.CallProgressed)


def test_BH75_a_blocking_body_stops_neither_status_nor_deadline(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=(), timeout=0.3)
    def block() -> str:
        door.wait()
        return "late"

    house = street.open(kind, [block], config=quick(grace_s=0.1))
    going = house.run("r").begin([call("block")])
    house.watch.wait(e.CallStarted)
    slowest = 0.0
    while not going.over:
        asked = time.monotonic()
        house.on_its_thread(house.rt.calls)
        slowest = max(slowest, time.monotonic() - asked)
        time.sleep(0.01)
    assert slowest < 0.5
    assert endings(going.result()) == [TIMED_OUT]


@pytest.mark.parametrize(("blocks_s", "level"), [(0.25, logging.INFO), (0.6, logging.WARNING)])
def test_BH75_an_async_body_that_blocks_is_named(
    street: Street, kind: str, caplog: pytest.LogCaptureFixture, blocks_s: float, level: int
) -> None:
    caplog.set_level(logging.INFO, logger="endstop.work")

    @tool(resources=())
    async def rude() -> str:
        time.sleep(blocks_s)
        return "done"

    house = street.open(kind, [rude])
    assert endings(house.execute(call("rude"))) == [OK]
    said = [r for r in caplog.records if "blocked its event loop" in r.getMessage()]
    assert len(said) == 1
    assert said[0].levelno >= level
    assert "rude" in said[0].getMessage()
