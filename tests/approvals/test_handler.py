"""Approvals by a policy hook and by a handler, on both drivers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from endstop import (
    Approve,
    Ask,
    Block,
    CallerError,
    Edit,
    HookCall,
    Pending,
    Reject,
    Respond,
    Rewrite,
    tool,
)
from endstop.core import events as e
from tests.driving import OK, UNSTARTED, Street, call, endings, quick, until

DENIED = ("rejected", "denied_by_human", "none")
EXPIRED = ("rejected", "approval_expired", "none")
ANSWERED = ("succeeded", "answered_by_human", "none")


@tool(resources=())
def pay(amount: int) -> int:
    """Pay an amount."""
    return amount


def big_ones(seen: HookCall) -> Any:
    """A policy: whatever is above 10 needs a human."""
    return Ask(f"pay {seen.arguments['amount']}?") if seen.arguments["amount"] > 10 else None


# -- by policy hook


def test_BH37_a_hook_asks_and_the_prompt_is_kept(street: Street, kind: str) -> None:
    house = street.open(kind, [pay], before=[big_ones])
    going = house.run("r").begin([call("pay", amount=5), call("pay", amount=50)])
    house.watch.wait(e.ApprovalAsked)
    house.watch.wait(e.CallSettled, 0)
    (pending,) = house.rt.pending()
    assert (pending.call_id, pending.prompt) == ("r/0.1", "pay 50?")
    assert (pending.arguments, pending.expires_in_s) == ({"amount": 50}, None)
    assert pending.approve(by="anna")
    assert not pending.approve(by="anna"), "an answer was used twice"
    assert endings(going.result()) == [OK, OK]
    answered = house.watch.wait(e.ApprovalAnswered)
    assert (answered.by, answered.digest, answered.final) == ("anna", pending.digest, "")


def test_BH40_what_is_asked_about_is_what_all_hooks_left(street: Street, kind: str) -> None:
    hooks = [big_ones, lambda seen: Rewrite({"amount": 1000}), lambda seen: Ask("sure?")]
    house = street.open(kind, [pay], before=hooks)
    going = house.run("r").begin([call("pay", amount=50)])
    house.watch.wait(e.ApprovalAsked)
    (pending,) = house.rt.pending()
    assert pending.arguments == {"amount": 1000}
    assert pending.prompt == "pay 50?\nsure?"
    pending.arguments["amount"] = 1
    assert pending.approve()
    assert [r.value for r in going.result()] == [1000]


def test_a_later_hook_may_still_refuse(street: Street, kind: str) -> None:
    house = street.open(kind, [pay], before=[big_ones, lambda seen: Block("not today")])
    (result,) = house.execute(call("pay", amount=50))
    assert endings([result]) == [("rejected", "denied_by_policy", "none")]
    assert not house.watch.told(e.ApprovalAsked)


@pytest.mark.parametrize("whose", ["hook", "configuration"])
def test_BH37_silence_expires_and_is_no_denial(street: Street, kind: str, whose: str) -> None:
    own = 0.1 if whose == "hook" else 60.0
    limit = 60.0 if whose == "hook" else 0.1
    config = quick(**{"timeouts.approvals": limit})
    house = street.open(kind, [pay], before=[lambda seen: Ask("?", expires_s=own)], config=config)
    (result,) = house.begin(call("pay", amount=1)).result(5.0)
    assert endings([result]) == [EXPIRED]
    assert not house.watch.told(e.ApprovalAnswered)
    assert "nobody answered" in result.text


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "soon"])
def test_a_hook_s_limit_must_be_a_time(street: Street, kind: str, limit: Any) -> None:
    house = street.open(kind, [pay], before=[lambda seen: Ask("?", expires_s=limit)])
    (result,) = house.execute(call("pay", amount=1))
    assert endings([result]) == [("rejected", "hook_failed", "none")]
    assert "expires_s is a number of seconds above 0" in result.text


# -- a handler


def answering(answer: Any, how: str) -> Any:
    if how == "plain":
        return lambda pending: answer

    async def handler(pending: Pending) -> Any:
        await asyncio.sleep(0)
        return answer

    return handler


@pytest.mark.parametrize("how", ["plain", "async"])
@pytest.mark.parametrize(
    ("answer", "ending", "value"),
    [
        (Approve(), OK, 50),
        (Reject("too much"), DENIED, None),
        (Respond("paid by hand"), ANSWERED, "paid by hand"),
        (Edit({"amount": 7}), OK, 7),
    ],
)
def test_a_handler_gives_the_four_answers(
    street: Street, kind: str, how: str, answer: Any, ending: Any, value: Any
) -> None:
    house = street.open(kind, [pay], before=[big_ones], approve=answering(answer, how))
    (result,) = house.execute(call("pay", amount=50))
    assert endings([result]) == [ending]
    assert result.value == value
    answered = house.watch.wait(e.ApprovalAnswered)
    assert answered.by == "handler"
    if isinstance(answer, Edit):
        (asked,) = house.watch.told(e.ApprovalAsked)
        assert answered.digest == asked.digest
        assert answered.final not in ("", asked.digest), "an edit has a digest of its own"


def test_a_handler_may_answer_by_the_question(street: Street, kind: str) -> None:
    went_on = threading.Event()

    async def handler(pending: Pending) -> None:
        assert pending.approve(by="bot")
        await asyncio.sleep(0.01)
        went_on.set()

    house = street.open(kind, [pay], before=[big_ones], approve=handler)
    assert endings(house.execute(call("pay", amount=50))) == [OK]
    assert went_on.wait(5), "its own answer broke the handler off"
    simple = street.open(kind, [pay], before=[big_ones], approve=lambda p: p.approve())
    assert endings(simple.execute(call("pay", amount=50))) == [OK]


@pytest.mark.parametrize("how", ["plain", "async"])
@pytest.mark.parametrize("what", ["raises", "exits", "None", "True", "bad edit"])
def test_what_is_no_answer_leaves_it_pending(
    street: Street, kind: str, how: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()
    answers = {"None": None, "True": True, "bad edit": Edit({"amount": "much"})}

    def think(pending: Pending) -> Any:
        over.set()
        if what == "raises":
            raise ValueError("no idea")
        if what == "exits":
            raise SystemExit
        return answers[what]

    async def think_slowly(pending: Pending) -> Any:
        await asyncio.sleep(0)
        return think(pending)

    handler = think if how == "plain" else think_slowly
    house = street.open(kind, [pay], before=[big_ones], approve=handler)
    going = house.run("r").begin([call("pay", amount=50)])
    assert over.wait(5)
    if what != "None":
        until(lambda: "stays pending" in caplog.text or "handler's edit" in caplog.text)
    assert [p.call_id for p in house.rt.pending()] == ["r/0.0"]
    assert not house.watch.told(e.ApprovalAnswered)
    assert house.rt.reject("r/0.0", "no")
    assert endings(going.result()) == [DENIED]


@pytest.mark.parametrize("end", ["cancel", "answered elsewhere"])
def test_a_handler_that_hangs_is_let_go(street: Street, kind: str, end: str) -> None:
    began, broken_off = threading.Event(), threading.Event()

    async def handler(pending: Pending) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            broken_off.set()
            raise

    house = street.open(kind, [pay], before=[big_ones], approve=handler)
    run = house.run("r")
    going = run.begin([call("pay", amount=50)])
    assert began.wait(5)
    if end == "cancel":
        run.cancel()
    else:
        assert house.rt.approve("r/0.0", by="anna")
    assert endings(going.result(2.0)) == [UNSTARTED if end == "cancel" else OK]
    assert broken_off.wait(5), "nobody waits for its answer any more"


def test_BH39_a_late_answer_of_a_handler_is_refused(street: Street, kind: str) -> None:
    began, door = threading.Event(), threading.Event()
    took: list[bool] = []

    def handler(pending: Pending) -> None:
        began.set()
        assert door.wait(10)
        took.append(pending.approve())

    house = street.open(kind, [pay], before=[big_ones], approve=handler)
    run = house.run("r")
    going = run.begin([call("pay", amount=50)])
    assert began.wait(5)
    run.cancel()
    assert endings(going.result(2.0)) == [UNSTARTED]
    door.set()
    until(lambda: took)
    assert took == [False]


def test_BH41_a_handler_is_asked_about_each_call_by_itself(street: Street, kind: str) -> None:
    meet = threading.Barrier(4)

    def handler(pending: Pending) -> Any:
        meet.wait(10)
        return Approve() if pending.arguments["amount"] % 2 else Reject()

    house = street.open(kind, [pay], before=[big_ones], approve=handler)
    results = house.execute(*(call("pay", amount=n) for n in (11, 12, 13, 14)))
    assert endings(results) == [OK, DENIED, OK, DENIED]


def test_a_handler_must_be_callable(street: Street, kind: str) -> None:
    with pytest.raises(CallerError, match="approve must be callable"):
        street.open(kind, [pay], approve="yes")
