"""The same call again after one of which it is not known what it did (law 10 no-blind-retry)."""

from __future__ import annotations

from typing import Any

import pytest

from endstop import Context, Effect, NotFound, Outcome, Reason, tool
from endstop.core import events as e
from endstop.tools.tool import Tool
from tests.driving import Door, House, Street, call, quick
from tests.recovery.crashing import crashed, cut_after, recorded


def charge_of(door: Door | None = None, **contract: Any) -> Tool:
    """A paid tool that fails half way, or hangs at a door, deaf to every stop."""

    def charge(ctx: Context, n: int) -> str:
        if door is not None and not door.is_open:
            door.wait()
            return "late"
        if n == 1:
            raise ConnectionError("the reply was lost")
        return "paid"

    return tool(effect="effectful", **contract)(charge)


def again(house: House, run: Any, **arguments: Any) -> Any:
    (result,) = run.execute([call("charge", "other id", **arguments)])
    return result


def test_bh58_the_same_call_again_is_told_of_the_earlier_one(street: Street, kind: str) -> None:
    house = street.open(kind, [charge_of()])
    run = house.run("r")
    first = again(house, run, n=1)
    assert first.effect is Effect.UNKNOWN
    assert first.earlier is None
    second = again(house, run, n=1)
    assert second.earlier is not None
    assert (second.earlier.call, second.earlier.effect) == ("r/0.0", Effect.UNKNOWN)
    assert "issued before as r/0.0" in second.text
    assert "unknown" in second.text
    other = again(house, run, n=2)
    assert other.earlier is None, "other arguments are another call"
    assert "issued before" not in other.text


@pytest.mark.parametrize("effect", ["read_only", "idempotent"])
def test_what_may_run_twice_is_not_flagged(street: Street, kind: str, effect: str) -> None:
    ask = tool(effect=effect, name="charge")(charge_of().fn)
    house = street.open(kind, [ask])
    run = house.run("r")
    again(house, run, n=1)
    assert again(house, run, n=1).earlier is None


def test_bh36_it_is_refused_while_the_earlier_worker_lives(street: Street, kind: str) -> None:
    door = street.door()
    house = street.open(kind, [charge_of(door)], config=quick(grace_s=0.05))
    first_run = house.run("r")
    going = first_run.begin([call("charge", n=2)], timeout_s=0.05)
    (first,) = going.result()
    assert (first.outcome, first.alive) == (Outcome.TIMED_OUT, True)
    refused = again(house, first_run, n=2)
    assert (refused.outcome, refused.reason) == (Outcome.REJECTED, Reason.EARLIER_ATTEMPT_ALIVE)
    assert refused.effect is Effect.NONE
    assert "r/0.0" in refused.text
    heir = house.run("s", after="r")
    assert again(house, heir, n=2).reason is Reason.EARLIER_ATTEMPT_ALIVE
    door.open()
    house.watch.wait(e.LateEnd)
    allowed = again(house, heir, n=2)
    assert (allowed.value, allowed.earlier.call) == ("paid", "r/0.0")


def test_a_run_that_continues_another_inherits_over_a_restart(street: Street, kind: str) -> None:
    house = street.open(kind, [charge_of()])
    run = house.run("r")
    again(house, run, n=1)
    run.close()
    second = street.open(kind, [charge_of()], journal=crashed(recorded(house)))
    heir = second.run("s", after="r")
    assert again(second, heir, n=1).earlier.call == "r/0.0"
    heir.close()
    # And so does the one after it, by what it inherited.
    third = second.run("t", after="s")
    assert again(second, third, n=1).earlier is not None


def test_every_resume_inherits(street: Street, kind: str) -> None:
    house = street.open(kind, [charge_of()])
    house.run("r").execute([call("charge", n=2)])
    cut = cut_after(recorded(house), e.CallStarted, "r/0.0")
    second = street.open(kind, [charge_of()], journal=crashed(cut))
    second.lawful = False
    if kind == "blocking":
        run = second.rt.resume("r")
        (result,) = run.execute([call("charge", n=2)])
    else:
        run = second.await_there(second.rt.resume("r"))
        (result,) = second.await_there(run.execute([call("charge", n=2)]))
    assert (result.value, result.earlier.call) == ("paid", "r/0.0")
    assert result.earlier.outcome is Outcome.LOST


def test_a_run_that_nobody_knows_cannot_be_continued(street: Street, kind: str) -> None:
    house = street.open(kind, [charge_of()])
    with pytest.raises(NotFound, match="no run 'gone' to continue"):
        house.run("s", after="gone")


def test_two_identical_calls_in_one_batch_are_both_told_of_the_one_before(
    street: Street, kind: str
) -> None:
    """Neither hides it from the other; each runs once, and each says so to the model."""
    house = street.open(kind, [charge_of(resources=[])])
    run = house.run("r")
    assert again(house, run, n=1).effect is Effect.UNKNOWN
    both = run.execute([call("charge", "a", n=1), call("charge", "b", n=1)])
    assert [one.earlier.call for one in both if one.earlier] == ["r/0.0", "r/0.0"]
    assert all("issued before as r/0.0" in one.text for one in both)
    assert [one.outcome for one in both] == [Outcome.FAILED] * 2
    third = again(house, run, n=1)
    assert third.earlier is not None
    assert third.earlier.call in ("r/1.0", "r/1.1"), "the last one that is not known"


def test_of_two_identical_calls_one_after_the_other_the_second_hears_of_the_first(
    street: Street, kind: str
) -> None:
    house = street.open(kind, [charge_of()])
    run = house.run("r")
    first, second = run.execute([call("charge", n=1), call("charge", n=1)], parallel=1)
    assert first.earlier is None
    assert second.earlier is not None
    assert second.earlier.call == "r/0.0"


def test_two_identical_calls_are_both_refused_while_the_one_before_lives(
    street: Street, kind: str
) -> None:
    door = street.door()
    house = street.open(kind, [charge_of(door, resources=[])], config=quick(grace_s=0.05))
    run = house.run("r")
    (hung,) = run.begin([call("charge", n=2)], timeout_s=0.05).result()
    assert hung.alive
    both = run.execute([call("charge", "a", n=2), call("charge", "b", n=2)])
    assert [one.reason for one in both] == [Reason.EARLIER_ATTEMPT_ALIVE] * 2
    door.open()
    house.watch.wait(e.LateEnd)
    assert [one.value for one in run.execute([call("charge", n=2), call("charge", n=2)])] == [
        "paid",
        "paid",
    ]
