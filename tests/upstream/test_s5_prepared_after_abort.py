"""S5 · openclaw #102252: a prepared paid call runs after the abort of its batch.

The original prepares a batch behind one guard and executes it behind none: an abort while a later
call is being prepared does not stop an earlier one that is ready. Here the run is cancelled while a
later call is in its before-hook; no prepared call may run, on any path.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from endstop import CallResult, HookCall, Reason, tool
from endstop.core import events as e
from endstop.core import gate, settling
from endstop.core.terms import Mode, Phase
from tests.driving import (
    OK,
    UNSTARTED,
    House,
    Street,
    call,
    endings,
    fails_when,
    quick,
    until,
)

PATHS = [
    pytest.param({"parallel": None, "together": True}, id="parallel-together"),
    pytest.param({"parallel": 1, "together": True}, id="sequential-together"),
    pytest.param({"parallel": 1, "together": False}, id="sequential"),
]


class Studio:
    """A paid tool that ignores every signal, and a hook that waits in the last call of a batch."""

    def __init__(self, street: Street, *, threads: bool) -> None:
        self.paid: list[str] = []
        self.after: list[str] = []
        self.in_hook = threading.Event()
        self.hook_door = street.door()

        def charge(image: str) -> str:
            self.paid.append(image)
            return image

        async def acharge(image: str) -> str:
            self.paid.append(image)
            return image

        body = charge if threads else acharge
        self.generate = tool(name="generate", cost="0.04 USD", effect="once", resources=())(body)

    def before(self, seen: HookCall) -> None:
        """Let all calls pass, the last one only after the test has opened the door."""
        if seen.arguments["image"] == "last":
            self.in_hook.set()
            self.hook_door.wait()

    async def abefore(self, seen: HookCall) -> None:
        """The same as a coroutine."""
        if seen.arguments["image"] == "last":
            self.in_hook.set()
            await self.hook_door.pass_through()

    def remember(self, result: CallResult) -> None:
        """An after-hook."""
        self.after.append(result.call_id)


def abort_while_a_later_call_is_prepared(
    street: Street, kind: str, terms: dict[str, Any], threads: bool, async_hook: bool
) -> None:
    studio = Studio(street, threads=threads)
    hook = studio.abefore if async_hook else studio.before
    house = street.open(kind, [studio.generate], before=[hook])
    run = house.run("r")
    names = (
        ["last", "b", "c"] if terms == {"parallel": 1, "together": False} else ["a", "b", "last"]
    )
    going = run.begin([call("generate", n, image=n) for n in names], **terms)
    assert studio.in_hook.wait(5)
    prepared = [n for n in names if n != "last"]
    for name in prepared:
        index = names.index(name)
        house.watch.wait(e.CallQueued, index)
    assert studio.paid == [], "the scenario needs them to wait for the last one"

    run.cancel()
    results = going.result(6.0)
    studio.hook_door.open()
    # Whoever still waits for the hook has its answer now; nothing may come of it.
    until(lambda: not house.rt.calls())
    assert studio.paid == [], "paid for what was cancelled"
    assert endings(results) == [UNSTARTED] * 3, "every skipped call has its answer"
    assert [r.model_id for r in results] == names
    assert all(r.text == "Tool call cancelled by interrupt." for r in results)
    assert not house.watch.told(e.CallGranted)
    assert not house.watch.told(e.CallStarted)
    assert all(not r.spent for r in results)


def plant_unguarded_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug: what is prepared is not asked about again."""
    stop_call = settling.stop_call

    def guarded_only_while_preparing(
        one: Any, reason: Reason, mode: Mode, now: float
    ) -> list[e.Event]:
        if one.phase in (Phase.QUEUED, Phase.GRANTED):
            return []
        return stop_call(one, reason, mode, now)

    monkeypatch.setattr(settling, "stop_call", guarded_only_while_preparing)
    monkeypatch.setattr(gate, "forbidden", lambda one: None)


@pytest.mark.parametrize("async_hook", [False, True], ids=["plain-hook", "async-hook"])
@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
@pytest.mark.parametrize("terms", PATHS)
def test_abort_while_a_later_call_is_prepared(
    street: Street, kind: str, terms: dict[str, Any], threads: bool, async_hook: bool
) -> None:
    abort_while_a_later_call_is_prepared(street, kind, terms, threads, async_hook)


@pytest.mark.parametrize("threads", [True, False], ids=["thread", "coroutine"])
@pytest.mark.parametrize("terms", PATHS)
def test_abort_while_preparing_fails_on_the_original_bug(
    kind: str, terms: dict[str, Any], threads: bool
) -> None:
    scenario = abort_while_a_later_call_is_prepared
    fails_when(plant_unguarded_execution, scenario, kind, terms, threads, False)


def tool_that_aborts(street: Street, kind: str, terms: dict[str, Any]) -> None:
    """The first launched tool aborts the run: nothing else of the batch is started."""
    house: House
    ran: list[str] = []

    @tool(resources=())
    def work(name: str) -> str:
        ran.append(name)
        if name == "first":
            house.rt.cancel("r")
        return name

    # One slot: the others are prepared and wait for it while the first one aborts.
    house = street.open(kind, [work], config=quick(slots={"thread": 1}))
    names = ["first", "b", "c", "d"]
    results = house.run("r").execute([call("work", n, name=n) for n in names], **terms)
    assert ran == ["first"]
    assert endings(results) == [OK, UNSTARTED, UNSTARTED, UNSTARTED]
    assert [str(flag) for flag in results[0].flags] == ["cancel_requested"]


@pytest.mark.parametrize("terms", [{"parallel": None}, {"parallel": 1}], ids=["parallel", "one"])
def test_the_first_launched_tool_aborts_the_run(
    street: Street, kind: str, terms: dict[str, Any]
) -> None:
    tool_that_aborts(street, kind, terms)


def test_the_first_launched_tool_fails_on_the_original_bug(kind: str) -> None:
    fails_when(plant_unguarded_execution, tool_that_aborts, kind, {"parallel": None})


def observer_that_aborts(street: Street, kind: str, at: type) -> None:
    """An abort out of an event listener, in the middle of what is being decided."""
    house: House
    ran: list[str] = []

    @tool(resources=["file:/s5"])
    def work(name: str) -> str:
        ran.append(name)
        return name

    def listener(event: object) -> None:
        if isinstance(event, at) and getattr(event, "call", "").endswith(".0"):
            house.rt.cancel("r")

    house = street.open(kind, [work], observers=[listener])
    names = ["a", "b", "c"]
    results = house.run("r").execute([call("work", n, name=n) for n in names])
    assert set(ran) <= {"a"}, "started after the listener had aborted the run"
    assert endings(results)[1:] == [UNSTARTED, UNSTARTED]
    assert endings(results)[0] in (OK, UNSTARTED, ("cancelled", "cancelled_by_user", "unknown"))


@pytest.mark.parametrize("at", [e.CallGranted, e.CallStarted], ids=lambda kind: kind.__name__)
def test_abort_from_an_observer(street: Street, kind: str, at: type) -> None:
    observer_that_aborts(street, kind, at)


def test_abort_from_an_observer_fails_on_the_original_bug(kind: str) -> None:
    fails_when(plant_unguarded_execution, observer_that_aborts, kind, e.CallStarted)


def test_after_hooks_see_nothing_of_a_call_that_never_ran(street: Street, kind: str) -> None:
    """They are told of results; a call that was cancelled before its body has run no tool."""
    studio = Studio(street, threads=True)
    house = street.open(kind, [studio.generate], before=[studio.before], after=[studio.remember])
    run = house.run("r")
    going = run.begin([call("generate", image=n) for n in ("a", "last")], together=True)
    assert studio.in_hook.wait(5)
    house.watch.wait(e.CallQueued, 0)
    run.cancel()
    assert endings(going.result()) == [UNSTARTED] * 2
    assert studio.after == []
    studio.hook_door.open()
    assert endings(house.execute(call("generate", image="b"))) == [OK]
    assert len(studio.after) == 1, "the control: a call that ran is shown"


def test_the_cancel_is_forwarded_too(street: Street, kind: str) -> None:
    """What runs is asked; what waits is settled: neither replaces the other."""
    door = street.door()
    asked = threading.Event()

    @tool(resources=())
    def draw(image: str) -> str:
        door.wait()
        return image

    wired = tool(name="wired", resources=(), interrupt=lambda: (asked.set(), door.open()))(draw.fn)
    house = street.open(kind, [wired], config=quick(slots={"thread": 1}, grace_s=5))
    run = house.run("r")
    going = run.begin([call("wired", image=n) for n in ("a", "b")])
    house.watch.wait(e.CallStarted, 0)
    run.cancel()
    results = going.result(6.0)
    assert asked.is_set()
    assert endings(results) == [OK, UNSTARTED]


def test_steering_is_no_abort(street: Street, kind: str) -> None:
    """A newer request drains: what was begun is finished, the rest is told apart by its reason."""
    door = street.door()
    ran: list[str] = []

    @tool(resources=())
    def work(name: str) -> str:
        ran.append(name)
        door.wait()
        return name

    house = street.open(kind, [work], config=quick(slots={"thread": 1}))
    run = house.run("r")
    going = run.begin([call("work", name=n) for n in ("a", "b")])
    house.watch.wait(e.CallStarted, 0)
    run.cancel(reason="superseded", mode="drain")
    door.open()
    results = going.result()
    assert ran == ["a"]
    assert endings(results) == [OK, ("cancelled", "superseded", "none")]
    assert results[1].text != "Tool call cancelled by interrupt."
    assert "newer request" in results[1].text


def test_a_retry_after_the_abort_starts_nothing(street: Street, kind: str) -> None:
    """A retry layer that sees the answers and asks again in the same run gets the same answer."""
    studio = Studio(street, threads=True)
    house = street.open(kind, [studio.generate])
    run = house.run("r")
    run.cancel()
    for _ in range(3):
        results = run.begin([call("generate", image="a")]).result(6.0)
        assert endings(results) == [UNSTARTED]
    assert studio.paid == []
