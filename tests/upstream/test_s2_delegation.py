"""S2 · flink-agents #1279 on the surface: handles of sub-agents, deferred and async.

An awaited sub-agent call that fails left its handle pending, because only a successful await
removed it, and the finishing check then failed the whole action. Every scenario here runs the
finishing check itself, and fails again when the original bug is planted. The report's own control
is an agent that answers with an error.
"""

from __future__ import annotations

from typing import Any

import pytest

from endstop import DelegationFailed, DroppedHandles, HandleCancelled, agent_tool
from endstop.agents import Proof
from endstop.agents.group import BlockingGroup, Group
from endstop.agents.handle import BaseHandle
from endstop.agents.ledger import Ledger
from endstop.agents.steps import Conversation
from endstop.core import decide, inputs
from endstop.core import events as e
from endstop.core.terms import How
from endstop.run.results import CallResult
from tests.agents.desk import Desk, Script
from tests.driving import Street, call, fails_when, quick

FAILURES = {"deferred": ("submit", "cycle"), "async": ("submit", "status", "fetch", "cycle")}
WAYS = [(sort, how) for sort, ways in FAILURES.items() for how in ways]
sorts = pytest.mark.parametrize("sort", FAILURES)
ways = pytest.mark.parametrize(("sort", "how"), WAYS)
at_once = pytest.mark.parametrize("parallel", [False, True], ids=["sequential", "parallel"])


def agent_of(sort: str, script: Script) -> Any:
    return script.deferred() if sort == "deferred" else script.peer()


# -- driven by the model


def driven_by_a_model(street: Street, kind: str, sort: str, how: str, parallel: bool) -> None:
    house = street.open(kind, [agent_tool(agent_of(sort, Script()), name="ask")])
    desk = Desk(house)
    calls = [call("ask", how, prompt=how), call("ask", "ok", prompt="ok")]
    results = desk.guest.begin(calls, parallel=None if parallel else 1).result(5.0)
    assert [one.is_error for one in results] == [True, False]
    assert [one.model_id for one in results] == [how, "ok"]
    assert "failed" in results[0].text or "could not be passed on" in results[0].text
    assert results[1].value == "did ok", "a sibling's success was overwritten"
    desk.check_closed()


def plant_only_success_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug, for calls: an await that raises leaves the handle where it is."""
    body_ended = decide._DECIDE[inputs.BodyEnded]

    def only_success(state: Any, said: inputs.BodyEnded, now: float) -> list[e.Event]:
        return body_ended(state, said, now) if said.how is How.RETURNED else []

    monkeypatch.setitem(decide._DECIDE, inputs.BodyEnded, only_success)


@at_once
@pytest.mark.parametrize(("sort", "how"), [*WAYS, ("deferred", "error"), ("async", "error")])
def test_the_model_reads_of_it(
    street: Street, kind: str, sort: str, how: str, parallel: bool
) -> None:
    driven_by_a_model(street, kind, sort, how, parallel)


@ways
def test_the_model_reads_of_it_fails_on_the_original_bug(kind: str, sort: str, how: str) -> None:
    fails_when(plant_only_success_closes, driven_by_a_model, kind, sort, how, True)


# -- driven by a caller


def driven_by_a_caller(street: Street, kind: str, sort: str, how: str, parallel: bool) -> None:
    desk = Desk(street.open(kind))
    agent = agent_of(sort, Script())
    if parallel:
        group = desk.delegate_all([(agent, how), (agent, "ok")])
        with pytest.raises(DelegationFailed):
            desk.take(group)
        answers = desk.answered(group)
    else:
        first = desk.delegate(agent, how)
        with pytest.raises(DelegationFailed):
            desk.take(first)
        second = desk.delegate(agent)
        assert desk.take(second) == "did ok"
        answers = [desk.answered(first), second.answer]
    assert [one.ok for one in answers] == [False, True]
    finishing_check(desk)


def finishing_check(desk: Desk) -> None:
    """The check passes, and nothing is open."""
    try:
        desk.check_closed()
    except DroppedHandles as problem:
        raise AssertionError(str(problem)) from problem


def plant_only_success_leaves_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug, for handles: a failed await does not take the handle off the books."""
    leave = Ledger.leave

    def only_success(ledger: Ledger, handle: BaseHandle) -> None:
        ended = handle._call.settled
        if ended is None or str(ended.outcome) == "succeeded":
            leave(ledger, handle)

    monkeypatch.setattr(Ledger, "leave", only_success)


@at_once
@ways
def test_a_caller_s_handle_is_closed(
    street: Street, kind: str, sort: str, how: str, parallel: bool
) -> None:
    driven_by_a_caller(street, kind, sort, how, parallel)


@at_once
@ways
def test_a_caller_s_handle_is_closed_fails_on_the_original_bug(
    kind: str, sort: str, how: str, parallel: bool
) -> None:
    plant = plant_only_success_leaves_the_books
    fails_when(plant, driven_by_a_caller, kind, sort, how, parallel)


# -- where it hides again


def a_group_leaves_nobody_pending(street: Street, kind: str) -> None:
    desk = Desk(street.open(kind))
    agent = Script().deferred()
    group = desk.delegate_all([(agent, p) for p in ("ok", "submit", "ok", "ok")])
    with pytest.raises(DelegationFailed) as failed:
        desk.take(group)
    assert failed.value.handle_id == "r/0.1"
    assert [h.done for h in group] == [True] * 4, "members behind the failure are pending"
    finishing_check(desk)


def plant_a_group_stops_at_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(group: Group) -> list[CallResult]:
        for handle in group:
            await handle
        return []

    def blocking(group: BlockingGroup, timeout_s: float | None = None) -> list[CallResult]:
        for handle in group:
            handle.result(timeout_s)
        return []

    monkeypatch.setattr(Group, "answered", answered)
    monkeypatch.setattr(BlockingGroup, "answered", blocking)


def test_a_group_leaves_nobody_pending(street: Street, kind: str) -> None:
    a_group_leaves_nobody_pending(street, kind)


def test_a_group_leaves_nobody_pending_fails_on_the_old_await(kind: str) -> None:
    fails_when(plant_a_group_stops_at_the_first_failure, a_group_leaves_nobody_pending, kind)


def a_cancel_is_no_failure(street: Street, kind: str, sort: str) -> None:
    """A dispatcher that folds every `Exception` into an observation lets a cancel through."""
    desk = Desk(street.open(kind))
    script = Script()
    handle = desk.delegate(agent_of(sort, script), "works")
    desk.house.on_its_thread(handle.send)
    assert script.begun.wait(10)
    handle.cancel()
    observed, cancelled = None, False
    try:
        desk.take(handle)
    except Exception as error:
        observed = str(error)
    except HandleCancelled:
        cancelled = True
    assert observed is None, "a cancel was turned into an observation"
    assert cancelled
    finishing_check(desk)


def plant_a_cancel_is_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def value_of(handle: BaseHandle, answer: CallResult) -> Any:
        if answer.ok:
            return answer.value
        raise DelegationFailed(handle.id, handle.agent, answer)

    monkeypatch.setattr(BaseHandle, "value_of", value_of)


@sorts
def test_a_cancel_is_no_failure(street: Street, kind: str, sort: str) -> None:
    a_cancel_is_no_failure(street, kind, sort)


@sorts
def test_a_cancel_is_no_failure_fails_on_a_cancel_that_is_an_exception(
    kind: str, sort: str
) -> None:
    fails_when(plant_a_cancel_is_an_exception, a_cancel_is_no_failure, kind, sort)


def no_clean_ledger_while_it_runs(street: Street, kind: str) -> None:
    """A cancelled call whose peer goes on is unknown, and stays listed."""
    script = Script(stopping=False)
    desk = Desk(street.open(kind, config=quick(grace_s=0.1)))
    handle = desk.delegate(script.peer(), "works")
    assert script.begun.wait(10)
    handle.cancel()
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(handle)
    try:
        assert cancelled.value.proof is Proof.UNKNOWN
        assert [view.call_id for view in desk.house.rt.calls()] == [handle.id]
    finally:
        script.freed.set()
    finishing_check(desk)


def plant_a_cancel_marks_it_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(conversation: Conversation) -> Any:
        await conversation._ask_to_stop()

    monkeypatch.setattr(Conversation, "_stop", stop)


def test_no_clean_ledger_while_it_runs(street: Street, kind: str) -> None:
    no_clean_ledger_while_it_runs(street, kind)


def test_no_clean_ledger_while_it_runs_fails_on_the_old_cancel(kind: str) -> None:
    def scenario(street: Street, kind: str) -> None:
        try:
            no_clean_ledger_while_it_runs(street, kind)
        except pytest.fail.Exception as problem:
            raise AssertionError(str(problem)) from problem

    fails_when(plant_a_cancel_marks_it_clean, scenario, kind)


def a_dropped_handle_fails_the_check(street: Street, kind: str, sort: str) -> None:
    desk = Desk(street.open(kind))
    script = Script()
    desk.delegate(agent_of(sort, script), "works")
    problem = None
    try:
        desk.close_turn()
    except DroppedHandles as dropped:
        problem = dropped
    assert problem is not None, "nobody noticed"
    assert problem.handle_ids == ("r/0.0",)
    finishing_check(desk)


def plant_no_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "enter", lambda ledger, handle: None)


@sorts
def test_a_dropped_handle_fails_the_check(street: Street, kind: str, sort: str) -> None:
    a_dropped_handle_fails_the_check(street, kind, sort)


@sorts
def test_a_dropped_handle_fails_the_check_fails_without_books(kind: str, sort: str) -> None:
    fails_when(plant_no_books, a_dropped_handle_fails_the_check, kind, sort)
