"""S1 · OpenHands software-agent-sdk #4777: a waiting call starts after the cancel.

The original looks at its cancel token before it resolves resources and waits for their locks, and
never after. Here a call that waits is cancelled while it waits, on every way in, and the same
scenarios are run once more with that bug planted, where they must fail.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

from endstop import BlockingRuntime, Outcome, Reason, Runtime, Tool, tool
from endstop.core import events as e
from endstop.core import gate, settling
from endstop.core.state import Stage
from endstop.core.terms import Mode, Phase
from endstop.work.thread import ThreadWorker
from tests.driving import (
    LIMIT_S,
    OK,
    UNSTARTED,
    Door,
    House,
    Street,
    call,
    endings,
    fails_when,
    quick,
    until,
)

SYNTHETIC = "Tool call cancelled by interrupt."


class Workshop:
    """Two tools on one file: a holder that waits at a door, and a writer that counts."""

    def __init__(self, door: Door, *, declared: bool, threads: bool) -> None:
        self.ran: list[str] = []
        terms: dict[str, Any] = {"resources": "file:/s1/x"} if declared else {}

        if threads:

            @tool(name="work", **terms)
            def work(name: str) -> str:
                self.ran.append(name)
                if name == "holder":
                    door.wait()
                return name

            self.work: Tool = work
        else:

            @tool(name="work", **terms)
            async def awork(name: str) -> str:
                self.ran.append(name)
                if name == "holder":
                    # Deaf to the cancel, as a tool is that holds a lock and cannot be stopped.
                    while not door.is_open:
                        try:
                            await door.pass_through()
                        except asyncio.CancelledError:
                            continue
                return name

            self.work = awork


def waits_on(house: House, call_id: str, resource: str) -> None:
    """Wait until a call stands in line for a resource."""

    def waiting() -> bool:
        view = [one for one in house.rt.calls() if one.call_id == call_id]
        return bool(view) and view[0].waits_for == resource

    until(waiting)


def cancelled_while_waiting(street: Street, kind: str, declared: bool, threads: bool) -> None:
    """The report's own scenario: A holds, B waits, cancel, A releases."""
    door = street.door()
    shop = Workshop(door, declared=declared, threads=threads)
    house = street.open(kind, [shop.work], config=quick(grace_s=0.1))
    holding = house.run("holding")
    first = holding.begin([call("work", name="holder")])
    house.watch.wait(e.CallStarted, "holding/0.0")
    waiting = house.run("waiting")
    second = waiting.begin([call("work", f"m{n}", name=f"w{n}") for n in range(3)])
    resource = "file:/s1/x" if declared else "tool:work"
    waits_on(house, "waiting/0.0", resource)

    stop = waiting.cancel()
    results = second.result(6.0)
    report = stop.wait()
    door.open()
    assert endings(first.result()) == [OK]

    assert shop.ran == ["holder"], "a cancelled call was started"
    assert endings(results) == [UNSTARTED] * 3
    assert [r.text for r in results] == [SYNTHETIC] * 3
    assert [r.model_id for r in results] == ["m0", "m1", "m2"], "the order changed"
    assert report.over
    assert len(report.ended) == 3
    # The lock is free afterwards: the next one gets it.
    assert endings(house.execute(call("work", name="next"))) == [OK]


def already_cancelled(street: Street, kind: str, declared: bool, threads: bool) -> None:
    """A run cancelled before its batch comes: nothing of it is started."""
    shop = Workshop(street.door(), declared=declared, threads=threads)
    house = street.open(kind, [shop.work])
    run = house.run()
    run.cancel()
    results = run.begin([call("work", f"m{n}", name=f"w{n}") for n in range(3)]).result(6.0)
    assert shop.ran == []
    assert endings(results) == [UNSTARTED] * 3
    assert [r.text for r in results] == [SYNTHETIC] * 3
    assert [r.model_id for r in results] == ["m0", "m1", "m2"]


def plant_check_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original bug: the cancel is looked at before the wait and never after."""
    stop_call = settling.stop_call

    def deaf_while_queued(one: Any, reason: Reason, mode: Mode, now: float) -> list[e.Event]:
        return [] if one.phase is Phase.QUEUED else stop_call(one, reason, mode, now)

    monkeypatch.setattr(settling, "stop_call", deaf_while_queued)
    monkeypatch.setattr(gate, "forbidden", lambda one: None)


def plant_no_check_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel reaches what is there now, and is not kept for what comes."""
    monkeypatch.setattr(settling, "cancel_run", lambda run, reason, mode, now: [])


EVERY_WAY = [
    pytest.param(declared, threads, id=f"{'declared' if declared else 'undeclared'}-{where}")
    for declared in (True, False)
    for threads, where in ((True, "thread"), (False, "coroutine"))
]


@pytest.mark.parametrize(("declared", "threads"), EVERY_WAY)
def test_cancelled_while_waiting(street: Street, kind: str, declared: bool, threads: bool) -> None:
    cancelled_while_waiting(street, kind, declared, threads)


@pytest.mark.parametrize(("declared", "threads"), EVERY_WAY)
def test_cancelled_while_waiting_fails_on_the_original_bug(
    kind: str, declared: bool, threads: bool
) -> None:
    fails_when(plant_check_before_the_wait, cancelled_while_waiting, kind, declared, threads)


@pytest.mark.parametrize(("declared", "threads"), EVERY_WAY)
def test_already_cancelled(street: Street, kind: str, declared: bool, threads: bool) -> None:
    already_cancelled(street, kind, declared, threads)


def test_already_cancelled_fails_without_any_check(kind: str) -> None:
    fails_when(plant_no_check_at_all, already_cancelled, kind, True, True)


def cancelled_between_grant_and_body(street: Street, kind: str) -> None:
    """The window between "started" and the first instruction: the worker asks again."""
    ran: list[str] = []

    @tool(resources=())
    def pay() -> str:
        ran.append("paid")
        return "paid"

    house = street.open(kind, [pay])
    worker = house.rt.engine.workers[pay.declared.isolation]
    start = worker.start

    def late_start(job: Any) -> None:
        # Granted and handed over; the cancel comes before the worker's first instruction.
        house.rt.cancel(job.run)
        start(job)

    worker.start = late_start
    results = house.execute(call("pay"))
    until(lambda: not worker._bodies)  # its thread has come to the claim
    assert ran == []
    assert endings(results) == [UNSTARTED]


def test_cancelled_between_grant_and_body(street: Street, kind: str) -> None:
    cancelled_between_grant_and_body(street, kind)


def plant_worker_that_does_not_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body follows the grant without a last question."""
    run = ThreadWorker._run

    def unclaimed(self: ThreadWorker, body: Any) -> None:
        tell = self._tell
        self._tell = lambda said: tell(said) or True
        run(self, body)

    monkeypatch.setattr(ThreadWorker, "_run", unclaimed)


def test_that_window_is_open_for_a_worker_that_does_not_claim(kind: str) -> None:
    fails_when(plant_worker_that_does_not_claim, cancelled_between_grant_and_body, kind)


@pytest.mark.parametrize(("declared", "threads"), EVERY_WAY)
def test_without_a_cancel_a_waiter_goes_on(
    street: Street, kind: str, declared: bool, threads: bool
) -> None:
    door = street.door()
    shop = Workshop(door, declared=declared, threads=threads)
    house = street.open(kind, [shop.work])
    going = house.run("r").begin(
        [
            call("work", "m0", name="holder"),
            call("work", "m1", name="w1"),
            call("work", "m2", name="w2"),
        ]
    )
    house.watch.wait(e.CallStarted, 0)
    assert not house.watch.told(e.CallStarted, 1)
    door.open()
    results = going.result()
    assert endings(results) == [OK] * 3
    assert [r.value for r in results] == ["holder", "w1", "w2"]
    assert shop.ran == ["holder", "w1", "w2"], "request order was not kept"


def test_a_drain_leaves_what_runs_alone_and_starts_nothing(street: Street, kind: str) -> None:
    door = street.door()
    shop = Workshop(door, declared=True, threads=True)
    house = street.open(kind, [shop.work])
    run = house.run("r")
    going = run.begin([call("work", "m0", name="holder"), call("work", "m1", name="w1")])
    house.watch.wait(e.CallStarted, 0)
    waits_on(house, "r/0.1", "file:/s1/x")
    stop = run.cancel(mode="drain")
    assert endings([house.rt.engine.result(house.state.calls["r/0.1"])]) == [UNSTARTED]
    assert not house.watch.told(e.StopRequested), "a drain asked a running body to stop"
    door.open()
    results = going.result()
    assert endings(results) == [OK, UNSTARTED]
    assert results[0].flags == ()
    assert shop.ran == ["holder"]
    assert [r.call_id for r in stop.wait().ended] == ["r/0.0", "r/0.1"]


def test_a_lock_timeout_by_kind(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=["file:/s1/y"])
    def edit(name: str) -> str:
        if name == "holder":
            door.wait()
        return name

    @tool(resources=["browser:1"])
    def browse(name: str) -> str:
        if name == "holder":
            door.wait()
        return name

    config = quick(resource_waits={"file": 0.15, "browser": 30.0})
    house = street.open(kind, [edit, browse], config=config)
    holding = house.begin(call("edit", name="holder"), call("browse", name="holder"))
    house.watch.wait(e.CallStarted, 1)
    began = time.monotonic()
    waiting = house.run("w").begin([call("edit", name="w"), call("browse", name="w")])
    house.watch.wait(e.CallSettled, "w/0.0")
    assert 0.1 < time.monotonic() - began < 5.0
    assert not house.watch.told(e.CallSettled, "w/0.1"), "a browser waits longer than a file"
    door.open()
    results = waiting.result()
    assert endings(results) == [("rejected", "resource_timeout", "none"), OK]
    assert "file:/s1/y" in results[0].text
    assert endings(holding.result()) == [OK, OK]


def hundred_waiters(street: Street, kind: str) -> None:
    """Waiters end at the cancel, not at the release; none is started, none costs a thread."""
    door = street.door()
    shop = Workshop(door, declared=True, threads=True)
    house = street.open(kind, [shop.work])
    first = house.begin(call("work", name="holder"))
    house.watch.wait(e.CallStarted)
    threads = threading.active_count()
    run = house.run("many")
    going = run.begin([call("work", f"m{n}", name=f"w{n}") for n in range(100)])
    waits_on(house, "many/0.99", "file:/s1/x")
    # The caller's own thread, and nothing for any of the waiters.
    assert threading.active_count() <= threads + 1, "a waiter costs a thread"
    run.cancel()
    results = going.result(6.0)
    assert not first.over, "the waiters had to wait for the holder"
    assert endings(results) == [UNSTARTED] * 100
    assert [r.model_id for r in results] == [f"m{n}" for n in range(100)]
    door.open()
    assert endings(first.result()) == [OK]
    assert shop.ran == ["holder"]


def test_hundred_waiters_end_at_the_cancel(street: Street, kind: str) -> None:
    hundred_waiters(street, kind)


def test_hundred_waiters_fail_on_the_original_bug(kind: str) -> None:
    fails_when(plant_check_before_the_wait, hundred_waiters, kind)


def test_waiters_get_the_lock_in_request_order(street: Street, kind: str) -> None:
    door = street.door()
    shop = Workshop(door, declared=True, threads=True)
    house = street.open(kind, [shop.work], config=quick(slots={"thread": 64}))
    first = house.begin(call("work", name="holder"))
    house.watch.wait(e.CallStarted)
    batches = [
        house.run(f"b{b}").begin([call("work", name=f"b{b}c{n}") for n in range(20)], parallel=None)
        for b in range(1)
    ]
    waits_on(house, "b0/0.19", "file:/s1/x")
    # A second run comes later and stands behind the call that was first in line.
    later = house.run("later").begin([call("work", name="later")])
    waits_on(house, "later/0.0", "file:/s1/x")
    door.open()
    for going in (first, *batches, later):
        going.result()
    of_batch = [name for name in shop.ran if name.startswith("b0")]
    assert of_batch == [f"b0c{n}" for n in range(20)], "not in request order"
    assert shop.ran.index("b0c0") < shop.ran.index("later")


def test_a_cancelled_waiter_leaves_the_line_to_the_next(street: Street, kind: str) -> None:
    door = street.door()
    shop = Workshop(door, declared=True, threads=True)
    house = street.open(kind, [shop.work])
    first = house.begin(call("work", name="holder"))
    house.watch.wait(e.CallStarted)
    names = ["b", "c", "d"]
    runs = [house.run(name) for name in names]
    goings = []
    for run in runs:
        goings.append(run.begin([call("work", name=run.id)]))
        waits_on(house, f"{run.id}/0.0", "file:/s1/x")
    runs[0].cancel()
    assert endings(goings[0].result(5.0)) == [UNSTARTED]
    door.open()
    assert [endings(g.result()) for g in (first, *goings[1:])] == [[OK]] * 3
    assert shop.ran == ["holder", "c", "d"]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_waiting_does_not_poison_the_lock(street: Street) -> None:
    door = street.door()
    shop = Workshop(door, declared=True, threads=True)
    house = street.open("blocking", [shop.work])
    runtime: BlockingRuntime = house.rt
    first = house.begin(call("work", name="holder"))
    house.watch.wait(e.CallStarted)

    def press() -> None:
        waits_on(house, "main/0.0", "file:/s1/x")
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press, daemon=True)
    run = runtime.run("main")
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        run.execute([call("work", name="interrupted")])
    presser.join(LIMIT_S)
    assert endings(run.batches[0]) == [UNSTARTED], "every call has its answer before the raise"
    run.close()
    door.open()
    assert endings(first.result()) == [OK]
    assert endings(house.execute(call("work", name="next"))) == [OK]
    assert shop.ran == ["holder", "next"]


def test_a_cancel_between_two_locks(street: Street, kind: str) -> None:
    """A set is taken all or nothing: there is no moment at which half of it is held."""
    door = street.door()
    ran: list[str] = []

    @tool(resources=["file:/s1/{a}", "file:/s1/{b}"])
    def two(a: str, b: str, wait: bool = False) -> str:
        ran.append(a + b)
        if wait:
            door.wait()
        return a + b

    house = street.open(kind, [two])
    first = house.begin(call("two", a="y", b="z", wait=True))
    house.watch.wait(e.CallStarted)
    run = house.run("two")
    going = run.begin([call("two", a="x", b="y")])
    waits_on(house, "two/0.0", "file:/s1/y")
    # It waits for y and does not hold x: another run takes x at once.
    run.cancel()
    assert endings(going.result(5.0)) == [UNSTARTED]
    assert endings(house.begin(call("two", a="x", b="w")).result(5.0)) == [OK]
    door.open()
    assert endings(first.result()) == [OK]
    assert ran == ["yz", "xw"]


def test_cancel_from_the_runtime_s_own_loop(street: Street) -> None:
    door = street.door()
    shop = Workshop(door, declared=True, threads=True)

    async def story() -> None:
        async with Runtime([shop.work], config=quick()) as rt:
            holding = asyncio.create_task(rt.execute([call("work", name="holder")]))
            run = rt.run("r")
            await until_there(lambda: shop.ran == ["holder"])
            waiting = asyncio.create_task(run.execute([call("work", name="w")]))
            await until_there(lambda: stage_of(rt, "r/0.0") is Stage.RESOURCES)
            report = await run.cancel()
            assert report.ended[0].outcome is Outcome.CANCELLED
            assert waiting.done() or endings(await waiting) == [UNSTARTED]
            assert not holding.done()
            door.open()
            await holding
            run.close()

    asyncio.run(story())
    assert shop.ran == ["holder"]


def stage_of(rt: Runtime, call_id: str) -> Stage | None:
    """Where a call stands at the gate."""
    found = rt.engine.state.calls.get(call_id)
    return found.stage if found is not None else None


async def until_there(condition: Any) -> None:
    """Let the loop go on until something is so."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.002)
