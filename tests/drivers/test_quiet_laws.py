"""Laws that show in what does not happen: no second run, no neighbour harmed, nobody missed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncContext, Context, Outcome, Reason, tool
from endstop.core import events as e
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability
from tests.driving import OK, Street, call, endings, quick, until


class HeldTicket:
    """An append that is recorded when the test says so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Exception | None], None]] | None = []

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback(None)

    def done(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            callback(None)


class SlowDisk:
    """A journal that takes everything and records nothing of `kind` before `go_on`."""

    def __init__(self, kind: type) -> None:
        self._memory = MemoryJournal()
        self._kind = kind
        self.held: list[HeldTicket] = []
        self.came = threading.Event()

    def append(
        self, run: str, expected_seq: int, events: Sequence[e.Event], durability: Durability
    ) -> HeldTicket | None:
        self._memory.append(run, expected_seq, events, durability)
        if not any(isinstance(event, self._kind) for event in events):
            return None
        if durability is Durability.BUFFERED:
            return None
        self.held.append(HeldTicket())
        self.came.set()
        return self.held[-1]

    def go_on(self) -> None:
        for ticket in self.held:
            ticket.done()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


@pytest.mark.parametrize("effect", ["effectful", "once"])
def test_law_15_record_first_no_body_begins_before_its_grant_is_recorded(
    street: Street, kind: str, effect: str
) -> None:
    begun = threading.Event()

    @tool(effect=effect, resources=[])
    async def act() -> None:
        begun.set()

    disk = SlowDisk(e.CallGranted)
    house = street.open(kind, [act], journal=disk)
    going = house.begin(call("act"))
    assert disk.came.wait(20)
    assert not begun.wait(0.2)
    assert not house.watch.told(e.CallGranted)
    disk.go_on()
    assert going.result()[0].ok
    assert begun.is_set()


def test_law_15_record_first_nobody_sees_an_ending_before_it_is_recorded(
    street: Street, kind: str
) -> None:
    shown: list[str] = []

    @tool(effect="read_only", resources=[])
    async def act() -> str:
        return "paid for"

    disk = SlowDisk(e.CallSettled)
    house = street.open(
        kind, [act], journal=disk, after=[lambda result: shown.append(result.value)]
    )
    going = house.begin(call("act"))
    assert disk.came.wait(20)
    with pytest.raises(TimeoutError):
        going.future.result(0.2)
    assert not house.watch.told(e.CallSettled), "observers saw it"
    assert not shown, "an after-hook saw it"
    disk.go_on()
    assert going.result()[0].value == "paid for"
    assert shown == ["paid for"]


def test_law_10_no_blind_retry_whatever_the_end_a_body_runs_once(
    street: Street, kind: str, tmp_path: Path
) -> None:
    keys: list[str] = []
    door = street.door()

    @tool(effect="idempotent", resources=[], timeout=0.3)
    async def touch(how: str, ctx: AsyncContext) -> str:
        keys.append(ctx.effect_key)
        if how == "raise":
            raise ConnectionError("the answer was lost on its way")
        if how == "hang":
            await door.pass_through()
        return how

    journal = str(tmp_path / "runs.db")
    house = street.open(kind, [touch], journal=journal)
    run = house.run("r")
    calls = [call("touch", "same", how=how) for how in ("raise", "hang", "return")]
    raised, hung, returned = run.execute(calls)
    assert (raised.outcome, hung.outcome) == (Outcome.FAILED, Outcome.TIMED_OUT)
    assert returned.ok
    # One attempt each; the key is the runtime's own, not the id that the model used three times.
    assert sorted(keys) == sorted(one.call_id for one in (raised, hung, returned))
    run.close()
    again = street.open(kind, [touch], journal=journal)
    assert again.rt.calls() == []
    assert len(keys) == 3, "opening the journal ran something again"


def test_law_14_isolated_siblings_each_call_ends_by_its_own(street: Street, kind: str) -> None:
    door = street.door()
    begun = threading.Event()

    @tool(resources=[])
    async def act(how: str) -> str:
        match how:
            case "raises":
                raise ValueError("no")
            case "raises cancelled":
                raise asyncio.CancelledError
            case "cancels itself":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            case "exits":
                raise SystemExit(3)
            case "is slow":
                begun.set()
                await door.pass_through()
        return how

    house = street.open(kind, [act])
    ways = ["raises", "raises cancelled", "cancels itself", "exits", "is slow", "returns"]
    going = house.begin(*[call("act", how=how) for how in ways])
    assert begun.wait(20)
    for index in (0, 1, 2, 3, 5):
        house.watch.wait(e.CallSettled, index)
    # The batch is torn down by none of them: it waits for the one that is left.
    assert not going.over
    door.open()
    results = going.result()
    failed = ("failed", "tool_error", "unknown")
    assert endings(results) == [failed, failed, failed, failed, OK, OK]
    assert [one.value for one in results] == [None, None, None, None, "is slow", "returns"]
    assert house.rt.calls() == []


def test_law_14_isolated_siblings_a_result_outlives_the_stop_of_the_others(
    street: Street, kind: str
) -> None:
    @tool(resources=[])
    async def wait(ctx: AsyncContext) -> None:
        await ctx.sleep(60)

    @tool(resources=[])
    async def done() -> str:
        return "kept"

    @tool(resources=[])
    async def fail() -> None:
        raise ValueError("no")

    house = street.open(kind, [wait, done, fail])
    first, second, third = house.execute(
        call("done"), call("wait"), call("fail"), on_failure="stop"
    )
    assert (first.value, third.reason) == ("kept", Reason.TOOL_ERROR)
    assert (second.outcome, second.reason) == (Outcome.CANCELLED, Reason.SIBLING_FAILED)


def test_law_17_children_settle_in_one_grace_and_keep_what_is_finished(
    street: Street, kind: str
) -> None:
    depth = 3
    grace_s = 1.0
    answers: dict[int, Any] = {}
    house: Any = None
    bottom = threading.Event()

    @tool(resources=[])
    def leaf() -> str:
        return "finished"

    @tool(resources=[])
    def wedge() -> None:
        bottom.set()
        door.wait()

    @tool(resources=[])
    def delegate(level: int, ctx: Context) -> str:
        run = house.run(parent=ctx.call_id)
        below = call("delegate", level=level + 1) if level < depth else call("wedge")
        try:
            answers[level] = run.execute([call("leaf"), below])
        finally:
            run.close()
        return "all answered"

    door = street.door()
    house = street.open(kind, [leaf, wedge, delegate], config=quick(grace_s=grace_s))
    top = house.run("top")
    going = top.begin([call("delegate", level=1)])
    assert bottom.wait(20)
    house.watch.wait(e.CallSettled, count=depth)
    began = time.monotonic()
    top.cancel()
    going.result()
    took = time.monotonic() - began
    # All levels were asked in the same instant: one grace, not one for each level.
    assert took < 2 * grace_s, f"{took:.2f} s for {depth} levels"
    # The wedged leaf kept its parents, too: they were let go with it and come to their words late.
    until(lambda: len(answers) == depth)
    for leaf_result, below in answers.values():
        assert leaf_result.value == "finished"
        assert below.outcome is Outcome.CANCELLED or below.flags
    assert answers[depth][1].reason is Reason.PARENT_CANCELLED


def test_law_18_audience_free_who_fails_or_leaves_changes_nothing(
    street: Street, kind: str
) -> None:
    seen: list[object] = []

    def fails(event: object) -> None:
        raise RuntimeError("the stream is gone")

    @tool(resources=[])
    async def add(x: int) -> int:
        return x + 1

    house = street.open(kind, [add], observers=(fails,))
    leave = house.rt.observe(seen.append)
    alone = house.execute(*[call("add", x=x) for x in range(50)])
    told = len(seen)
    leave()
    unwatched = house.execute(*[call("add", x=x) for x in range(50)])
    assert [one.value for one in alone] == [one.value for one in unwatched] == list(range(1, 51))
    assert told > 100
    assert len(seen) == told, "who left is told nothing more"
