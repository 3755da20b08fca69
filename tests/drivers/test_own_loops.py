"""Coroutine bodies on worker loops: one that blocks its loop freezes nothing but what is on it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from typing import Any

import pytest

from endstop import AsyncContext, CallerError, LocalAgent, Runtime, WorkerLoops, delegate, tool
from endstop.core import events as e
from endstop.work import loops
from tests.driving import OK, House, Street, call, endings, quick, until

SOON_S = 3.0
"""Far below what a blocked body would take; far above what a busy machine does."""

shade: contextvars.ContextVar[str] = contextvars.ContextVar("shade", default="none")


def apart(street: Street, tools: Any, **options: Any) -> House:
    """An async runtime whose bodies run on worker loops."""
    options.setdefault("bodies", "own-loop")
    return street.open("async", tools, **options)


def places(house: House) -> list[Any]:
    """The worker loops of a runtime."""
    return list(house.rt._apart._places)


@tool(resources=[])
async def swift(name: str = "") -> str:
    """Suspends once, so that its loop must answer twice."""
    await asyncio.sleep(0)
    return name


def test_law_6_bounded_stop_a_body_that_blocks_its_loop_holds_up_nobody(street: Street) -> None:
    door, begun = street.door(), threading.Event()

    @tool(resources=[])
    async def block() -> str:
        begun.set()
        door.wait()
        return "late"

    house = apart(street, [block, swift])
    run = house.run()
    going = run.begin([call("block")])
    assert begun.wait(20)
    before = time.monotonic()
    assert endings(house.execute(*[call("swift", name=str(n)) for n in range(20)])) == [OK] * 20
    report = run.cancel().wait()
    assert time.monotonic() - before < SOON_S
    (ended,) = report.ended
    assert (str(ended.outcome), str(ended.effect), str(ended.stopped_by)) == (
        "cancelled",
        "unknown",
        "abandoned",
    )
    assert going.result()[0].alive
    (view,) = house.rt.calls()
    assert view.abandoned
    assert "blocks" in view.where
    assert any("door.wait" in line or "in block" in line for line in view.stack)
    # Law 9 on-the-books: the slot is kept until it really ends.
    assert house.state.slots[ended_kind()].taken == 1
    door.open()
    house.watch.wait(e.LateEnd)
    until(lambda: not house.rt.calls())
    assert house.state.slots[ended_kind()].taken == 0
    # Its loop answers again: it is the one that bodies share, and the one that stood in ends.
    until(lambda: len(places(house)) == 1)
    assert endings(house.execute(call("swift"))) == [OK]


def ended_kind() -> Any:
    """The kind of slot that coroutines take."""
    return swift.declared.isolation


def test_law_8_machine_time_a_deadline_comes_although_the_loop_is_blocked(street: Street) -> None:
    door = street.door()

    @tool(resources=[], timeout=0.3)
    async def block() -> None:
        door.wait()

    house = apart(street, [block])
    before = time.monotonic()
    (late,) = house.execute(call("block"))
    assert time.monotonic() - before < SOON_S
    assert (str(late.outcome), str(late.reason), str(late.effect)) == (
        "timed_out",
        "deadline",
        "unknown",
    )


def test_law_6_bounded_stop_who_shares_a_blocked_loop_can_be_stopped(street: Street) -> None:
    door, begun, waits = street.door(), threading.Event(), threading.Event()

    @tool(resources=[])
    async def neighbour(ctx: AsyncContext) -> None:
        waits.set()
        await ctx.sleep(60)

    @tool(resources=[])
    async def block() -> None:
        begun.set()
        door.wait()

    house = apart(street, [neighbour, block])
    beside, run = house.run(), house.run()
    still = beside.begin([call("neighbour")])
    assert waits.wait(20)
    going = run.begin([call("block")])
    assert begun.wait(20)
    before = time.monotonic()
    beside.cancel().wait()
    assert time.monotonic() - before < SOON_S
    (stuck,) = still.result()
    # It stands still behind another body: nobody knows how far it was.
    assert (str(stuck.outcome), str(stuck.effect), stuck.alive) == ("cancelled", "unknown", True)
    door.open()
    assert endings(going.result()) == [OK]
    house.watch.wait(e.LateEnd)


def test_law_9_on_the_books_blocked_loops_are_bounded_then_saturated(street: Street) -> None:
    door = street.door()
    begun: list[int] = []

    @tool(resources=[])
    async def block() -> None:
        begun.append(threading.get_ident())
        door.wait()

    house = apart(street, [block, swift], bodies=WorkerLoops(most=2))
    runs = [house.run(), house.run()]
    going = []
    for count, run in enumerate(runs, start=1):
        going.append(run.begin([call("block")]))
        until(lambda count=count: len(begun) == count)
    assert len(set(begun)) == 2
    (refused,) = house.execute(call("swift"))
    assert (str(refused.outcome), str(refused.reason), str(refused.effect)) == (
        "rejected",
        "saturated",
        "none",
    )
    for run in runs:
        run.cancel().wait()
    assert len(house.rt.calls()) == 2
    assert all(view.abandoned for view in house.rt.calls())
    (refused,) = house.execute(call("swift"))
    assert str(refused.reason) == "saturated"
    assert len(places(house)) == 2
    door.open()
    house.watch.wait(e.LateEnd, count=2)
    assert endings(house.execute(call("swift"))) == [OK]
    assert all(len(one.result()) == 1 for one in going)


def test_law_9_on_the_books_abandoned_bodies_keep_their_slots(street: Street) -> None:
    door = street.door()

    @tool(resources=[])
    async def block() -> None:
        door.wait()

    house = apart(street, [block, swift], config=quick(slots={"coroutine": 1}))
    run = house.run()
    going = run.begin([call("block")])
    house.watch.wait(e.CallStarted)
    run.cancel().wait()
    assert str(going.result()[0].stopped_by) == "abandoned"
    assert str(house.execute(call("swift"))[0].reason) == "saturated"
    door.open()
    house.watch.wait(e.LateEnd)
    assert endings(house.execute(call("swift"))) == [OK]


def test_law_1_one_door_a_body_that_is_moved_runs_once(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "LATE_S", 0.01)
    ran: Counter[str] = Counter()

    @tool(resources=[])
    async def count(name: str) -> None:
        ran[name] += 1
        await asyncio.sleep(0)

    @tool(resources=[])
    async def stutter() -> None:
        for _ in range(5):
            time.sleep(0.03)
            await asyncio.sleep(0)

    house = apart(street, [count, stutter])
    names = [f"n{n}" for n in range(60)]
    going = [
        house.begin(call("stutter"), *[call("count", name=name) for name in names[at::6]])
        for at in range(6)
    ]
    for one in going:
        assert {str(result.outcome) for result in one.result()} == {"succeeded"}
    assert ran == Counter(dict.fromkeys(names, 1))


def test_law_7_every_wait_listens_on_a_worker_loop(street: Street) -> None:
    door = street.door()

    @tool(resources=[])
    async def sleeps(ctx: AsyncContext) -> None:
        await ctx.sleep(60)

    @tool(resources=[])
    async def asks(ctx: AsyncContext) -> str:
        return await ctx.ask("which?")

    @tool(resources=[])
    async def waits() -> None:
        await door.pass_through()

    house = apart(street, [sleeps, asks, waits])
    run = house.run()
    going = run.begin([call("sleeps"), call("asks"), call("waits")])
    house.watch.wait(e.QuestionAsked)
    house.watch.wait(e.CallStarted, count=3)
    run.cancel().wait()
    assert [str(one.stopped_by) for one in going.result()] == ["asked"] * 3
    assert house.rt.calls() == []


def test_a_question_from_a_worker_loop_is_answered(street: Street) -> None:
    @tool(resources=[], timeout=0.5)
    async def asks(ctx: AsyncContext) -> str:
        return await ctx.ask("which?")

    house = apart(street, [asks])
    going = house.begin(call("asks"))
    house.watch.wait(e.QuestionAsked)
    # Law 8 machine-time: longer than its deadline, which stands still meanwhile.
    with pytest.raises(TimeoutError):
        going.future.result(0.8)
    (question,) = house.rt.questions()
    assert question.answer("that one")
    assert going.result()[0].value == "that one"


def test_bodies_on_worker_loops_run_batches_and_agents_and_see_their_caller(street: Street) -> None:
    seen: list[str] = []
    houses: list[House] = []
    loop_of: dict[str, int] = {}

    async def says(task: Any, run: Any) -> str:
        return f"{task.prompt}!"

    echo = LocalAgent(name="echo", fn=says)

    @tool(resources=[])
    async def parent(ctx: AsyncContext) -> list[Any]:
        loop_of["parent"] = threading.get_ident()
        seen.append(shade.get())
        handle = delegate(echo, "hello")
        async with houses[0].rt.run(parent=ctx.call_id) as run:
            shade.set("child's")
            results = await run.execute([call("swift", name="a"), call("swift", name="b")])
        return [*(one.value for one in results), await handle]

    hooks: list[int] = []

    async def before(asked: Any) -> None:
        hooks.append(threading.get_ident())

    async def after(result: Any) -> None:
        hooks.append(threading.get_ident())

    house = apart(street, [parent, swift], before=[before], after=[after])
    houses.append(house)

    async def go() -> Any:
        shade.set("the caller's")
        return await house.rt.execute([call("parent")])

    (result,) = house.await_there(go())
    assert result.value == ["a", "b", "hello!"], result.error
    assert seen == ["the caller's"]
    assert set(hooks) == {house._thread.ident}, "hooks run on the driver's own loop"
    assert len(hooks) >= 6
    assert loop_of["parent"] != house._thread.ident


def test_law_19_any_payload_an_exit_in_a_task_that_a_body_left_ends_that_task(
    street: Street, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[Any] = []

    async def leave() -> None:
        raise SystemExit(3)

    @tool(resources=[])
    async def careless() -> None:
        left.append(asyncio.create_task(leave()))

    house = apart(street, [careless, swift])
    house.execute(call("careless"))
    until(lambda: "raised an exit" in caplog.text)
    assert endings(house.execute(call("swift"))) == [OK]
    assert isinstance(left[0].exception(), SystemExit)


def test_bodies_with_loops_of_their_own_do_not_meet(street: Street) -> None:
    door, begun = street.door(), threading.Barrier(3)
    threads: list[int] = []

    @tool(resources=[])
    async def block() -> None:
        threads.append(threading.get_ident())
        begun.wait(20)
        door.wait()

    house = apart(street, [block, swift], bodies=WorkerLoops(per_loop=1))
    going = house.begin(call("block"), call("block"))
    begun.wait(20)
    assert len(set(threads)) == 2
    before = time.monotonic()
    assert endings(house.execute(call("swift"))) == [OK]
    assert time.monotonic() - before < SOON_S
    door.open()
    assert endings(going.result()) == [OK, OK]
    until(lambda: len(places(house)) == 1)


def test_a_blocking_runtime_starts_bodies_beside_a_blocked_loop(street: Street) -> None:
    door, begun = street.door(), threading.Event()

    @tool(resources=[])
    async def block() -> None:
        begun.set()
        door.wait()

    house = street.open("blocking", [block, swift])
    going = house.begin(call("block"))
    assert begun.wait(20)
    assert endings(house.execute(call("swift"))) == [OK]
    door.open()
    assert endings(going.result()) == [OK]


def test_what_is_no_place_for_bodies_is_refused() -> None:
    with pytest.raises(CallerError, match="'caller-loop', 'own-loop' or WorkerLoops"):
        Runtime(bodies="elsewhere")
    with pytest.raises(CallerError, match="most is a whole number above 0, not 0"):
        WorkerLoops(most=0)
    with pytest.raises(CallerError, match="per_loop is a whole number above 0, not -1"):
        WorkerLoops(per_loop=-1)
