"""Behaviours of OpenHands' parallel executor that are kept, by their number in the document.

`docs/behaviours.md` lists all of them, with those that other tests hold and those that are not
kept, and why.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from endstop import AsyncContext, Block, CallerError, Context, HookCall, NotFound, Runtime, tool
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

FAILED = ("failed", "tool_error", "unknown")


class Overlap:
    """Counts how many bodies run at once, and lets them wait until enough have come."""

    def __init__(self, parties: int) -> None:
        self._met = threading.Barrier(parties)
        self._lock = threading.Lock()
        self.now = self.most = 0

    def meet(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            self._met.wait(5)
        except threading.BrokenBarrierError:
            raise AssertionError("they did not run at once") from None
        finally:
            with self._lock:
                self.now -= 1


def test_openhands_01_a_limit_below_one_is_refused(street: Street, kind: str) -> None:
    house = street.open(kind, ())
    for limit in (0, -1):
        with pytest.raises(CallerError, match="at least 1"):
            house.begin(call("x"), parallel=limit).future.result(5)


def test_openhands_02_an_empty_batch_is_an_empty_list(street: Street, kind: str) -> None:
    house = street.open(kind, ())
    assert list(house.execute()) == []
    run = house.run("r")
    run.cancel()
    assert list(run.execute([])) == []


def test_openhands_03_a_coroutine_takes_no_thread(street: Street) -> None:
    seen: list[int] = []

    @tool(resources=())
    async def where() -> None:
        seen.append(threading.get_ident())

    async def story() -> None:
        async with Runtime([where], config=quick()) as rt:
            before = threading.active_count()
            await rt.execute([call("where")] * 5)
            assert threading.active_count() == before
        assert set(seen) == {threading.get_ident()}

    asyncio.run(story())


def test_openhands_04_one_at_a_time_keeps_submission_order(street: Street, kind: str) -> None:
    overlap = Overlap(1)
    order: list[int] = []

    @tool(resources=())
    def work(n: int) -> int:
        order.append(n)
        overlap.meet()
        return n

    house = street.open(kind, [work])
    house.execute(*[call("work", n=n) for n in range(20)], parallel=1)
    assert order == list(range(20))
    assert overlap.most == 1


def test_openhands_05_results_in_input_order(street: Street, kind: str) -> None:
    doors = [street.door() for _ in range(4)]

    @tool(resources=())
    def work(n: int) -> int:
        doors[n].wait()
        return n

    house = street.open(kind, [work])
    going = house.run("r").begin([call("work", f"m{n}", n=n) for n in range(4)])
    for n in (3, 1, 2, 0):
        doors[n].open()
        house.watch.wait(e.CallSettled, n)
    assert [(r.model_id, r.value) for r in going.result()] == [(f"m{n}", n) for n in range(4)]


@pytest.mark.parametrize("limit", [2, 4])
def test_openhands_06_calls_overlap_and_never_more_than_allowed(
    street: Street, kind: str, limit: int
) -> None:
    overlap = Overlap(limit)

    @tool(resources=())
    def work() -> None:
        overlap.meet()

    house = street.open(kind, [work])
    results = house.execute(*[call("work")] * (3 * limit), parallel=limit)
    assert endings(results) == [OK] * (3 * limit)
    assert overlap.most == limit


def test_openhands_07_all_that_a_call_reports_is_kept_in_order(street: Street, kind: str) -> None:
    @tool(resources=())
    def work(ctx: Context) -> str:
        for step in range(5):
            ctx.progress(f"step {step}")
        return "done"

    house = street.open(kind, [work])
    house.run("r").execute([call("work")] * 2)
    house.watch.wait(e.BatchClosed)
    for index in (0, 1):
        said = [x.message for x in house.watch.told(e.CallProgressed, index)]
        assert said == [f"step {step}" for step in range(5)]


class Odd(Exception):
    """An exception that nobody has heard of."""


@pytest.mark.parametrize("error", [ValueError, OSError, Odd, ExceptionGroup, StopIteration])
def test_openhands_08_09_10_an_exception_is_one_answer_among_the_others(
    street: Street, kind: str, error: Any
) -> None:
    @tool(resources=())
    def work(fail: bool) -> str:
        if not fail:
            return "fine"
        raise (
            error("went wrong", [ValueError("inner")])
            if error is ExceptionGroup
            else error("went wrong")
        )

    house = street.open(kind, [work])
    results = house.execute(*[call("work", f"m{n}", fail=n == 1) for n in range(3)])
    assert endings(results) == [OK, FAILED, OK]
    failed = results[1]
    assert (failed.tool, failed.model_id) == ("work", "m1")
    assert "went wrong" in failed.text
    assert error.__name__ in failed.text
    assert [r.value for r in results] == ["fine", None, "fine"]


def test_openhands_12_undeclared_is_serialised_per_tool(street: Street, kind: str) -> None:
    overlaps = {"a": Overlap(1), "b": Overlap(1)}
    both = Overlap(2)

    def make(name: str) -> Any:
        @tool(name=name)
        def work(meet: bool) -> str:
            overlaps[name].meet()
            if meet:
                both.meet()
            return name

        return work

    house = street.open(kind, [make("a"), make("b")])
    calls = [call(name, meet=n == 0) for n in range(3) for name in ("a", "b")]
    assert endings(house.execute(*calls)) == [OK] * 6
    assert overlaps["a"].most == overlaps["b"].most == 1
    assert both.most == 2, "two tools do not exclude each other"


def test_openhands_13_17_declared_without_keys_is_fully_parallel(street: Street, kind: str) -> None:
    overlap = Overlap(4)

    @tool(resources=())
    def work() -> None:
        overlap.meet()

    house = street.open(kind, [work])
    assert endings(house.execute(*[call("work")] * 4)) == [OK] * 4
    assert overlap.most == 4


def test_openhands_14_18_19_one_key_excludes_and_two_do_not(street: Street, kind: str) -> None:
    same, different = Overlap(1), Overlap(2)

    @tool(resources=["file:/oh/{key}"])
    def work(key: str, meet: bool) -> None:
        (different if meet else same).meet()

    house = street.open(kind, [work])
    assert endings(house.execute(*[call("work", key="k", meet=False)] * 5)) == [OK] * 5
    assert same.most == 1
    apart = [call("work", key=k, meet=True) for k in ("x", "y")]
    assert endings(house.execute(*apart)) == [OK] * 2


def test_openhands_15_a_tool_that_nobody_knows_runs_nothing(street: Street, kind: str) -> None:
    house = street.open(kind, ())
    (result,) = house.execute(call("nobody"))
    assert endings([result]) == [("rejected", "unknown_tool", "none")]


def test_openhands_16_resources_are_not_asked_of_invalid_arguments(
    street: Street, kind: str
) -> None:
    asked: list[Any] = []

    def resources(arguments: Any) -> list[str]:
        asked.append(arguments)
        return ["file:/oh16"]

    @tool(resources=resources)
    def work(n: int) -> int:
        return n

    house = street.open(kind, [work])
    results = house.execute(call("work", n="many"), call("work", n=1))
    assert endings(results) == [("rejected", "invalid_arguments", "none"), OK]
    assert asked == [{"n": 1}]


def test_openhands_20_22_opposite_and_duplicate_keys_end(street: Street, kind: str) -> None:
    @tool(resources=["file:/oh/{a}", "file:/oh/{b}"])
    async def work(a: str, b: str) -> str:
        await asyncio.sleep(0)
        return a + b

    house = street.open(kind, [work])
    pairs = [("x", "y"), ("y", "x"), ("x", "x"), ("y", "y")] * 10
    goings = [house.run(f"r{n}").begin([call("work", a=a, b=b)]) for n, (a, b) in enumerate(pairs)]
    assert [endings(g.result(10)) for g in goings] == [[OK]] * len(pairs)
    assert len(house.state.resources) == 0


def test_openhands_24_26_27_a_resource_is_free_after_an_exception_and_then_gone(
    street: Street, kind: str
) -> None:
    door = street.door()

    @tool(resources=["file:/oh24"])
    def work(fail: bool) -> str:
        if fail:
            door.wait()
            raise ValueError("no")
        return "ok"

    house = street.open(kind, [work])
    going = house.run("r").begin([call("work", fail=True), call("work", fail=False)])
    house.watch.wait(e.CallStarted, 0)
    assert len(house.state.resources) > 0
    door.open()
    assert endings(going.result()) == [FAILED, OK]
    assert len(house.state.resources) == 0


def test_openhands_25_a_set_is_taken_all_or_nothing(street: Street, kind: str) -> None:
    """There is no partial acquisition to roll back: a waiter holds none of its set."""
    door = street.door()

    @tool(resources=["file:/oh/{a}", "file:/oh/{b}"])
    def work(a: str, b: str, hold: bool = False) -> str:
        if hold:
            door.wait()
        return a + b

    config = quick(resource_waits={"file": 0.15})
    house = street.open(kind, [work], config=config)
    holding = house.run("h").begin([call("work", a="y", b="z", hold=True)])
    house.watch.wait(e.CallStarted)
    waiting = house.run("w").begin([call("work", a="x", b="y")])
    house.watch.wait(e.CallQueued, "w/0.0")
    assert endings(house.begin(call("work", a="x", b="q")).result(5)) == [OK], "x was held"
    (result,) = waiting.result(5)
    assert endings([result]) == [("rejected", "resource_timeout", "none")]
    assert "file:/oh/y" in result.text
    door.open()
    assert endings(holding.result()) == [OK]


def test_openhands_28_a_child_may_use_what_its_parent_holds(street: Street, kind: str) -> None:
    houses: list[Any] = []

    @tool(resources=["file:/oh28"])
    def inner() -> str:
        return "inner"

    def outer(ctx: Context) -> str:
        with houses[0].rt.run(parent=ctx.call_id) as run:
            return str(run.execute([call("inner")])[0].value)

    async def aouter(ctx: AsyncContext) -> str:
        async with houses[0].rt.run(parent=ctx.call_id) as run:
            return str((await run.execute([call("inner")]))[0].value)

    body = outer if kind == "blocking" else aouter
    house = street.open(kind, [inner, tool(name="outer", resources=["file:/oh28"])(body)])
    houses.append(house)
    (result,) = house.begin(call("outer")).result(5)
    assert result.value == "inner"


def test_openhands_37_38_an_interrupt_ends_the_run_once_and_raises_nothing(
    street: Street, kind: str
) -> None:
    @tool(resources=())
    async def think(ctx: AsyncContext) -> None:
        await ctx.sleep(60)

    house = street.open(kind, [think])
    run = house.run("r")
    going = run.begin([call("think")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    results = going.result(6.0)  # an answer, and no CancelledError
    assert str(results[0].outcome) == "cancelled"
    house.watch.wait(e.RunEnded)
    assert len(house.watch.told(e.RunCancelled)) == 1
    assert len(house.watch.told(e.RunEnded)) == 1


def test_openhands_34_39_40_cancels_are_harmless_where_nothing_runs(
    street: Street, kind: str
) -> None:
    @tool(resources=())
    def work() -> str:
        return "ok"

    house = street.open(kind, [work])
    with pytest.raises(NotFound):
        house.rt.cancel("none")
    finished = house.run("f")
    finished.execute([call("work")])
    for _ in range(3):
        stop = house.cancel("f/0")
        assert not stop.accepted
    idle = house.run("i")
    assert idle.cancel().accepted
    assert not idle.cancel().accepted
    assert endings(idle.execute([call("work")])) == [UNSTARTED]
    # The next run knows nothing of it.
    assert endings(house.run("n").execute([call("work")])) == [OK]


def test_openhands_43_45_a_blocked_call_is_answered_at_its_position(
    street: Street, kind: str
) -> None:
    ran: list[int] = []

    def policy(seen: HookCall) -> Any:
        return Block("forbidden here") if seen.arguments["n"] == 1 else None

    @tool(resources=())
    def work(n: int) -> int:
        ran.append(n)
        if n == 2:
            raise ValueError("broken")
        return n

    house = street.open(kind, [work], before=[policy])
    results = house.execute(*[call("work", n=n) for n in range(4)])
    assert endings(results) == [OK, ("rejected", "denied_by_policy", "none"), FAILED, OK]
    assert "forbidden here" in results[1].text
    assert sorted(ran) == [0, 2, 3]
    until(lambda: not house.rt.calls())
