"""Handles and groups: when an agent is sent its task, who may wait, and what dropping one costs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from endstop import (
    Block,
    BlockingRuntime,
    CallerError,
    DeferredAgent,
    DelegationFailed,
    DroppedHandles,
    HandleCancelled,
    Runtime,
    close_turn,
    delegate,
    delegate_all,
)
from endstop.agents import Proof, Task, gather, open_handles
from endstop.agents.delegate import GROUP_MAX
from endstop.core import events as e
from tests.agents.desk import QUICK, Desk, Script
from tests.driving import Street, endings, quick, until

CANCELLED_UNSENT = [("cancelled", "cancelled_by_user", "none")]


def test_a_deferred_agent_is_sent_when_first_awaited_and_once(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    first, second = desk.delegate(script.deferred()), desk.delegate(script.deferred())
    assert (first.id, second.id) == ("r/0.0", "r/1.0")
    assert not first.sent
    assert not first.done
    assert script.asked == []
    assert desk.take(first) == "did ok"
    assert desk.take(first) == "did ok"
    assert script.asked == ["submit"], "a second await asks nobody"
    assert not second.sent
    assert desk.take(second) == "did ok"
    desk.check_closed()


def test_a_deferred_call_asks_no_hook_before_it_is_sent(street: Street, kind: str) -> None:
    asked: list[str] = []

    def policy(seen: Any) -> Any:
        asked.append(seen.tool)
        return Block("not today") if seen.arguments["prompt"] == "error" else None

    script = Script()
    desk = Desk(street.open(kind, before=[policy]))
    fine, denied = desk.delegate(script.deferred()), desk.delegate(script.deferred(), "error")
    assert asked == []
    assert desk.take(fine) == "did ok"
    assert asked == ["agent:deferred"]
    with pytest.raises(DelegationFailed, match="not today"):
        desk.take(denied)
    assert script.count("submit") == 1
    desk.check_closed()


def test_an_async_agent_is_submitted_at_once(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer())
    assert handle.sent
    until(lambda: script.count("fetch") == 1)
    until(lambda: handle.done)
    assert handle.answer.value == "did ok"
    desk.check_closed()


def test_one_report_triple_per_delegation_under_the_agent_s_name(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    for prompt in ("ok", "cycle"):
        handle = desk.delegate(script.peer(), prompt)
        desk.answered(handle)
        told = desk.house.watch.told
        assert [x.tool for x in told(e.CallAccepted, handle.id)] == ["agent:peer"]
        assert len(told(e.CallStarted, handle.id)) == 1
        assert len(told(e.CallSettled, handle.id)) == 1
    desk.check_closed()


def test_no_model_is_offered_what_a_caller_delegates(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    desk.take(desk.delegate(script.deferred()))
    assert desk.house.rt.tools == {}
    desk.check_closed()


def test_a_cancel_before_it_is_sent_discards_it(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.deferred())
    assert handle.cancel()
    assert handle.done
    with pytest.raises(HandleCancelled):
        desk.take(handle)
    assert endings([handle.answer]) == CANCELLED_UNSENT
    assert handle.proof is Proof.STOPPED
    assert script.asked == []
    desk.check_closed()


def test_a_cancel_after_the_end_is_ignored(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.deferred())
    assert desk.take(handle) == "did ok"
    assert not handle.cancel()
    assert handle.proof is None
    assert desk.take(handle) == "did ok"
    desk.check_closed()


def test_a_group_gathers_in_submission_order(street: Street, kind: str) -> None:
    doors = [street.door() for _ in range(3)]
    ended: list[int] = []

    async def work(task: Task) -> int:
        number = int(task.prompt)
        await doors[number].pass_through()
        ended.append(number)
        if number:
            doors[number - 1].open()
        return number

    agent = DeferredAgent(name="worker", submit=work)
    desk = Desk(street.open(kind))
    group = desk.delegate_all([(agent, str(number)) for number in range(3)])
    assert [h.id for h in group] == ["r/0.0", "r/0.1", "r/0.2"]
    doors[2].open()
    assert desk.take(group) == [0, 1, 2]
    assert ended == [2, 1, 0]
    assert group.done
    desk.check_closed()


def test_a_member_of_a_bounded_group_sends_the_others(street: Street, kind: str) -> None:
    """With `parallel` the members wait for each other: whoever awaits the last sends the first."""
    script = Script()
    desk = Desk(street.open(kind))
    group = desk.delegate_all([(script.deferred(), f"{n}") for n in range(3)], parallel=1)
    assert desk.take(group[2]) == "did 2"
    assert [h.done for h in group] == [True, True, True]
    assert desk.take(group) == ["did 0", "did 1", "did 2"]
    desk.check_closed()


def test_a_group_cancel_reaches_every_member(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    group = desk.delegate_all([(script.peer(), "works"), (script.deferred(), "ok")])
    assert script.begun.wait(10)
    assert group.cancel()
    assert not group.cancel()
    assert [str(one.outcome) for one in desk.answered(group)] == ["cancelled"] * 2
    assert [h.proof for h in group] == [Proof.STOPPED] * 2
    desk.check_closed()


def test_nothing_is_accepted_of_a_group_that_is_wrong(street: Street, kind: str) -> None:
    script = Script()
    agent = script.deferred()
    desk = Desk(street.open(kind))
    wrong: list[tuple[Any, str]] = [
        ([(agent, "ok"), (object(), "ok")], "no agent"),
        ([(agent, "ok"), (agent, 1)], "a prompt is text, not int"),
        ([agent], "pairs of agent and prompt"),
        ([(agent, "ok")] * (GROUP_MAX + 1), "too many for one group"),
    ]
    for requests, words in wrong:
        with pytest.raises(CallerError, match=words):
            desk.delegate_all(requests)
    assert desk.house.watch.told(e.BatchOpened) == []
    with pytest.raises(CallerError, match="needs run="):
        desk.house.on_its_thread(lambda: delegate(agent, "ok").done)
    desk.check_closed()


def test_an_empty_group_is_nothing_to_wait_for(street: Street, kind: str) -> None:
    desk = Desk(street.open(kind))
    assert desk.take(desk.delegate_all([])) == []
    desk.check_closed()


# -- dropped


def test_a_dropped_handle_fails_the_check_by_name(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    kept = desk.delegate(script.deferred())
    desk.delegate(script.deferred())
    desk.delegate(script.peer(), "works")
    ready = desk.delegate(script.peer())
    assert script.begun.wait(10)
    until(lambda: ready.done)
    assert desk.take(kept) == "did ok"
    assert [h.id for h in open_handles(desk.run)] == ["r/1.0", "r/2.0", "r/3.0"]
    with pytest.raises(DroppedHandles) as dropped:
        desk.close_turn()
    assert dropped.value.handle_ids == ("r/1.0", "r/2.0", "r/3.0")
    assert "r/1.0 (deferred, never sent), r/2.0 (peer), r/3.0 (peer)" in str(dropped.value)
    # The supervisor has stopped what was open: the peer was told, and nothing is left.
    assert script.count("cancel") == 1
    assert desk.house.rt.calls() == []
    desk.check_closed()


def test_closing_the_run_is_a_closing_check_too(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    desk.delegate(script.deferred())
    with pytest.raises(DroppedHandles, match=r"r/0\.0"):
        desk.guest.close()
    until(lambda: "r" not in desk.house.state.runs)


def test_the_check_replaces_no_error(street: Street) -> None:
    async def scenario() -> None:
        async with Runtime() as runtime:
            with pytest.raises(ZeroDivisionError) as error:
                async with runtime.run("r") as run:
                    _ = delegate(Script().deferred(), "ok", run=run)
                    raise ZeroDivisionError
            assert "r/0.0" in error.value.__notes__[0]
            assert runtime.calls() == []

    asyncio.run(scenario())


def test_BH68_a_cancelled_run_drops_nothing_and_keeps_what_had_finished(
    street: Street, kind: str
) -> None:
    """BH68: cancelling a parent disposes of no result; what ran has its own ending."""
    script = Script()
    desk = Desk(street.open(kind))
    finished, running = desk.delegate(script.peer()), desk.delegate(script.peer(), "works")
    until(lambda: finished.done)
    assert script.begun.wait(10)
    desk.guest.cancel().wait()
    desk.check_closed()
    assert finished.answer.value == "did ok"
    assert desk.take(finished) == "did ok"
    assert endings([running.answer]) == [("cancelled", "cancelled_by_user", "unknown")]
    with pytest.raises(HandleCancelled):
        desk.take(running)


# -- waiting


def test_a_bounded_wait_stops_nothing(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(), "works")
    if kind == "blocking":
        assert not handle.wait(0.02)
        with pytest.raises(TimeoutError, match=r"r/0\.0"):
            handle.result(0.02)
    else:
        assert not desk.house.await_there(handle.wait(0.02))
    assert not handle.done
    script.freed.set()
    assert desk.take(handle) == "did works"
    assert script.count("cancel") == 0
    desk.check_closed()


def test_a_blocking_caller_that_only_looks_sees_a_deadline_pass() -> None:
    script = Script()
    with BlockingRuntime(config=quick()) as runtime, runtime.run("r") as run:
        handle = delegate(script.peer(), "works", run=run, timeout_s=0.05)
        until(lambda: handle.done)
        assert handle.answer is not None
        assert endings([handle.answer]) == [("timed_out", "deadline", "unknown")]
        close_turn(run)


def test_who_is_cancelled_while_it_awaits_stops_the_call() -> None:
    async def scenario() -> None:
        script = Script()
        async with Runtime() as runtime, runtime.run("r") as run:
            handle = delegate(script.peer(), "works", run=run)
            waiter = asyncio.ensure_future(handle.answered())
            while not script.begun.is_set():
                await asyncio.sleep(0.002)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert handle.proof is Proof.STOPPED
            await close_turn(run)

    asyncio.run(scenario())


def test_who_is_cancelled_while_it_awaits_a_group_stops_the_group() -> None:
    async def scenario() -> None:
        script, other = Script(), Script()
        async with Runtime() as runtime, runtime.run("r") as run:
            one, two = (delegate(s.peer(), "works", run=run) for s in (script, other))
            waiter = asyncio.ensure_future(gather(one, two).answered())
            while not (script.begun.is_set() and other.begun.is_set()):
                await asyncio.sleep(0.002)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert [one.proof, two.proof] == [Proof.STOPPED] * 2
            await close_turn(run)

    asyncio.run(scenario())


def test_a_group_takes_each_handle_once_and_of_one_runtime() -> None:
    async def scenario() -> None:
        script = Script()
        async with (
            Runtime() as runtime,
            Runtime() as other,
            runtime.run("r") as run,
            other.run("o") as elsewhere,
        ):
            mine = delegate(script.deferred(), "ok", run=run)
            theirs = delegate(script.deferred(), "ok", run=elsewhere)
            with pytest.raises(CallerError, match="given twice"):
                _ = gather(mine, mine)
            with pytest.raises(CallerError, match="another runtime"):
                _ = gather(mine, theirs)
            assert script.asked == []
            assert await gather(mine) == ["did ok"]
            await theirs

    asyncio.run(scenario())


# -- ids


def test_ids_are_the_same_when_it_is_done_again(street: Street, kind: str) -> None:
    seen = []
    for _ in range(2):
        script = Script()
        desk = Desk(street.open(kind))
        handles = [desk.delegate(script.deferred()) for _ in range(2)]
        handles += desk.delegate_all([(script.deferred(), "ok"), (script.peer(), "ok")])
        handles.append(desk.delegate(script.deferred(), detached=True))
        handles.append(desk.delegate(script.deferred(), detached=True))
        for handle in handles:
            desk.take(handle)
        seen.append([handle.id for handle in handles])
        desk.check_closed()
    assert seen[0] == seen[1]
    assert seen[0] == ["r/0.0", "r/1.0", "r/2.0", "r/2.1", "r~0/0.0", "r~1/0.0"]


# -- detached


def test_a_detached_call_survives_and_is_listed(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(), "works", detached=True)
    assert script.begun.wait(10)
    desk.guest.cancel().wait()
    desk.close_turn()
    assert [view.call_id for view in desk.house.rt.calls()] == ["r~0/0.0"]
    assert not handle.done
    script.freed.set()
    assert desk.take(handle) == "did works"
    desk.check_closed()


def test_a_detached_call_outlives_who_waits_for_it() -> None:
    async def scenario() -> None:
        script = Script()
        async with Runtime() as runtime, runtime.run("r") as run:
            handle = delegate(script.peer(), "works", run=run, detached=True)
            group = delegate_all([(script.peer(), "works")], run=run, detached=True)
            for waited in (handle, group):
                waiter = asyncio.ensure_future(waited.answered())
                while not script.begun.is_set():
                    await asyncio.sleep(0.002)
                waiter.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiter
            assert not handle.done
            assert not group.done
            script.freed.set()
            assert await handle == "did works"
            assert await group == ["did works"]

    asyncio.run(scenario())


def test_patience_is_checked() -> None:
    with pytest.raises(CallerError, match="probes is 0"):
        type(QUICK)(probes=0)
    with pytest.raises(CallerError, match="probe_s is nan"):
        type(QUICK)(probe_s=float("nan"))
    with pytest.raises(CallerError, match="every_s is -1"):
        type(QUICK)(every_s=-1)
