"""Public reports about batches: lost siblings, orphans, order; and about payloads in them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from endstop import AsyncContext, Block, Context, HookCall, ToolCall, tool
from endstop.core import events as e
from tests.driving import OK, Street, call, endings, quick, until

FAILED = ("failed", "tool_error", "unknown")


def test_BH44_a_failure_keeps_its_siblings_results(street: Street, kind: str) -> None:
    finished = threading.Event()

    @tool(resources=())
    def good(name: str, ctx: Context) -> str:
        if name == "c":
            ctx.wait_cancelled(0.1)
        finished.set()
        return name

    @tool(resources=())
    async def bad(cancelled: bool) -> None:
        while not finished.is_set():
            await asyncio.sleep(0.002)
        if cancelled:
            raise asyncio.CancelledError
        raise ValueError("broken")

    house = street.open(kind, [good, bad])
    for cancelled in (False, True):
        calls = [call("good", name="a"), call("bad", cancelled=cancelled), call("good", name="c")]
        results = house.execute(*calls)
        assert endings(results) == [OK, FAILED, OK]
        assert [r.value for r in results] == ["a", None, "c"]


def test_BH44_stop_siblings_on_failure_keeps_what_is_finished(street: Street, kind: str) -> None:
    finished, waiting = threading.Event(), threading.Event()

    @tool(resources=())
    def good(name: str, ctx: Context) -> str:
        if name == "c":
            waiting.set()
            ctx.sleep(60)
        finished.set()
        return name

    @tool(resources=())
    async def bad() -> None:
        while not (finished.is_set() and waiting.is_set()):
            await asyncio.sleep(0.002)
        raise ValueError("broken")

    house = street.open(kind, [good, bad])
    going = house.begin(
        call("good", name="a"), call("bad"), call("good", name="c"), on_failure="stop"
    )
    results = going.result(5.0)
    assert endings(results) == [OK, FAILED, ("cancelled", "sibling_failed", "unknown")]
    assert results[0].value == "a"
    assert "another call of the same batch failed" in results[2].text


def test_BH45_nothing_of_a_batch_lives_after_it(street: Street, kind: str) -> None:
    """A batch that gives up: the writer is stopped, the question is answered, all are settled."""
    writes: list[float] = []

    @tool(resources=())
    async def writer(ctx: AsyncContext) -> None:
        while True:
            writes.append(time.monotonic())
            await ctx.sleep(0.01)

    @tool(resources=())
    def fatal() -> None:
        until(lambda: len(writes) > 2)
        raise RuntimeError("fatal")

    @tool(resources=(), approval="always")
    def deferred() -> str:
        return "after all"

    house = street.open(kind, [writer, fatal, deferred], config=quick(grace_s=5))
    going = house.run("r").begin(
        [call("writer"), call("fatal"), call("deferred")], on_failure="stop"
    )
    results = going.result(5.0)
    seen = len(writes)
    sibling = ("cancelled", "sibling_failed")
    assert endings(results) == [(*sibling, "unknown"), FAILED, (*sibling, "none")]
    assert house.rt.calls() == []
    time.sleep(0.1)
    assert len(writes) == seen


def test_BH45_without_that_policy_a_deferred_sibling_is_kept(street: Street, kind: str) -> None:
    @tool(resources=())
    def fatal() -> None:
        raise RuntimeError("fatal")

    @tool(resources=(), approval="always")
    def deferred() -> str:
        return "after all"

    house = street.open(kind, [fatal, deferred])
    going = house.run("r").begin([call("fatal"), call("deferred")])
    house.watch.wait(e.CallSettled, 0)
    house.watch.wait(e.ApprovalAsked, 1)
    assert [p.call_id for p in house.rt.pending()] == ["r/0.1"]
    assert house.rt.approve("r/0.1")
    assert endings(going.result()) == [FAILED, OK]


@pytest.mark.parametrize("how", ["raises", "cancels-itself", "leaks", "exits", "interrupts"])
def test_BH46_a_body_that_ends_itself_ends_one_call(street: Street, kind: str, how: str) -> None:
    written: list[str] = []
    gone = threading.Event()

    @tool(resources=())
    async def odd() -> None:
        gone.set()
        match how:
            case "raises":
                raise asyncio.CancelledError
            case "cancels-itself":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(60)
            case "leaks":
                async with asyncio.timeout(0.01) as scope:
                    scope.reschedule(asyncio.get_running_loop().time())
                    await asyncio.sleep(60)
            case "exits":
                raise SystemExit(1)
            case _:
                raise KeyboardInterrupt

    @tool(resources=())
    async def writer() -> str:
        while not gone.is_set():
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)
        written.append("all")
        return "written"

    house = street.open(kind, [odd, writer])
    run = house.run("r")
    results = run.begin([call("odd"), call("writer")]).result(5.0)
    assert endings(results) == [FAILED, OK]
    assert written == ["all"], "the writer was not awaited"
    assert endings(run.execute([call("writer")])) == [OK], "the run was cancelled by it"


def test_BH50_answers_come_in_call_order_and_events_carry_the_id(street: Street, kind: str) -> None:
    doors = {name: street.door() for name in ("a1", "a2", "b")}

    def check(seen: HookCall) -> Any:
        return Block("not this one") if seen.arguments["name"] == "c" else None

    @tool(resources=())
    def work(name: str) -> str:
        doors[name].wait()
        return name

    house = street.open(kind, [work], before=[check])
    names = ["a1", "a2", "b", "c"]
    going = house.run("r").begin([call("work", f"id-{n}", name=n) for n in names])
    house.watch.wait(e.CallStarted, count=3)
    # The one that is refused is over at some moment of its own.
    house.watch.wait(e.CallSettled, 3)
    for name, index in (("a2", 1), ("b", 2), ("a1", 0)):
        doors[name].open()
        house.watch.wait(e.CallSettled, index)
    results = going.result()
    assert [r.model_id for r in results] == [f"id-{n}" for n in names]
    assert [r.value for r in results] == ["a1", "a2", "b", None]
    assert endings(results)[3] == ("rejected", "denied_by_policy", "none")
    completed = [x.call for x in house.watch.told(e.CallSettled)]
    assert completed == ["r/0.3", "r/0.1", "r/0.2", "r/0.0"]
    assert {x.call: x.value for x in house.watch.told(e.CallSettled)} == {
        "r/0.0": "a1",
        "r/0.1": "a2",
        "r/0.2": "b",
        "r/0.3": None,
    }


@pytest.mark.parametrize("same_thread", [True, False], ids=["same-thread", "other-thread"])
def test_BH77_result_and_cancel_in_one_tick_are_both_kept(
    street: Street, same_thread: bool
) -> None:
    """The run is cancelled and the finished result is there; nothing else starts."""
    house = street.open("async", (), config=quick(grace_s=5))
    ran: list[str] = []

    @tool(resources=["file:/bh77"])
    async def pay(run: str) -> str:
        if same_thread:
            # The cancel lands in the very step in which the body returns.
            house.rt.cancel(run)
        return "paid"

    @tool(resources=["file:/bh77"])
    async def after() -> None:
        ran.append("after")

    house.rt.add_tool(pay)
    house.rt.add_tool(after)
    for number in range(300):
        run = house.run(f"r{number}")
        going = run.begin([call("pay", run=run.id), call("after")])
        if not same_thread:
            house.watch.wait(e.CallStarted, f"r{number}/0.0")
            run.cancel()
        paid, other = going.result(5.0)
        assert paid.value == "paid" or not same_thread
        if paid.ok:
            assert paid.value == "paid"
        ended = house.watch.wait(e.RunEnded, count=number + 1)
        assert (ended.run, str(ended.outcome)) == (run.id, "cancelled"), "the cancel was lost"
        if same_thread:
            assert [str(f) for f in paid.flags] == ["cancel_requested"]
            assert str(other.outcome) == "cancelled"
        run.close()
    assert not ran or not same_thread


def test_BH77_a_thread_s_result_and_the_cancel_are_both_kept(street: Street, kind: str) -> None:
    house = street.open(kind, (), config=quick(grace_s=5))

    @tool(resources=())
    def pay(run: str) -> str:
        house.rt.cancel(run)
        return "paid"

    house.rt.add_tool(pay)
    for number in range(150):
        run = house.run(f"r{number}")
        (paid,) = run.begin([call("pay", run=run.id)]).result(5.0)
        assert endings([paid]) == [OK]
        ended = house.watch.wait(e.RunEnded, count=number + 1)
        assert str(ended.outcome) == "cancelled"
        run.close()


def cyclic() -> dict[str, Any]:
    """A mapping that holds itself."""
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    return loop


def deep() -> dict[str, Any]:
    """A mapping nested 100,000 deep."""
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"n": nested}
    return nested


HOSTILE = {
    "cycle": cyclic,
    "depth": deep,
    "nan": lambda: {"value": float("nan")},
    "object": lambda: {"value": object()},
    "list": lambda: ["value"],
    "other-names": lambda: {"nonsense": 1},
}


@pytest.mark.parametrize("how", HOSTILE)
def test_BH73_unusable_arguments_run_nothing_and_stay_visible(
    street: Street, kind: str, how: str
) -> None:
    ran: list[Any] = []

    @tool(effect="once", resources=())
    def pay(value: Any) -> str:
        ran.append(value)
        return "paid"

    house = street.open(kind, [pay])
    bad = ToolCall(model_id="x", tool="pay", arguments=HOSTILE[how]())
    results = house.execute(
        bad, call("pay", "y", value="fine"), ToolCall(model_id="z", tool="pry", arguments={})
    )
    invalid = ("rejected", "invalid_arguments", "none")
    assert endings(results) == [invalid, OK, ("rejected", "unknown_tool", "none")]
    assert [r.model_id for r in results] == ["x", "y", "z"]
    assert ran == ["fine"]
    assert "pay" in results[2].text


def test_BH72_half_a_character_is_made_whole_at_the_boundary(street: Street, kind: str) -> None:
    @tool(resources=())
    def echo(text: str) -> str:
        return text + "\ud83c"

    house = street.open(kind, [echo])
    (result,) = house.execute(call("echo", text="a\ud83cb\0c"))
    assert endings([result]) == [OK]
    assert result.text.encode("utf-8")
    assert str(result.arguments).encode("utf-8")
