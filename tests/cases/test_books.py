"""Public reports about what is held, counted and recorded: locks, workers, money, journals."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from endstop import Context, EffectClass, Limits, Money, tool
from endstop.core import events as e
from endstop.core.recovery import Unfinished
from tests.cases import bodies
from tests.driving import (
    OK,
    UNSTARTED,
    House,
    Street,
    call,
    endings,
    quick,
    until,
)

TIMED_OUT = ("timed_out", "deadline", "unknown")
STOPPED = ("cancelled", "cancelled_by_user", "unknown")


def usd(amount: str) -> Money:
    """So many dollars."""
    return Money(amount=Decimal(amount), currency="USD")


def test_BH33_abandoned_workers_do_not_stop_or_multiply(street: Street, kind: str) -> None:
    """Wedged bodies in every slot: healthy calls fail fast, threads stay bounded, all listed."""
    door = street.door()

    @tool(resources=(), timeout=0.1)
    def work(wedge: bool) -> str:
        if wedge:
            door.wait()
        return "healthy"

    house = street.open(kind, [work], config=quick(grace_s=0.05, slots={"thread": 4}))
    before = threading.active_count()
    results = house.run("w").begin([call("work", wedge=True)] * 6).result(5.0)
    assert endings(results) == [TIMED_OUT] * 4 + [("rejected", "saturated", "none")] * 2
    for _ in range(20):
        healthy = house.begin(*[call("work", wedge=False)] * 10).result(6.0)
        assert endings(healthy) == [("rejected", "saturated", "none")] * 10
    assert threading.active_count() <= before + 4 + 8, "threads grow without bound"
    stuck = house.rt.calls()
    assert [v.call_id for v in stuck] == [f"w/0.{n}" for n in range(4)]
    assert all(v.abandoned and v.age_s > 0 and v.stack for v in stuck)
    door.open()
    house.watch.wait(e.LateEnd, count=4)
    assert endings(house.execute(*[call("work", wedge=False)] * 10)) == [OK] * 10


def test_BH34_an_abandoned_call_keeps_its_lease(street: Street, kind: str) -> None:
    door = street.door()
    inside: list[str] = []

    @tool(resources=["account:42"], timeout=0.15)
    def spend(name: str) -> str:
        inside.append(name)
        if name == "first":
            door.wait()
        inside.append(f"end of {name}")
        return name

    house = street.open(kind, [spend], config=quick(grace_s=0.05))
    assert endings(house.run("a").begin([call("spend", name="first")]).result(6.0)) == [TIMED_OUT]
    retry = house.run("b").begin([call("spend", name="retry")])
    until(lambda: [v.waits_for for v in house.rt.calls()] == ["", "account:42"])
    assert inside == ["first"], "two executions under one lease"
    assert house.rt.calls()[0].abandoned, "the first one is off the books"
    door.open()
    assert endings(retry.result()) == [OK]
    assert inside == ["first", "end of first", "retry", "end of retry"]


@pytest.mark.parametrize("effect", list(EffectClass))
def test_BH36_no_second_attempt_while_the_first_may_live(
    street: Street, kind: str, effect: EffectClass
) -> None:
    door = street.door()
    attempts: list[str] = []

    @tool(resources=["file:/bh36"], timeout=0.1, effect=effect)
    def append(ctx: Context) -> str:
        attempts.append(ctx.effect_key)
        door.wait()
        return "late"

    house = street.open(kind, [append], config=quick(grace_s=0.05))
    (result,) = house.run("r").begin([call("append")]).result(6.0)
    assert str(result.outcome) == "timed_out"
    assert str(result.effect) == ("none" if effect is EffectClass.READ_ONLY else "unknown")
    # Whoever tries again waits for the first one, which may still be writing.
    again = house.run("s").begin([call("append")])
    until(lambda: len(house.rt.calls()) == 2)
    assert len(attempts) == 1
    door.open()
    again.result()
    assert len(attempts) == 2


def test_BH51_a_cancelled_waiter_breaks_the_lock_for_nobody(street: Street, kind: str) -> None:
    """Release and cancel at once, in every order that 150 seeds find."""

    @tool(resources=["file:/bh51/{a}", "file:/bh51/{b}"])
    async def hold(a: str, b: str, steps: int) -> str:
        for _ in range(steps):
            await asyncio.sleep(0)
        return a + b

    house = street.open(kind, [hold], config=quick(grace_s=5))
    seeds = random.Random(51)
    for number in range(150):
        runs = [house.run(f"{name}{number}") for name in "abc"]
        pairs = [seeds.sample("xyz", 2) for _ in runs]
        goings = [
            run.begin([call("hold", a=a, b=b, steps=seeds.randrange(3))])
            for run, (a, b) in zip(runs, pairs, strict=True)
        ]
        for _ in range(seeds.choice((0, 100, 5000))):
            pass
        runs[1].cancel()
        results = [going.result(5.0)[0] for going in goings]
        assert endings([results[0], results[2]]) == [OK, OK], "the lock was broken"
        assert endings([results[1]])[0] in (OK, UNSTARTED, STOPPED)
        for run in runs:
            run.close()
        assert len(house.state.resources) == 0


def test_BH52_a_peer_that_dies_releases_its_lock_and_fails_its_waiter(
    street: Street, kind: str, tmp_path: Path
) -> None:
    house = street.open(kind, [bodies.serve, bodies.read])
    serving = house.run("a").begin([call("serve", signs=str(tmp_path))])
    sign = tmp_path / "served"
    until(lambda: sign.exists() and sign.read_text())
    queued = house.run("b").begin([call("read")])
    until(lambda: [v.waits_for for v in house.rt.calls()][1:] == ["file:/cases/served"])
    os.kill(int(sign.read_text()), signal.SIGKILL)
    assert endings(serving.result(10.0)) == [("lost", "worker_lost", "unknown")]
    assert endings(queued.result(10.0)) == [OK]


def snapshot(house: House, run: str) -> Unfinished:
    """What a journal would say of a run if its driver were killed at this instant."""
    left = Unfinished(run)
    left.read(recorded.event for recorded in house.rt.engine.journal.read(run))
    return left


def test_BH56_an_interruption_is_no_durable_failure(street: Street, kind: str) -> None:
    door = street.door()

    @tool(resources=["file:/bh56"])
    def step(n: int) -> int:
        if n == 1:
            door.wait()
        return n

    house = street.open(kind, [step])
    going = house.run("r").begin([call("step", n=n) for n in range(4)])
    house.watch.wait(e.CallStarted, 1)
    left = snapshot(house, "r")
    assert [left.settled[c].value for c in left.settled] == [0]
    closing = left.closing()
    settled = [x for x in closing if isinstance(x, e.CallSettled)]
    assert [(x.call, str(x.outcome), str(x.reason), str(x.effect)) for x in settled] == [
        ("r/0.1", "lost", "driver_lost", "unknown")
    ]
    assert isinstance(closing[-1], e.RunInterrupted)
    assert {"r/0.2", "r/0.3"} <= set(left.open), "what had not begun stays pending"
    door.open()
    assert endings(going.result()) == [OK] * 4


PHASES = ["queued", "approval", "lock", "running", "stopping"]


@pytest.mark.parametrize("phase", PHASES)
def test_BH70_a_driver_killed_in_any_phase_leaves_no_run_for_ever(
    street: Street, kind: str, phase: str
) -> None:
    """The journal at that instant says of every call whether it began, and the run is closed."""
    door = street.door()
    began = phase in ("running", "stopping")

    @tool(resources=["file:/bh70"])
    def work(name: str) -> str:
        if name != "plain":
            door.wait()
        return name

    @tool(resources=(), approval="always")
    def gated() -> str:
        return "gated"

    config = quick(slots={"thread": 1}, grace_s=10)
    house = street.open(kind, [work, gated], config=config)
    run = house.run("r")
    other = None
    if phase in ("lock", "queued"):
        other = house.run("h").begin([call("work", name="holder")])
        house.watch.wait(e.CallStarted)
    going = run.begin([call("gated") if phase == "approval" else call("work", name="wedge")])
    match phase:
        case "approval":
            house.watch.wait(e.ApprovalAsked, "r/0.0")
        case "lock" | "queued":
            house.watch.wait(e.CallQueued, "r/0.0")
        case _:
            house.watch.wait(e.CallStarted, "r/0.0")
    if phase == "stopping":
        run.cancel()
        house.watch.wait(e.AskSent)
    left = snapshot(house, "r")
    assert not left.ended
    closing = left.closing()
    lost = [x for x in closing if isinstance(x, e.CallSettled)]
    assert [str(x.effect) for x in lost] == (["unknown"] if began else [])
    assert [str(x.reason) for x in lost] == (["driver_lost"] if began else [])
    # A run that was cancelled is over by that; any other may be resumed.
    assert isinstance(closing[-1], e.RunEnded if phase == "stopping" else e.RunInterrupted)
    assert set(left.open) == {"r/0.0"}
    door.open()
    house.rt.cancel("r")
    going.result()
    if other is not None:
        other.result()


def test_BH57_a_lost_reply_is_unknown_and_never_sent_again(street: Street, kind: str) -> None:
    sent: list[str] = []

    def remote(ctx: Context) -> str:
        sent.append(ctx.effect_key)
        raise ConnectionResetError("the link dropped before the reply")

    expected = {"effectful": "unknown", "once": "unknown", "idempotent": "unknown"}
    for effect, said in {**expected, "read_only": "none"}.items():
        made = tool(name=f"remote_{effect}", effect=effect, resources=())(remote)
        house = street.open(kind, [made])
        sent.clear()
        (result,) = house.execute(call(made.name))
        assert endings([result]) == [("failed", "tool_error", said)]
        assert len(sent) == 1, "it was sent again"
        if said == "unknown":
            assert "unknown; check before repeating" in result.text


def test_BH58_the_effect_key_is_the_runtime_s_own(street: Street, kind: str) -> None:
    keys: list[str] = []

    @tool(effect="once", resources=())
    def pay(amount: int, ctx: Context) -> str:
        keys.append(ctx.effect_key)
        return "paid"

    house = street.open(kind, [pay])
    run = house.run("r")
    run.execute([call("pay", "same-id", amount=5), call("pay", "same-id", amount=5)])
    run.execute([call("pay", "same-id", amount=5)])
    # One key for each call, which no id and no argument of the model's can make or repeat.
    assert sorted(keys) == ["r/0.0", "r/0.1", "r/1.0"]


def test_BH60_hooks_and_observers_cannot_lose_a_result(street: Street, kind: str) -> None:
    ran: list[str] = []
    shown: list[Any] = []

    @tool(effect="once", resources=())
    def pay() -> str:
        ran.append("paid")
        return "receipt 7"

    def after(result: Any) -> None:
        # Recorded before any hook sees it (law 15 record-first).
        recorded = [r.event for r in house.rt.engine.journal.read(result.call_id.split("/")[0])]
        shown.extend(x for x in recorded if isinstance(x, e.CallSettled))
        raise RuntimeError("the metrics server is away")

    def observer(event: object) -> None:
        raise OSError("the sink is full")

    house = street.open(kind, [pay], after=[after], observers=[observer])
    run = house.run("r")
    (result,) = run.execute([call("pay")])
    assert endings([result]) == [OK]
    assert result.value == "receipt 7"
    assert ran == ["paid"]
    assert [x.value for x in shown] == ["receipt 7"]


@pytest.mark.parametrize("how", ["cancel", "deadline", "late", "error"])
def test_BH80_what_was_spent_is_recorded_once_on_every_path(
    street: Street, kind: str, how: str
) -> None:
    door = street.door()
    spent_all = threading.Event()

    @tool(resources=(), timeout=0.2 if how in ("deadline", "late") else 30)
    def work(ctx: Context) -> str:
        ctx.spend("5", "USD")
        ctx.spend("7", "USD")
        spent_all.set()
        if how == "error":
            raise ValueError("out of paper")
        if how == "late":
            door.wait()
            ctx.spend("9", "USD")
            return "late"
        ctx.sleep(60)
        return "never"

    house = street.open(kind, [work], config=quick(grace_s=0.1))
    run = house.run("r", limits=Limits(money=(usd("100"),)))
    going = run.begin([call("work")])
    assert spent_all.wait(5)
    if how == "cancel":
        run.cancel()
    (result,) = going.result(6.0)
    assert result.spent == (usd("12"),)
    state = house.state.runs["r"]
    if how == "late":
        door.open()
        house.watch.wait(e.LateEnd)
        assert result.spent == (usd("12"),), "the answer was changed after it was given"
        assert [x.money for x in house.watch.told(e.CallSpent) if x.late] == [usd("9")]
    total = Decimal("21" if how == "late" else "12")
    assert sum(x.money.amount for x in house.watch.told(e.CallSpent)) == total
    # The books of the run say the same: what is left can be spent, and no cent more.
    rest = Decimal(100) - total
    assert state.budget.refuses("work", usd(str(rest))) is None
    assert state.budget.refuses("work", usd(str(rest + Decimal("0.01")))) is not None


def test_BH60_after_hooks_have_seen_every_result_when_a_batch_returns(
    street: Street, kind: str
) -> None:
    seen: list[str] = []

    @tool(effect="read_only", resources=())
    def look() -> None:
        return None

    house = street.open(kind, [look], after=[lambda result: seen.append(result.call_id)])
    for number in range(100):
        run = house.run(f"r{number}")
        run.execute([call("look")])
        assert seen[-1:] == [f"r{number}/0.0"], "the batch returned before its hook was called"
        run.close()
