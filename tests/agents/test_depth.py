"""Agents below agents: one grace whatever the depth, shared books, and slots that never lock up.

BH53, BH68, BH69, BH34: local agents are runs of their own in the same runtime, so a stop reaches
the whole tree, budgets are shared, and a parent that waits for its children holds nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from endstop import (
    AsyncContext,
    CallerError,
    Context,
    DeferredAgent,
    DelegationFailed,
    DroppedHandles,
    HandleCancelled,
    Limits,
    LocalAgent,
    Money,
    Tool,
    ToolCall,
    agent_tool,
    delegate,
    delegate_all,
    tool,
)
from endstop.agents import Task
from endstop.core import events as e
from tests.agents.desk import Desk, Script
from tests.driving import Street, call, endings, quick, until

GRACE_S = 0.5
PARENT_CANCELLED = ("cancelled", "parent_cancelled", "unknown")


class Gauge:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.peak = self.entered = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._lock:
            self.inside += 1
            self.entered += 1
            self.peak = max(self.peak, self.inside)
        try:
            yield
        finally:
            with self._lock:
                self.inside -= 1


def local(kind: str, name: str, steps: Any, **terms: Any) -> LocalAgent:
    """A local agent for either driver: `steps(task, run)` yields what it waits for."""

    async def on_loop(task: Task, run: Any) -> Any:
        going = steps(task, run)
        try:
            waited = next(going)
            while True:
                try:
                    value = await waited
                except DelegationFailed as error:
                    waited = going.throw(error)
                else:
                    waited = going.send(value)
        except StopIteration as done:
            return done.value

    def blocking(task: Task, run: Any) -> Any:
        going = steps(task, run)
        try:
            waited = next(going)
            while True:
                try:
                    value = waited.result()
                except DelegationFailed as error:
                    waited = going.throw(error)
                else:
                    waited = going.send(value)
        except StopIteration as done:
            return done.value

    return LocalAgent(name=name, fn=blocking if kind == "blocking" else on_loop, **terms)


def nested(kind: str, depth: int, script: Script, **terms: Any) -> LocalAgent:
    """A local agent that delegates to one that delegates … to a peer that works until stopped."""

    def steps(task: Task, run: Any) -> Any:
        below = script.peer() if depth == 1 else nested(kind, depth - 1, script)
        value = yield delegate(below, "works")
        return value

    return local(kind, f"level{depth}", steps, **terms)


@pytest.mark.parametrize("driven", ["by a caller", "by a model"])
def test_BH69_a_stop_reaches_the_whole_tree_in_one_grace(
    street: Street, kind: str, driven: str
) -> None:
    """BH69: a peer at depth 3 that does not stop costs one grace, not one for every level."""
    script = Script(stopping=False)
    agent = nested(kind, 3, script)
    desk = Desk(street.open(kind, [agent_tool(agent)], config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(agent) if driven == "by a caller" else None
    calls = [] if handle is not None else [call("level3", prompt="ok")]
    going = desk.guest.begin(calls)
    assert script.begun.wait(10)
    desk.house.watch.wait(e.CallStarted, count=4)
    began = time.monotonic()
    stopped = desk.guest.cancel()
    report = stopped.wait()
    took_s = time.monotonic() - began
    assert report.over
    assert took_s < 2 * GRACE_S, f"{took_s:.2f} s: more than one grace"
    until(lambda: len(desk.house.watch.told(e.CallSettled)) == 4)
    assert time.monotonic() - began < 2 * GRACE_S
    told = {x.call: x for x in desk.house.watch.told(e.CallSettled)}
    inner = [x for call_id, x in told.items() if call_id != "r/0.0"]
    assert {str(x.reason) for x in inner} == {"parent_cancelled"}
    assert str(told["r/0.0"].reason) == "cancelled_by_user"
    assert len(desk.house.watch.told(e.CallStarted)) == 4, "a new call was started"
    if handle is not None:
        with pytest.raises(HandleCancelled):
            desk.take(handle)
    else:
        assert endings(going.result()) == [("cancelled", "cancelled_by_user", "unknown")]
    script.freed.set()
    desk.check_closed()


def test_BH69_a_detached_branch_lives_on_and_is_listed(street: Street, kind: str) -> None:
    script, apart = Script(), Script()
    ids: list[str] = []

    def steps(task: Task, run: Any) -> Any:
        ids.append(delegate(apart.peer(), "works", detached=True).id)
        value = yield delegate(script.peer(), "works")
        return value

    desk = Desk(street.open(kind, config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(local(kind, "parent", steps))
    assert script.begun.wait(10)
    assert apart.begun.wait(10)
    handle.cancel()
    with pytest.raises(HandleCancelled):
        desk.take(handle)
    assert script.count("cancel") == 1
    assert apart.count("cancel") == 0
    until(lambda: [view.call_id for view in desk.house.rt.calls()] == ids)
    apart.freed.set()
    ended = desk.house.watch.wait(e.CallSettled, ids[0])
    assert ended.value == "did works"
    desk.check_closed()


def test_BH68_finished_children_keep_their_results(street: Street, kind: str) -> None:
    """BH68: A has finished, B runs; cancel the parent; A stays readable, B has its own ending."""
    script = Script()
    handles: list[Any] = []

    def steps(task: Task, run: Any) -> Any:
        handles.extend(delegate_all([(script.peer(), "ok"), (script.peer(), "works")]))
        yield handles[0]
        yield handles[1]

    desk = Desk(street.open(kind))
    handle = desk.delegate(local(kind, "parent", steps))
    assert script.begun.wait(10)
    until(lambda: handles and handles[0].done)
    handle.cancel()
    with pytest.raises(HandleCancelled):
        desk.take(handle)
    until(lambda: handles[1].done)
    assert handles[0].answer.value == "did ok"
    assert endings([handles[1].answer]) == [PARENT_CANCELLED]
    desk.check_closed()


@pytest.mark.parametrize("together", [True, False], ids=["group", "one by one"])
def test_BH53_waiting_parents_hold_no_slot(street: Street, kind: str, together: bool) -> None:
    """BH53: limit 2, two parents with two children each; all finish and no more than 2 work."""
    gauge = Gauge()

    async def work(task: Task) -> str:
        with gauge.working():
            await asyncio.sleep(0.01)
        return task.prompt

    worker = DeferredAgent(name="worker", submit=work)

    def steps(task: Task, run: Any) -> Any:
        if together:
            values = yield delegate_all([(worker, "a"), (worker, "b")])
            return values
        first, second = delegate(worker, "a"), delegate(worker, "b")
        return [(yield first), (yield second)]

    agent = local(kind, "parent", steps)
    desk = Desk(street.open(kind, config=quick(slots={"remote": 2})))
    group = desk.delegate_all([(agent, "ok")] * 3)
    assert desk.take(group) == [["a", "b"]] * 3
    assert gauge.entered == 6
    assert gauge.peak <= 2
    desk.check_closed()


def pay(gauge: Gauge) -> Tool:
    """A tool that costs 1 EUR and waits to be stopped if it is asked to."""

    @tool(name="pay", cost="1 EUR", resources=())
    async def pay(slow: bool, ctx: AsyncContext) -> str:
        with gauge.working():
            ctx.spend("1", "EUR")
            if slow:
                await ctx.sleep(60)
        return "paid"

    return pay


def test_children_draw_on_the_budget_of_their_parent(street: Street, kind: str) -> None:
    """Law 20 paid-once: what a cancelled child spent still counts, and nobody overspends."""
    gauge = Gauge()

    def spender(slow: bool) -> LocalAgent:
        calls = [ToolCall(model_id="m", tool="pay", arguments={"slow": slow})]

        def spend_blocking(task: Task, run: Any) -> str:
            text = run.execute(calls)[0].text
            task.check()
            return str(text)

        if kind == "blocking":
            return LocalAgent(name="spender", fn=spend_blocking)

        async def spend(task: Task, run: Any) -> str:
            return str((await run.execute(calls))[0].text)

        return LocalAgent(name="spender", fn=spend)

    limits = Limits(money=(Money(amount=Decimal(2), currency="EUR"),))
    desk = Desk(street.open(kind, [pay(gauge)]), limits=limits)
    stopped = desk.delegate(spender(slow=True))
    until(lambda: gauge.inside == 1)
    stopped.cancel()
    with pytest.raises(HandleCancelled):
        desk.take(stopped)
    assert desk.take(desk.delegate(spender(slow=False))) == "paid"
    assert "would exceed the budget" in desk.take(desk.delegate(spender(slow=False)))
    assert gauge.entered == 2
    budget = desk.house.state.runs["r"].budget
    assert budget.spent == {"EUR": Decimal(2)}
    assert not any(budget.reserved.values())
    desk.check_closed()


def test_an_agent_s_own_limits_are_kept(street: Street, kind: str) -> None:
    script = Script()

    def steps(task: Task, run: Any) -> Any:
        first = yield delegate(script.deferred(), "a")
        try:
            yield delegate(script.deferred(), "b", run=run)
        except DelegationFailed as refused:
            return [first, str(refused.answer.reason)]
        return None

    agent = local(kind, "parent", steps, limits=Limits(calls=0))
    desk = Desk(street.open(kind))
    assert desk.take(desk.delegate(agent)) == ["did a", "over_budget"]
    desk.check_closed()


def test_BH34_an_abandoned_child_keeps_its_lease(street: Street, kind: str) -> None:
    """BH34: whoever needs the same lease waits until the first one really ends."""
    script = Script(stopping=False)
    contract = {"resources": ("account:L",)}
    desk = Desk(street.open(kind, config=quick(grace_s=0.1)))
    first = desk.delegate(script.peer(contract=contract), "works", timeout_s=0.1)
    with pytest.raises(DelegationFailed, match="timed_out"):
        desk.take(first)
    assert first.answer.alive
    again = Script()
    retry = desk.delegate(again.peer(contract=contract))
    listed = {v.call_id: (v.abandoned, v.waits_for) for v in desk.house.rt.calls()}
    assert listed == {"r/0.0": (True, ""), "r/1.0": (False, "account:L")}
    assert again.asked == []
    script.freed.set()
    assert desk.take(retry) == "did ok"
    order = [x.call for x in desk.house.watch.events if isinstance(x, e.LateEnd | e.CallStarted)]
    assert order == ["r/0.0", "r/0.0", "r/1.0"]
    desk.check_closed()


@pytest.mark.parametrize("where", ["for the call", "in its run"])
def test_a_local_agent_that_drops_a_handle_fails_by_name(
    street: Street, kind: str, where: str
) -> None:
    script = Script()

    async def look(task: Task) -> None:
        while not script.begun.is_set():
            await asyncio.sleep(0.002)

    def steps(task: Task, run: Any) -> Any:
        delegate(script.peer(), "works", **({"run": run} if where == "in its run" else {}))
        yield delegate(DeferredAgent(name="looker", submit=look), "is it at work?")
        return "dropped it"

    desk = Desk(street.open(kind))
    handle = desk.delegate(local(kind, "careless", steps))
    with pytest.raises(DelegationFailed, match=r"DroppedHandles.*r~0\.0~\d/0\.0 \(peer\)"):
        desk.take(handle)
    assert script.count("cancel") == 1
    desk.check_closed()


def test_a_tool_s_body_delegates_for_its_own_call(street: Street, kind: str) -> None:
    script = Script()
    ids: list[str] = []
    act: Tool
    if kind == "blocking":

        @tool(name="act", resources=())
        def act_blocking(ctx: Context) -> Any:
            group: Any = delegate_all([(script.peer(), "a"), (script.deferred(), "b")])
            ids.extend(h.id for h in group)
            return group.result()

        act = act_blocking
    else:

        @tool(name="act", resources=())
        async def act_on_loop(ctx: AsyncContext) -> Any:
            group = delegate_all([(script.peer(), "a"), (script.deferred(), "b")])
            ids.extend(h.id for h in group)
            return await group

        act = act_on_loop
    desk = Desk(street.open(kind, [act]))
    [result] = desk.guest.execute([call("act")])
    assert result.value == ["did a", "did b"]
    assert ids == ["r~0.0~0/0.0", "r~0.0~0/0.1"]
    opened = [x for x in desk.house.watch.told(e.RunOpened) if x.run != "r"]
    assert [(x.parent_call, x.detached) for x in opened] == [("r/0.0", False)]
    ended = desk.house.watch.wait(e.RunEnded)
    assert (ended.run, str(ended.outcome)) == ("r~0.0~0", "succeeded")
    desk.check_closed()


def test_a_tool_s_body_that_drops_a_handle_fails_by_name(street: Street, kind: str) -> None:
    script = Script()
    act: Tool
    if kind == "blocking":

        @tool(name="act", resources=())
        def act_blocking(raises: bool) -> str:
            _ = delegate(script.deferred(), "a")
            if raises:
                raise ValueError("its own error")
            return "dropped it"

        act = act_blocking
    else:

        @tool(name="act", resources=())
        async def act_on_loop(raises: bool) -> str:
            _ = delegate(script.deferred(), "a")
            if raises:
                raise ValueError("its own error")
            return "dropped it"

        act = act_on_loop
    desk = Desk(street.open(kind, [act]))
    [dropped] = desk.guest.execute([call("act", raises=False)])
    assert endings([dropped]) == [("failed", "tool_error", "unknown")]
    assert "DroppedHandles" in dropped.text
    assert "r~0.0~0/0.0 (deferred, never sent)" in dropped.text
    [raised] = desk.guest.execute([call("act", raises=True)])
    assert "its own error" in raised.text
    assert "Dropped" not in raised.text
    desk.check_closed()


def test_a_local_agent_fits_its_driver(street: Street, kind: str) -> None:
    other = "async" if kind == "blocking" else "blocking"
    agent = local(other, "misfit", lambda task, run: iter(()))
    desk = Desk(street.open(kind))
    with pytest.raises(DelegationFailed, match=r"a (Blocking)?Runtime needs an? (plain|async) one"):
        desk.take(desk.delegate(agent))
    desk.check_closed()


def test_what_is_no_agent_is_said_so() -> None:
    with pytest.raises(CallerError, match="fn is a function, not 3"):
        LocalAgent(name="x", fn=3)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="has no name"):
        agent_tool(object())  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="needs both status"):
        half = LocalAgent(name="half", fn=lambda task, run: None)
        half.status = lambda ref: "running"  # type: ignore[attr-defined]
        agent_tool(half)
    assert issubclass(DroppedHandles, CallerError)
