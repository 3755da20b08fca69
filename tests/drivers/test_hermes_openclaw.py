"""Behaviours of hermes-agent and of openclaw and pi that are kept, by their number in the document.

`docs/behaviours.md` lists all of them, with those that other tests hold and those that are not
kept, and why.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncContext, Block, Context, HookCall, Runtime, read_reply, shared, tool
from endstop.core import events as e
from tests.driving import (
    OK,
    UNSTARTED,
    Street,
    call,
    endings,
    quick,
    until,
)

TIMED_OUT = ("timed_out", "deadline", "unknown")
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 420.0),
        (0, None),
        (-3, None),
        (math.nan, 420.0),
        ("junk", 420.0),
        (True, 420.0),
        (1e300, threading.TIMEOUT_MAX),
        (math.inf, threading.TIMEOUT_MAX),
    ],
    ids=str,
)
def test_hermes_06_07_limits_are_clamped_and_usable(
    street: Street, kind: str, value: Any, expected: float | None
) -> None:
    @tool(resources=())
    def work(ctx: Context) -> str:
        ctx.progress("here")
        return "ok"

    config = quick(timeouts={"tools": {"sequential_call": value}})
    house = street.open(kind, [work], config=config)
    assert endings(house.execute(call("work"))) == [OK]
    assert house.watch.told(e.CallAccepted)[0].contract.deadline_s == expected


def test_hermes_08_values_and_exceptions_pass_and_a_finished_call_never_timed_out(
    street: Street, kind: str
) -> None:
    @tool(resources=(), timeout=0.15, grace=2)
    def late(ctx: Context) -> str:
        ctx.wait_cancelled()  # asked at its deadline, and finishes within its grace
        return "finished all the same"

    house = street.open(kind, [late])
    (result,) = house.begin(call("late")).result(5)
    assert endings([result]) == [OK]
    assert result.value == "finished all the same"
    assert [str(flag) for flag in result.flags] == ["overran"]
    assert "timed out" not in result.text


def test_hermes_09_a_result_within_grace_is_used(street: Street, kind: str) -> None:
    @tool(resources=(), grace=5)
    def work(ctx: Context) -> str:
        ctx.wait_cancelled()
        return "saved what there was"

    house = street.open(kind, [work])
    run = house.run("r")
    going = run.begin([call("work")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    (result,) = going.result(6.0)
    assert endings([result]) == [OK]
    assert [str(flag) for flag in result.flags] == ["cancel_requested"]
    assert "a stop was requested while this ran" in result.text


def test_hermes_10_an_interrupt_skips_what_is_behind_a_barrier(street: Street, kind: str) -> None:
    ran: list[str] = []

    @tool(resources=(), exclusive=True)
    def barrier(ctx: Context) -> str:
        ran.append("barrier")
        ctx.sleep(60)
        return "never"

    @tool(resources=())
    def after(n: int) -> int:
        ran.append(f"after {n}")
        return n

    house = street.open(kind, [barrier, after])
    run = house.run("r")
    going = run.begin([call("barrier"), *[call("after", n=n) for n in range(3)]])
    house.watch.wait(e.CallStarted, 0)
    run.cancel()
    results = going.result(6.0)
    assert endings(results) == [("cancelled", "cancelled_by_user", "unknown"), *[UNSTARTED] * 3]
    assert ran == ["barrier"]


@pytest.mark.usefixtures("ctrl_c")
def test_hermes_11_ctrl_c_answers_every_call_before_it_is_raised(street: Street) -> None:
    @tool(resources=())
    def work(n: int, ctx: Context) -> int:
        if n == 1:
            ctx.sleep(60)
        return n

    house = street.open("blocking", [work])

    def press() -> None:
        house.watch.wait(e.CallStarted, 1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    run = house.rt.run("r")
    with pytest.raises(KeyboardInterrupt):
        run.execute([call("work", n=n) for n in range(4)], parallel=1)
    stopped = ("cancelled", "cancelled_by_user", "unknown")
    assert endings(run.batches[0]) == [OK, stopped, UNSTARTED, UNSTARTED]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_hermes_12_human_waits_that_overlap_count_once(street: Street, kind: str) -> None:
    doors = [street.door(), street.door()]

    @tool(resources=(), timeout=0.5)
    async def ask(ctx: AsyncContext) -> str:
        async def one(n: int) -> None:
            async with ctx.human(f"question {n}"):
                await doors[n].pass_through()

        await asyncio.gather(one(0), one(1))
        return "answered"

    house = street.open(kind, [ask])
    going = house.run("r").begin([call("ask")])
    house.watch.wait(e.CallPaused, count=2)
    doors[0].open()
    house.watch.wait(e.CallResumed)
    time.sleep(0.7)
    assert not going.over, "the second question was counted once the first was answered"
    doors[1].open()
    (result,) = going.result()
    assert endings([result]) == [OK]
    assert result.ran_s < 0.5


def test_hermes_14_an_abandoned_batch_never_dispatches_late(street: Street, kind: str) -> None:
    door = street.door()
    ran: list[int] = []

    @tool(resources=["file:/h14"])
    def work(n: int) -> int:
        ran.append(n)
        door.wait()
        return n

    house = street.open(kind, [work], config=quick(grace_s=0.05))
    going = house.run("r").begin([call("work", n=n) for n in range(3)], deadline_s=0.15)
    assert [str(r.reason) for r in going.result(6.0)] == ["batch_deadline"] * 3
    # Another run waits behind the wedged one and is served once that really ends.
    later = house.run("s").begin([call("work", n=9)])
    door.open()
    assert endings(later.result()) == [OK]
    assert ran == [0, 9]


def test_hermes_15_what_is_finished_is_kept_when_one_times_out(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=(), timeout=0.2)
    def work(n: int) -> int:
        if n == 1:
            door.wait()
        return n

    house = street.open(kind, [work], config=quick(grace_s=0.05))
    results = house.run("r").begin([call("work", n=n) for n in range(3)]).result(6.0)
    assert endings(results) == [OK, TIMED_OUT, OK]
    assert [r.value for r in results] == [0, None, 2]


def test_hermes_15_submitting_during_a_shutdown_gives_answers(street: Street, kind: str) -> None:
    ended = threading.Event()

    @tool(resources=(), grace=5)
    def work(ctx: Context) -> str:
        ctx.wait_cancelled()
        ended.wait(5)
        return "last words"

    house = street.open(kind, [work])
    run = house.run("r")
    going = run.begin([call("work")])
    house.watch.wait(e.CallStarted)
    closing = threading.Thread(target=house.close, daemon=True)
    closing.start()
    house.watch.wait(e.RunCancelled)
    ended.set()
    assert endings(going.result()) == [OK]
    closing.join(10)


def test_hermes_16_spellings_of_one_path_are_one_resource(
    street: Street, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    running = [0, 0]
    lock = threading.Lock()

    @tool(resources=["file:{path}"])
    def edit(path: str) -> str:
        with lock:
            running[0] += 1
            running[1] = max(running)
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return path

    house = street.open(kind, [edit])
    spellings = ["real/a", "./real/../real/a", f"{tmp_path}/real/a", "link/a", "real//a"]
    assert endings(house.execute(*[call("edit", path=p) for p in spellings])) == [OK] * 5
    assert running[1] == 1


def test_hermes_16_readers_go_together_and_keep_their_place_to_a_writer(
    street: Street, kind: str
) -> None:
    meet = threading.Barrier(2)
    order: list[str] = []

    @tool(resources=[shared("file:/h16/{path}")])
    def read(path: str, pair: bool = True) -> str:
        if pair:
            meet.wait(5)
        order.append("read")
        return path

    @tool(resources=["file:/h16/{path}"])
    def write(path: str) -> str:
        order.append("write")
        return path

    house = street.open(kind, [read, write])
    calls = [
        call("read", path="x"),
        call("read", path="x"),
        call("write", path="x"),
        call("read", path="x", pair=False),
    ]
    assert endings(house.execute(*calls)) == [OK] * 4
    assert order == ["read", "read", "write", "read"], "emission order was not kept"


def test_hermes_17_a_result_is_recorded_before_the_next_dispatch(street: Street, kind: str) -> None:
    seen: list[list[str]] = []

    @tool(effect="once", resources=["file:/h17"])
    def step(n: int) -> int:
        recorded = [x.event for x in house.rt.engine.journal.read("r")]
        seen.append([x.call for x in recorded if isinstance(x, e.CallSettled)])
        return n

    house = street.open(kind, [step])
    house.run("r").execute([call("step", n=n) for n in range(3)])
    assert seen == [[], ["r/0.0"], ["r/0.0", "r/0.1"]]


@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
def test_hermes_20_bodies_see_their_caller_s_context_and_no_other(threads: bool) -> None:
    @tool(name="who", resources=())
    def who() -> str:
        before = WHO.get()
        WHO.set("spoilt")
        return before

    @tool(name="who", resources=())
    async def awho() -> str:
        before = WHO.get()
        WHO.set("spoilt")
        return before

    async def session(rt: Runtime, name: str) -> list[str]:
        WHO.set(name)
        found = [str(r.value) for _ in range(3) for r in await rt.execute([call("who")] * 3)]
        assert WHO.get() == name
        return found

    async def story() -> None:
        async with Runtime([who if threads else awho], config=quick()) as rt:
            names = ["anna", "berta", "clara"]
            found = await asyncio.gather(*(asyncio.create_task(session(rt, n)) for n in names))
            assert found == [[n] * 9 for n in names]

    asyncio.run(story())


def test_openclaw_26_a_handoff_lets_siblings_settle_and_a_stop_does_not(
    street: Street, kind: str
) -> None:
    door = street.door()

    @tool(resources=(), grace=0.1)
    def work(n: int) -> int:
        door.wait()
        return n

    house = street.open(kind, [work], config=quick(grace_s=0.1))
    run = house.run("r")
    going = run.begin([call("work", f"m{n}", n=n) for n in range(2)])
    house.watch.wait(e.CallStarted, count=2)
    run.cancel(reason="superseded", mode="drain")
    door.open()
    results = going.result()
    assert endings(results) == [OK, OK]
    assert [r.model_id for r in results] == ["m0", "m1"]


def test_openclaw_27_a_policy_s_no_starts_nothing(street: Street, kind: str) -> None:
    ran: list[str] = []

    def policy(seen: HookCall) -> Any:
        return Block("no")

    @tool(resources=())
    def work() -> str:
        ran.append("ran")
        return "ran"

    house = street.open(kind, [work], before=[policy])
    house.run("r").execute([call("work")])
    house.watch.wait(e.BatchClosed)
    assert ran == []
    assert not house.watch.told(e.CallStarted)
    assert not house.watch.told(e.CallGranted)


def test_openclaw_29_endings_come_as_they_happen(street: Street, kind: str) -> None:
    doors = [street.door() for _ in range(3)]

    @tool(resources=())
    def work(n: int) -> int:
        doors[n].wait()
        return n

    house = street.open(kind, [work])
    going = house.run("r").begin([call("work", n=n) for n in range(3)])
    for n in (2, 0, 1):
        doors[n].open()
        house.watch.wait(e.CallSettled, n)
    assert [r.value for r in going.result()] == [0, 1, 2]
    told = [x.call for x in house.watch.told(e.CallSettled)]
    assert told == ["r/0.2", "r/0.0", "r/0.1"]


def test_openclaw_30_one_exclusive_tool_orders_its_batch(street: Street, kind: str) -> None:
    running: set[int] = set()
    seen: dict[int, set[int]] = {}

    def enter(n: int) -> int:
        running.add(n)
        seen[n] = set(running)
        time.sleep(0.01)
        running.discard(n)
        return n

    work = tool(name="work", resources=())(enter)
    alone = tool(name="alone", resources=(), exclusive=True)(enter)
    house = street.open(kind, [work, alone])
    names = ["work", "work", "alone", "work", "work"]
    results = house.execute(*[call(name, n=n) for n, name in enumerate(names)])
    assert endings(results) == [OK] * 5
    assert seen[2] == {2}, "the exclusive one was not alone"
    assert all(not ({0, 1} & seen[n]) for n in (3, 4)), "one behind it overtook it"


def test_openclaw_32_updates_after_a_call_is_settled_are_ignored(street: Street, kind: str) -> None:
    doors = [street.door(), street.door()]
    kept: list[Context] = []

    @tool(resources=())
    def work(n: int, ctx: Context) -> int:
        kept.append(ctx)
        doors[n].wait()
        return n

    house = street.open(kind, [work])
    going = house.run("r").begin([call("work", n=n) for n in range(2)], parallel=None)
    until(lambda: len(kept) == 2)
    doors[0].open()
    house.watch.wait(e.CallSettled, 0)
    settled = next(c for c in kept if c.call_id == "r/0.0")
    settled.progress("still here, and a sibling still runs")
    assert not house.watch.told(e.CallProgressed)
    doors[1].open()
    assert endings(going.result()) == [OK, OK]


def test_openclaw_33_a_truncated_reply_runs_nothing_of_what_was_cut(
    street: Street, kind: str
) -> None:
    ran: list[int] = []

    @tool(resources=())
    def work(n: int) -> int:
        ran.append(n)
        return n

    reply = {
        "choices": [
            {
                "finish_reason": "length",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "work", "arguments": '{"n": 12'},
                        }
                    ],
                },
            }
        ]
    }
    house = street.open(kind, [work])
    results = house.execute(*read_reply(reply).calls)
    assert endings(results) == [("rejected", "invalid_arguments", "none")]
    assert ran == []
    assert results[0].model_id == "c1"


def test_openclaw_36_batches_of_one_run_may_overlap(street: Street, kind: str) -> None:
    """Kept differently: a second batch is no error, and each has its own answers."""
    door = street.door()

    @tool(resources=())
    def work(n: int) -> int:
        if n == 0:
            door.wait()
        return n

    house = street.open(kind, [work])
    run = house.run("r")
    first = run.begin([call("work", n=0)])
    house.watch.wait(e.CallStarted, "r/0.0")
    assert [r.value for r in run.execute([call("work", n=1)])] == [1]
    door.open()
    assert [r.value for r in first.result()] == [0]
