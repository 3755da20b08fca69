"""Batches inside of tools: a parent that waits for its children holds nothing that they need."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from endstop import AsyncContext, Context, Tool, tool
from endstop.core import events as e
from tests.driving import OK, House, Street, call, endings, quick, until


class Peak:
    """Counts how many run at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def family(kind: str, houses: list[House], peak: Peak, *, apart: bool) -> list[Tool]:
    """A parent that runs two child calls of its own, together or in two batches at once."""

    @tool(resources=())
    def child(name: str) -> str:
        with peak:
            return name.upper()

    @tool(resources=())
    async def achild(name: str) -> str:
        with peak:
            await asyncio.sleep(0)
            return name.upper()

    names = ["a", "b"]

    @tool(resources=())
    def parent(ctx: Context, depth: int = 1) -> list[Any]:
        with peak:
            pass
        runtime = houses[0].rt
        with runtime.run(parent=ctx.call_id) as run:
            if depth > 1:
                results = run.execute([call("parent", depth=depth - 1)] * 2)
            else:
                results = run.execute([call("child", name=n) for n in names])
        return [r.value for r in results]

    @tool(name="parent", resources=())
    async def aparent(ctx: AsyncContext, depth: int = 1) -> list[Any]:
        with peak:
            pass
        runtime = houses[0].rt
        async with runtime.run(parent=ctx.call_id) as run:
            if depth > 1:
                results = await run.execute([call("parent", depth=depth - 1)] * 2)
                return [r.value for r in results]
            if apart:
                parts = [run.execute([call("achild", name=n)]) for n in names]
                return [r.value for part in await asyncio.gather(*parts) for r in part]
            results = await run.execute([call("achild", name=n) for n in names])
        return [r.value for r in results]

    return [child, achild, parent if kind == "blocking" else aparent]


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("apart", [False, True], ids=["one-batch", "two-batches"])
def test_BH53_parents_do_not_hold_the_slots_of_their_children(
    street: Street, kind: str, limit: int, apart: bool
) -> None:
    houses: list[House] = []
    peak = Peak()
    config = quick(slots={"thread": limit, "coroutine": limit})
    house = street.open(kind, family(kind, houses, peak, apart=apart), config=config)
    houses.append(house)
    results = house.begin(*[call("parent") for _ in range(3)]).result(10.0)
    assert endings(results) == [OK] * 3
    assert [r.value for r in results] == [["A", "B"]] * 3
    assert peak.most <= limit
    assert all(not slots.taken for slots in house.state.slots.values())
    assert len(house.watch.told(e.CallParked)) == 3


def test_parents_of_parents_finish_on_one_slot(street: Street, kind: str) -> None:
    houses: list[House] = []
    peak = Peak()
    config = quick(slots={"thread": 1, "coroutine": 1})
    house = street.open(kind, family(kind, houses, peak, apart=False), config=config)
    houses.append(house)
    results = house.begin(call("parent", depth=3)).result(10.0)
    assert endings(results) == [OK]
    assert peak.most == 1


def test_openhands_11_a_nested_batch_does_not_deadlock(street: Street, kind: str) -> None:
    """Also where the body does not say whose child the batch is."""
    houses: list[House] = []

    @tool(resources=())
    def leaf() -> str:
        return "leaf"

    @tool(name="nest", resources=())
    def nest() -> str:
        return str(houses[0].rt.execute([call("leaf")] * 3)[2].value)

    @tool(name="nest", resources=())
    async def anest() -> str:
        return str((await houses[0].rt.execute([call("leaf")] * 3))[2].value)

    config = quick(slots={"thread": 1, "coroutine": 1})
    house = street.open(kind, [leaf, nest if kind == "blocking" else anest], config=config)
    houses.append(house)
    results = house.begin(call("nest"), call("nest")).result(10.0)
    assert endings(results) == [OK, OK]
    assert [r.value for r in results] == ["leaf", "leaf"]


def test_BH69_a_cancel_reaches_the_whole_tree_within_one_grace(street: Street, kind: str) -> None:
    """Three levels, and a detached branch that lives on."""
    houses: list[House] = []
    door = street.door()

    @tool(resources=())
    async def leaf(ctx: AsyncContext, patient: bool) -> str:
        if patient:
            await door.pass_through()
            return "lives on"
        await ctx.sleep(60)
        return "never"

    def mother(ctx: Context, depth: int) -> str:
        runtime = houses[0].rt
        below = call("mother", depth=depth - 1) if depth else call("leaf", patient=False)
        if not depth:
            side = runtime.run("side", parent=ctx.call_id, detached=True)
            houses[0]._begin(side, [call("leaf", patient=True)], {})
        with runtime.run(parent=ctx.call_id) as run:
            return str(run.execute([below])[0].outcome)

    async def amother(ctx: AsyncContext, depth: int) -> str:
        runtime = houses[0].rt
        below = call("mother", depth=depth - 1) if depth else call("leaf", patient=False)
        if not depth:
            side = runtime.run("side", parent=ctx.call_id, detached=True)
            houses[0]._begin(side, [call("leaf", patient=True)], {})
        async with runtime.run(parent=ctx.call_id) as run:
            return str((await run.execute([below]))[0].outcome)

    made = tool(name="mother", resources=())(mother if kind == "blocking" else amother)
    house = street.open(kind, [leaf, made], config=quick(grace_s=2.0))
    houses.append(house)
    run = house.run("top")
    going = run.begin([call("mother", depth=2)])
    # Three mothers and two leaves.
    house.watch.wait(e.CallStarted, count=5)
    run.cancel()
    going.result(1.9)
    attached = [x for x in house.watch.told(e.CallSettled) if x.run != "side"]
    until(lambda: [v.call_id for v in house.rt.calls()] == ["side/0.0"])
    assert all(str(x.outcome) in ("cancelled", "succeeded") for x in attached)
    leaf_ending = next(x for x in attached if x.run not in ("top", "side") and not x.value)
    assert str(leaf_ending.reason) == "parent_cancelled"
    door.open()
    assert str(house.watch.wait(e.CallSettled, "side/0.0").outcome) == "succeeded"


def test_BH68_finished_children_survive_the_cancel_of_their_parent(
    street: Street, kind: str
) -> None:
    houses: list[House] = []

    @tool(resources=())
    async def part(ctx: AsyncContext, name: str) -> str:
        if name == "b":
            await ctx.sleep(60)
        return name

    def parent(ctx: Context) -> None:
        houses[0].rt.run("child", parent=ctx.call_id).execute(CHILDREN)

    async def aparent(ctx: AsyncContext) -> None:
        await houses[0].rt.run("child", parent=ctx.call_id).execute(CHILDREN)

    made = tool(name="parent", resources=())(parent if kind == "blocking" else aparent)
    house = street.open(kind, [part, made])
    houses.append(house)
    run = house.run("top")
    going = run.begin([call("parent")])
    house.watch.wait(e.CallSettled, "child/0.0")
    house.watch.wait(e.CallStarted, "child/0.1")
    run.cancel()
    going.result(3.0)
    house.watch.wait(e.CallSettled, "child/0.1")
    children = house.rt.engine.calls_of("child")
    found = [house.rt.engine.result(one) for one in children]
    assert endings(found) == [OK, ("cancelled", "parent_cancelled", "unknown")]
    assert found[0].value == "a"


CHILDREN = [call("part", name="a"), call("part", name="b")]
