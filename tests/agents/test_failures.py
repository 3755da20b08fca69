"""Every way in which a delegated call can fail, however it is made: law 17 children-settle.

{deferred, async} × {sequential, parallel} × {raises in submit, status, fetch; answers with an
error; answers with a value that contains itself; is cancelled}, driven by a caller and by a model,
on both drivers. Every scenario ends with the closing check; an error value is the control.
"""

from __future__ import annotations

from typing import Any

import pytest

from endstop import (
    AsyncContext,
    Context,
    DelegationFailed,
    HandleCancelled,
    agent_tool,
    delegate,
    tool,
)
from endstop.agents import Agent, Proof
from endstop.core import events as e
from tests.agents.desk import Desk, Script
from tests.driving import Street, call, endings

DEFERRED = {"submit": "the submit failed", "error": "the model refused", "cycle": "contains itself"}
ASYNC = {
    "submit": "submit failed: RuntimeError: the submit failed",
    "status": "its status could not be read 3 times in a row: RuntimeError: the status failed",
    "fetch": "fetch failed: RuntimeError: the fetch failed",
    "error": "the model refused",
    "cycle": "handle",
}
WAYS = [("deferred", how, words) for how, words in DEFERRED.items()]
WAYS += [("async", how, words) for how, words in ASYNC.items()]

natively = pytest.mark.parametrize("native", [True, False], ids=["coroutines", "plain"])
in_every_way = pytest.mark.parametrize(("sort", "how", "words"), WAYS)
at_once = pytest.mark.parametrize("parallel", [False, True], ids=["sequential", "parallel"])


def agent_of(sort: str, script: Script) -> Agent:
    return script.deferred() if sort == "deferred" else script.peer()


def ending_of(how: str) -> tuple[str, str, str]:
    if how == "cycle":
        return ("failed", "result_unserialisable", "done")
    return ("failed", "tool_error", "unknown")


@natively
@at_once
@in_every_way
def test_a_caller_is_told_and_the_books_are_closed(
    street: Street, kind: str, sort: str, how: str, words: str, parallel: bool, native: bool
) -> None:
    script = Script(native=native)
    agent = agent_of(sort, script)
    desk = Desk(street.open(kind))
    prompts = ["ok", how, "ok"]
    if parallel:
        group = desk.delegate_all([(agent, prompt) for prompt in prompts])
        with pytest.raises(DelegationFailed) as failed:
            desk.take(group)
        assert failed.value.handle_id == group[1].id
        assert [h.answer.ok for h in group] == [True, False, True], "a success was overwritten"
        handles = list(group)
    else:
        handles = [desk.delegate(agent)]
        assert desk.take(handles[0]) == "did ok"
        handles.append(desk.delegate(agent, how))
        with pytest.raises(DelegationFailed) as failed:
            desk.take(handles[1])
        handles.append(desk.delegate(agent))
        assert desk.take(handles[2]) == "did ok"
    assert words in str(failed.value)
    assert handles[1].id in str(failed.value)
    assert endings([handles[1].answer]) == [ending_of(how)]
    with pytest.raises(DelegationFailed):
        # A second await says the same, and asks nobody.
        desk.take(handles[1])
    assert script.count("submit") == 3
    desk.check_closed()


@natively
@at_once
@in_every_way
def test_a_model_reads_of_it_and_the_handle_is_closed(
    street: Street, kind: str, sort: str, how: str, words: str, parallel: bool, native: bool
) -> None:
    script = Script(native=native)
    house = street.open(kind, [agent_tool(agent_of(sort, script), name="ask")])
    desk = Desk(house)
    calls = [call("ask", p, prompt=p) for p in ("ok", how, "ok")]
    results = desk.guest.execute(calls, parallel=None if parallel else 1)
    assert [one.model_id for one in results] == ["ok", how, "ok"]
    assert endings(results) == [
        ("succeeded", "ok", "done"),
        ending_of(how),
        ("succeeded", "ok", "done"),
    ]
    assert words in results[1].text
    assert results[1].is_error
    desk.check_closed()


@natively
@at_once
@pytest.mark.parametrize("sort", ["deferred", "async"])
def test_a_caller_s_cancel_keeps_its_meaning(
    street: Street, kind: str, sort: str, parallel: bool, native: bool
) -> None:
    script = Script(native=native)
    desk = Desk(street.open(kind))
    agent = agent_of(sort, script)
    group = desk.delegate_all([(agent, "works"), (agent, "ok")] if parallel else [(agent, "works")])
    desk.house.on_its_thread(group[0].send)
    assert script.begun.wait(10)
    assert group[0].cancel()
    assert not group[0].cancel(), "a repeated cancel is a no-op"
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(group)
    assert not isinstance(cancelled.value, Exception), "a dispatcher could take it for a failure"
    assert cancelled.value.proof is Proof.STOPPED
    assert group[0].proof is Proof.STOPPED
    assert str(group[0].answer.outcome) == "cancelled"
    if sort == "async":
        assert script.count("cancel") == 1
    if parallel:
        assert desk.take(group[1]) == "did ok"
        assert group[1].proof is None
    desk.check_closed()


@at_once
@pytest.mark.parametrize("sort", ["deferred", "async"])
def test_a_model_s_cancelled_call_is_no_failure(
    street: Street, kind: str, sort: str, parallel: bool
) -> None:
    script = Script()
    desk = Desk(street.open(kind, [agent_tool(agent_of(sort, script), name="ask")]))
    prompts = ["ok", "works"] if parallel else ["works"]
    going = desk.guest.begin([call("ask", p, prompt=p) for p in prompts])
    assert script.begun.wait(10)
    desk.guest.cancel()
    results = going.result()
    assert endings(results)[-1] == ("cancelled", "cancelled_by_user", "unknown")
    assert "was started and then cancelled by interrupt" in results[-1].text
    failed = [x for x in desk.house.watch.told(e.CallSettled) if str(x.outcome) == "failed"]
    assert failed == [], "a cancel was stored as a failure"
    desk.check_closed()


def test_a_failure_that_is_not_handled_fails_the_action(street: Street, kind: str) -> None:
    """Caller-driven, the error reaches the code that delegated, and fails it with its words."""
    script = Script()
    agent = script.peer()
    if kind == "blocking":

        @tool(resources=())
        def act(ctx: Context) -> Any:
            return delegate(agent, "fetch").result()  # type: ignore[attr-defined]

    else:

        @tool(resources=())
        async def act(ctx: AsyncContext) -> Any:
            return await delegate(agent, "fetch")

    desk = Desk(street.open(kind, [act]))
    [result] = desk.guest.execute([call("act")])
    assert endings([result]) == [("failed", "tool_error", "unknown")]
    assert "DelegationFailed" in result.text
    assert "the fetch failed" in result.text
    child = desk.house.watch.wait(e.CallSettled, "r~0.0~0/0.0")
    assert str(child.outcome) == "failed"
    desk.check_closed()
