"""S2 · flink-agents #1279: an awaited sub-agent call that fails leaves its handle pending.

At the level of the core a handle is a call, and its ending is written by the supervisor, whatever
the await of it did: only successful awaits closed the original's handles. Every scenario ends with
the finishing check itself: the ledger of the run is closed and nothing is open.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest

from endstop import AsyncContext, Context, Runtime, Tool, ToolCall, tool
from endstop.core import decide, inputs
from endstop.core import events as e
from endstop.core.terms import How
from tests.driving import (
    OK,
    Guest,
    House,
    Street,
    call,
    endings,
    fails_when,
    quick,
    until,
)

FAILED = ("failed", "tool_error", "unknown")
NOT_PASSED_ON = ("failed", "result_unserialisable", "done")
ENDINGS = {
    "raises": FAILED,
    "cancelled-error": FAILED,
    "futures-cancelled-error": FAILED,
    "contains-itself": NOT_PASSED_ON,
    "error-value": OK,
}


def answer(how: str) -> Any:
    """How a sub-agent answers: by raising, or with a value."""
    match how:
        case "raises":
            raise RuntimeError("the fetch failed")
        case "cancelled-error":
            raise asyncio.CancelledError
        case "futures-cancelled-error":
            raise concurrent.futures.CancelledError
        case "contains-itself":
            loop: list[Any] = []
            loop.append(loop)
            return loop
        case _:
            return {"error": "the model refused"}


def sub_agent(threads: bool) -> Tool:
    """A sub-agent as a tool: deferred (called when awaited) or async."""

    @tool(name="delegate", resources=())
    def deferred(how: str) -> Any:
        return answer(how)

    @tool(name="delegate", resources=())
    async def submitted(how: str) -> Any:
        await asyncio.sleep(0)
        return answer(how)

    return deferred if threads else submitted


def finishing_check(house: House, run: Guest) -> None:
    """Every call that was accepted is answered, nothing is open, and the run can end."""
    house.watch.wait(e.BatchClosed)
    accepted = [x.call for x in house.watch.told(e.CallAccepted) if x.run == run.id]
    settled = [x.call for x in house.watch.told(e.CallSettled) if x.run == run.id]
    assert sorted(settled) == sorted(accepted), "finished without resolving what it submitted"
    assert house.rt.calls() == [], "a handle is still open"
    run.close()
    ended = house.watch.wait(e.RunEnded)
    assert ended.run == run.id
    assert house.state.runs.get(run.id) is None, "the run is still on the books"


def failed_call(street: Street, kind: str, how: str, threads: bool, parallel: int | None) -> None:
    house = street.open(kind, [sub_agent(threads)])
    run = house.run("r")
    hows = ["error-value", how, "error-value"]
    going = run.begin([call("delegate", h, how=h) for h in hows], parallel=parallel)
    results = going.result(6.0)
    assert endings(results) == [OK, ENDINGS[how], OK], "a sibling's success was overwritten"
    assert results[1].model_id == how
    assert results[1].is_error == (how != "error-value"), "the model reads of the failure"
    assert results[1].text
    finishing_check(house, run)


def plant_only_success_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug: an await that raises leaves the handle where it is."""
    body_ended = decide._DECIDE[inputs.BodyEnded]

    def only_success(state: Any, said: inputs.BodyEnded, now: float) -> list[e.Event]:
        return body_ended(state, said, now) if said.how is How.RETURNED else []

    monkeypatch.setitem(decide._DECIDE, inputs.BodyEnded, only_success)


@pytest.mark.parametrize("parallel", [1, None], ids=["sequential", "parallel"])
@pytest.mark.parametrize("threads", [True, False], ids=["deferred", "async"])
@pytest.mark.parametrize("how", ENDINGS)
def test_a_failed_call_is_answered_and_closed(
    street: Street, kind: str, how: str, threads: bool, parallel: int | None
) -> None:
    failed_call(street, kind, how, threads, parallel)


@pytest.mark.parametrize("threads", [True, False], ids=["deferred", "async"])
@pytest.mark.parametrize("how", [how for how in ENDINGS if how != "error-value"])
def test_a_failed_call_fails_on_the_original_bug(kind: str, how: str, threads: bool) -> None:
    fails_when(plant_only_success_closes, failed_call, kind, how, threads, None)


def test_an_intentional_cancel_keeps_its_meaning(street: Street, kind: str) -> None:
    """Neither a success nor a failure, and the ledger is closed all the same."""

    @tool(resources=())
    async def delegate(ctx: AsyncContext) -> None:
        await ctx.sleep(60)

    house = street.open(kind, [delegate])
    run = house.run("r")
    going = run.begin([call("delegate"), call("delegate")])
    house.watch.wait(e.CallStarted, count=2)
    run.cancel()
    results = going.result(6.0)
    assert endings(results) == [("cancelled", "cancelled_by_user", "unknown")] * 2
    finishing_check(house, run)


def test_a_cancel_does_not_close_the_handle_of_what_still_runs(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=())
    def delegate() -> str:
        door.wait()
        return "late"

    house = street.open(kind, [delegate], config=quick(grace_s=0.05))
    run = house.run("r")
    going = run.begin([call("delegate")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    results = going.result(6.0)
    assert results[0].alive
    assert [view.call_id for view in house.rt.calls()] == ["r/0.0"], "it is off the books"
    door.open()
    house.watch.wait(e.LateEnd)
    finishing_check(house, run)


def test_a_status_that_never_leaves_not_started_is_bounded(street: Street, kind: str) -> None:
    """A probe that is polled for ever ends with its call's deadline, and closes the handle."""

    @tool(resources=(), timeout=0.2)
    async def delegate() -> None:
        while True:
            await asyncio.sleep(0.01)

    house = street.open(kind, [delegate])
    run = house.run("r")
    results = run.begin([call("delegate")]).result(6.0)
    assert endings(results) == [("timed_out", "deadline", "unknown")]
    assert str(results[0].stopped_by) == "asked"
    finishing_check(house, run)


# -- a run below a call: the parent's body submits and awaits


def parent_tool(house_of: list[House], kind: str, mode: str) -> Tool:
    """A body that opens a child run: awaits it, drops it, or lets its failure out."""
    children = [call("delegate", how="raises"), call("delegate", how="error-value")]

    if kind == "blocking":

        @tool(name="parent", resources=())
        def parent(ctx: Context) -> Any:
            runtime = house_of[0].rt
            child = runtime.run("child", parent=ctx.call_id)
            if mode == "drops":
                house_of[0]._begin(child, [call("wait")], {})
                house_of[0].watch.wait(e.CallStarted, "child/0.0")
                return "dropped it"
            results = child.execute(children)
            child.close()
            return reported(results, mode)

        return parent

    @tool(name="parent", resources=())
    async def aparent(ctx: AsyncContext) -> Any:
        runtime: Runtime = house_of[0].rt
        child = runtime.run("child", parent=ctx.call_id)
        if mode == "drops":
            _TASKS.append(asyncio.ensure_future(child.execute([call("wait")])))
            while not house_of[0].watch.told(e.CallStarted, "child/0.0"):
                await asyncio.sleep(0.002)
            return "dropped it"
        results = await child.execute(children)
        child.close()
        return reported(results, mode)

    return aparent


_TASKS: list[Any] = []


def reported(results: Any, mode: str) -> Any:
    """What a parent makes of its children's answers."""
    if mode == "raises":
        failed = [r for r in results if not r.ok]
        raise RuntimeError(f"the sub-agent failed: {failed[0].error}")
    return [str(r.outcome) for r in results]


def child_run(street: Street, kind: str, mode: str) -> tuple[House, Any]:
    houses: list[House] = []

    @tool(name="wait", resources=())
    async def wait(ctx: AsyncContext) -> None:
        await ctx.sleep(60)

    tools = [parent_tool(houses, kind, mode), sub_agent(threads=True), wait]
    house = street.open(kind, tools)
    houses.append(house)
    run = house.run("r")
    results = run.begin([call("parent")]).result(5.0)
    house.watch.wait(e.BatchClosed, limit_s=5.0)
    until(lambda: any(x.run == "child" for x in house.watch.told(e.RunEnded)))
    return house, results


def test_a_group_await_leaves_nobody_pending(street: Street, kind: str) -> None:
    house, results = child_run(street, kind, "awaits")
    assert endings(results) == [OK]
    assert results[0].value == ["failed", "succeeded"]
    assert house.rt.calls() == []


def test_a_caller_s_own_failure_fails_its_action(street: Street, kind: str) -> None:
    """User code that submitted, awaited and did not handle the failure fails, and says why."""
    house, results = child_run(street, kind, "raises")
    assert endings(results) == [FAILED]
    assert "the fetch failed" in results[0].text
    children = [str(x.outcome) for x in house.watch.told(e.CallSettled) if x.run == "child"]
    assert sorted(children) == ["failed", "succeeded"]
    assert house.rt.calls() == []


def test_a_dropped_handle_is_closed_by_the_supervisor(street: Street, kind: str) -> None:
    house, results = child_run(street, kind, "drops")
    assert endings(results) == [OK]
    child = house.watch.wait(e.CallSettled, "child/0.0")
    assert (str(child.outcome), str(child.reason)) == ("cancelled", "parent_cancelled")
    until(lambda: house.rt.calls() == [])


def test_the_core_closes_a_handle_that_is_lost(street: Street, kind: str) -> None:
    """Whoever would have told the end is gone: the supervisor still writes one ending."""

    @tool(resources=())
    def delegate() -> None:
        return None

    house = street.open(kind, [delegate])
    worker = house.rt.engine.workers[delegate.declared.isolation]
    start, told = worker.start, house.rt.engine.tell

    def losing(job: Any) -> None:
        told(inputs.Claimed(call=job.call))
        told(inputs.BodyEnded(call=job.call, how=How.LOST, error="the peer went away"))

    worker.start = losing
    run = house.run("r")
    results = run.begin([call("delegate")]).result(6.0)
    worker.start = start
    assert endings(results) == [("lost", "worker_lost", "unknown")]
    finishing_check(house, run)


def calls_of(*hows: str) -> list[ToolCall]:
    """One delegated call for each way to answer."""
    return [call("delegate", how, how=how) for how in hows]


def test_every_failure_at_once(street: Street, kind: str) -> None:
    house = street.open(kind, [sub_agent(threads=True)])
    run = house.run("r")
    results = run.begin(calls_of(*ENDINGS)).result(5.0)
    assert endings(results) == list(ENDINGS.values())
    finishing_check(house, run)
