"""Retries: only where they can do no harm, under one effect key and one deadline (law 10)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from endstop import AsyncContext, Context, ContractError, Effect, Outcome, Reason, tool
from endstop.core import events as e
from endstop.core.terms import Backoff
from tests.driving import Street, call
from tests.recovery.crashing import Resumed, crashed, cut_after, recorded

SOON = Backoff(first_s=0.01, factor=1.0, most_s=0.01)


class Flaky:
    """A tool that fails so many times before it succeeds."""

    def __init__(self, fails: int, **contract: Any) -> None:
        self.keys: list[str] = []
        self.fails = fails
        contract.setdefault("backoff", SOON)

        def flaky(ctx: Context) -> str:
            self.keys.append(ctx.effect_key)
            if len(self.keys) <= self.fails:
                raise ConnectionError(f"no {len(self.keys)}")
            return "there"

        self.tool = tool(name="flaky", **contract)(flaky)


@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_law_10_a_failed_attempt_is_followed_by_another_under_the_same_key(
    street: Street, kind: str, effect: str
) -> None:
    flaky = Flaky(2, effect=effect, retries=2)
    house = street.open(kind, [flaky.tool])
    (result,) = house.execute(call("flaky"))
    assert (result.value, result.retried) == ("there", 2)
    assert flaky.keys == [result.call_id] * 3
    again = house.watch.told(e.CallRetried)
    assert [(one.attempt, one.error) for one in again] == [
        (1, "ConnectionError: no 1"),
        (2, "ConnectionError: no 2"),
    ]
    assert "attempt 3" in result.text


def test_law_10_retries_are_counted(street: Street, kind: str) -> None:
    flaky = Flaky(9, effect="read_only", retries=2)
    (result,) = street.open(kind, [flaky.tool]).execute(call("flaky"))
    assert (result.outcome, result.retried, len(flaky.keys)) == (Outcome.FAILED, 2, 3)
    assert "no 3" in result.text


@pytest.mark.parametrize("effect", ["effectful", "once"])
def test_law_10_what_may_have_had_an_effect_is_never_tried_again(
    street: Street, kind: str, effect: str
) -> None:
    flaky = Flaky(1, effect=effect, retries=5)
    (result,) = street.open(kind, [flaky.tool]).execute(call("flaky"))
    assert (result.outcome, result.effect) == (Outcome.FAILED, Effect.UNKNOWN)
    assert (len(flaky.keys), result.retried) == (1, 0)


def test_law_10_what_failed_before_its_commit_point_may_be_tried_again(
    street: Street, kind: str
) -> None:
    ran: list[int] = []

    @tool(effect="effectful", commits=True, retries=3, backoff=SOON)
    def pay(ctx: Context) -> str:
        ran.append(1)
        if len(ran) == 1:
            raise ConnectionError("before")
        with ctx.commit():
            raise ConnectionError("inside")

    (result,) = street.open(kind, [pay]).execute(call("pay"))
    assert (result.outcome, result.effect, result.retried) == (Outcome.FAILED, Effect.UNKNOWN, 1)
    assert len(ran) == 2, "the second attempt had passed the point"


def test_law_7_a_call_that_rests_is_cancelled_at_once_and_holds_nothing(
    street: Street, kind: str
) -> None:
    flaky = Flaky(1, effect="idempotent", retries=1, backoff="1h", resources=["x:1"])
    other = tool(name="other", resources=["x:1"])(lambda: "free")
    house = street.open(kind, [flaky.tool, other])
    going = house.run("r").begin([call("flaky")])
    house.watch.wait(e.CallRetried)
    assert house.execute(call("other"))[0].value == "free"
    (view,) = house.rt.calls()
    assert view.waits_for == "its next attempt"
    began = time.monotonic()
    house.cancel("r").wait()
    (result,) = going.result()
    assert time.monotonic() - began < 5.0
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    assert (result.effect, result.stopped_by, len(flaky.keys)) == (Effect.UNKNOWN, None, 1)
    assert "before it was run again" in result.text
    assert "not started" not in result.text
    assert result.text != "Tool call cancelled by interrupt."


def test_law_10_a_cancelled_body_is_not_tried_again(street: Street, kind: str) -> None:
    ran: list[int] = []

    @tool(effect="read_only", retries=5, backoff=SOON)
    async def slow(ctx: AsyncContext) -> None:
        ran.append(1)
        await ctx.sleep(60)

    house = street.open(kind, [slow])
    going = house.run("r").begin([call("slow")])
    house.watch.wait(e.CallStarted)
    house.cancel("r").wait()
    (result,) = going.result()
    assert (result.outcome, result.retried, len(ran)) == (Outcome.CANCELLED, 0, 1)


def test_law_10_all_attempts_share_one_deadline(street: Street, kind: str) -> None:
    """Every attempt takes a part of the running time; the rest between them does not count."""
    ran: list[int] = []

    @tool(effect="read_only", retries=90, backoff=SOON, timeout=0.5)
    def slow(ctx: Context) -> None:
        ran.append(1)
        ctx.wait_cancelled(0.2)
        raise ConnectionError("no")

    (result,) = street.open(kind, [slow]).execute(call("slow"))
    assert 2 <= len(ran) <= 3
    assert result.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)
    assert result.ran_s < 1.5


def test_law_10_retries_are_counted_across_a_restart(street: Street, kind: str) -> None:
    flaky = Flaky(9, effect="read_only", retries=2)
    house = street.open(kind, [flaky.tool])
    house.run("r").execute([call("flaky")])
    cut = cut_after(recorded(house), e.CallRetried, "r/0.0")
    second = street.open(kind, [flaky.tool], journal=crashed(cut))
    before = len(flaky.keys)
    (batch,) = Resumed(second).finish()
    assert len(flaky.keys) - before == 2
    assert (batch[0].outcome, batch[0].retried) == (Outcome.FAILED, 2)


def test_bh57_a_lost_reply_is_asked_for_again_only_where_that_is_safe(
    street: Street, kind: str
) -> None:
    for effect, times in (("read_only", 2), ("idempotent", 2), ("effectful", 1), ("once", 1)):
        flaky = Flaky(1, effect=effect, retries=1)
        (result,) = street.open(kind, [flaky.tool]).execute(call("flaky"))
        assert len(flaky.keys) == times
        assert len(set(flaky.keys)) == 1, "BH58: the key is the runtime's, and the same"
        assert result.ok == (times == 2)


@pytest.mark.parametrize(
    ("contract", "says"),
    [
        ({"retries": -1}, "retries is a whole number from 0 to 100"),
        ({"retries": True}, "retries is a whole number"),
        ({"retries": 1, "backoff": "soon"}, "backoff = 'soon'"),
        ({"backoff": Backoff(first_s=-1.0)}, "0 <= first_s <= most_s"),
        ({"backoff": Backoff(factor=0.5)}, "a factor of 1 or more"),
        ({"reconcile": "ask"}, "reconcile is a function of a LostCall"),
    ],
)
def test_a_declaration_that_makes_no_sense(contract: dict[str, Any], says: str) -> None:
    def body() -> None:
        """Nothing."""

    make: Callable[..., Any] = tool(**contract)
    with pytest.raises(ContractError, match=says):
        make(body)


def test_the_rest_grows_up_to_its_bound() -> None:
    backoff = Backoff(first_s=1.0, factor=2.0, most_s=5.0)
    assert [backoff.delay_s(n) for n in (1, 2, 3, 4, 1000)] == [1.0, 2.0, 4.0, 5.0, 5.0]
