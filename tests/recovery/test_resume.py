"""Resuming a run whose driver is gone: laws 10, 13, 15 and 16 on both drivers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from endstop import CallerError, Config, Effect, NotFound, Outcome, Reason, tool
from endstop.core import events as e
from endstop.core.terms import Phase
from endstop.store.memory import MemoryJournal
from endstop.tools.tool import Tool
from tests.driving import House, Street, call, endings, quick
from tests.recovery.crashing import Resumed, crashed, cut_after, recorded

EFFECTS = ("read_only", "idempotent", "effectful", "once")


class Bodies:
    """Tools of each effect class that count how often, and under which key, they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.tools: list[Tool] = [self._tool(effect) for effect in EFFECTS]

    def _tool(self, effect: str) -> Tool:
        def body(n: int) -> str:
            self.ran.append(f"{effect} {n}")
            return f"{effect} {n}"

        return tool(effect=effect, name=effect, resources=[f"x:{effect}"])(body)


def whole_story(street: Street, kind: str) -> list[e.Event]:
    """A run that was never interrupted: one call of each class, then two that conflict."""
    house = street.open(kind, Bodies().tools)
    run = house.run("r")
    run.execute([call(effect, n=1) for effect in EFFECTS])
    run.execute([call("effectful", n=2), call("effectful", n=3)], parallel=1)
    return recorded(house)


def test_law_16_a_run_cut_off_anywhere_is_resumed_and_nothing_runs_twice(
    street: Street, kind: str
) -> None:
    story = whole_story(street, kind)
    assert len(story) > 20
    for length in range(1, len(story) + 1):
        cut = story[:length]
        accepted = [one for one in cut if isinstance(one, e.CallAccepted)]
        if len(accepted) != sum(one.size for one in cut if isinstance(one, e.BatchOpened)):
            # The calls of a batch are recorded with it, or not at all.
            continue
        bodies = Bodies()
        house = street.open(kind, bodies.tools, journal=crashed(cut))
        resumed = Resumed(house)
        results = [one for batch in resumed.finish() for one in batch]
        assert [one.call_id for one in results] == [one.call for one in accepted], length
        over = {one.call for one in cut if isinstance(one, e.CallSettled)}
        begun = {one.call for one in cut if isinstance(one, e.CallGranted | e.CallStarted)}
        for result, one in zip(results, accepted, strict=True):
            effect = one.contract.effect
            ran = bodies.ran.count(f"{effect} {(one.arguments or {})['n']}")
            again = effect in ("read_only", "idempotent")
            if one.call in over:
                assert (ran, result.outcome) == (0, Outcome.SUCCEEDED)
            elif one.call in begun and not again:
                assert (ran, result.outcome, result.effect) == (0, Outcome.LOST, Effect.UNKNOWN)
                assert result.reason is Reason.DRIVER_LOST
            else:
                assert (ran, result.outcome) == (1, Outcome.SUCCEEDED)
                assert result.retried == (1 if one.call in begun else 0)
        house.close()


def test_bh56_an_interruption_is_no_failure(street: Street, kind: str) -> None:
    """One done, one running, two not started: the first is replayed, none is stored as failed."""
    door = street.door()

    @tool(effect="effectful", name="pay")
    def pay(n: int) -> int:
        if n == 1:
            door.wait()
        return n

    house = street.open(kind, [pay])
    going = house.run("r").begin([call("pay", n=n) for n in range(4)], parallel=1)
    house.watch.wait(e.CallStarted, 1)
    cut = recorded(house)
    door.open()
    going.result()
    journal = crashed(cut)
    second = street.open(kind, [pay], journal=journal)
    marked = [one.event for one in journal.read("r")][len(cut) :]
    assert [type(event) for event in marked] == [e.CallSettled, e.RunInterrupted]
    (batch,) = Resumed(second).finish()
    assert endings(batch) == [
        ("succeeded", "ok", "done"),
        ("lost", "driver_lost", "unknown"),
        ("succeeded", "ok", "done"),
        ("succeeded", "ok", "done"),
    ]
    assert not any(one.outcome is Outcome.FAILED for one in batch)


def asking(street: Street, kind: str, approvals: object = None) -> tuple[House, list[e.Event]]:
    """A house whose one call waits for approval, and what is recorded of it."""
    ran: list[int] = []

    @tool(effect="effectful", approval="always", name="pay")
    def pay(n: int) -> int:
        ran.append(n)
        return n

    config = quick() if approvals is None else Config.load(directory="/", environ={})
    house = street.open(kind, [pay], config=config)
    house.run("r").begin([call("pay", n=1)])
    house.watch.wait(e.ApprovalAsked)
    return house, recorded(house)


def test_bh38_a_pending_approval_survives_the_crash(street: Street, kind: str) -> None:
    house, cut = asking(street, kind)
    (before,) = house.rt.pending()
    pay = house.rt.tools["pay"]
    second = street.open(kind, [pay], journal=crashed(cut))
    resumed = Resumed(second)
    (after,) = second.rt.pending()
    assert (after.call_id, after.digest, after.arguments) == (
        before.call_id,
        before.digest,
        before.arguments,
    )
    future = resumed.begin_finish()
    assert second.rt.approve(after.call_id)
    assert not second.rt.approve(after.call_id), "single use"
    (batch,) = future.result(20.0)
    assert [one.value for one in batch] == [1]
    resumed.check()


@pytest.mark.parametrize("answer", ["reject", "respond", "edit"])
def test_bh38_every_answer_works_after_the_crash(street: Street, kind: str, answer: str) -> None:
    house, cut = asking(street, kind)
    second = street.open(kind, [house.rt.tools["pay"]], journal=crashed(cut))
    resumed = Resumed(second)
    what = {"reject": ("no",), "respond": ("done by hand",), "edit": ({"n": 7},)}[answer]
    assert getattr(second.rt, answer)("r/0.0", *what)
    (batch,) = resumed.finish()
    assert batch[0].value == {"reject": None, "respond": "done by hand", "edit": 7}[answer]


def test_law_13_silence_is_not_consent_across_a_crash(street: Street, kind: str) -> None:
    """What is left of the time to answer is what was left, the time without a driver counted."""
    house, cut = asking(street, kind)
    asked = next(one for one in cut if isinstance(one, e.ApprovalAsked))
    cut[cut.index(asked)] = replace(asked, expires_s=1e-6)
    second = street.open(kind, [house.rt.tools["pay"]], journal=crashed(cut))
    (batch,) = Resumed(second).finish()
    assert endings(batch) == [("rejected", "approval_expired", "none")]


def test_law_16_a_cancelled_run_ends_when_its_journal_is_opened(street: Street, kind: str) -> None:
    """BH70: cancelling for ever is no state; the ending is there without anybody's help."""
    door = street.door()

    @tool(effect="effectful", name="deaf")
    def deaf() -> None:
        door.wait()

    house = street.open(kind, [deaf])
    going = house.run("r").begin([call("deaf"), call("deaf")], parallel=1)
    house.watch.wait(e.CallStarted, 0)
    house.cancel("r")
    cut = cut_after(recorded(house), e.AskSent, "r/0.0")
    cut = recorded(house)[: len(cut) + 1]
    door.open()
    going.result()
    journal = crashed(cut)
    second = street.open(kind, [deaf], journal=journal)
    story = [one.event for one in journal.read("r")]
    assert isinstance(story[-1], e.RunEnded)
    assert story[-1].outcome is Outcome.CANCELLED
    resumed = Resumed(second)
    (batch,) = resumed.finish()
    assert [(one.outcome, one.effect) for one in batch] == [
        (Outcome.LOST, Effect.UNKNOWN),
        (Outcome.CANCELLED, Effect.NONE),
    ]
    assert resumed.run.closed


def test_a_tool_that_is_not_there_is_refused_and_the_rest_goes_on(
    street: Street, kind: str
) -> None:
    story = whole_story(street, kind)
    cut = [one for one in story if isinstance(one, e.RunOpened | e.BatchOpened | e.CallAccepted)]
    cut = cut[:6]
    bodies = Bodies()
    house = street.open(kind, bodies.tools[:3], journal=crashed(cut))
    (batch,) = Resumed(house).finish()
    assert [one.ok for one in batch] == [True, True, True, False]
    assert (batch[3].reason, batch[3].effect) == (Reason.UNKNOWN_TOOL, Effect.NONE)
    assert "'once'" in batch[3].text


def test_the_run_takes_further_batches(street: Street, kind: str) -> None:
    story = cut_after(whole_story(street, kind), e.BatchClosed, "r/0")
    bodies = Bodies()
    house = street.open(kind, bodies.tools, journal=crashed(story))
    resumed = Resumed(house)
    assert [len(one) for one in resumed.run.batches] == [4]
    if kind == "blocking":
        more = resumed.run.execute([call("read_only", n=9)])
    else:
        more = house.await_there(resumed.run.execute([call("read_only", n=9)]))
    assert more[0].call_id == "r/1.0"
    assert bodies.ran == ["read_only 9"]


def test_who_resumes_what_it_may_not_is_told_so(street: Street, kind: str) -> None:
    journal = MemoryJournal()
    house = street.open(kind, Bodies().tools, journal=journal)
    house.run("r")
    with pytest.raises(NotFound, match="no run 'nobody'"):
        Resumed(house, "nobody")
    with pytest.raises(CallerError, match="driven here already"):
        Resumed(house, "r")
    other = street.open(kind, Bodies().tools, journal=journal)
    with pytest.raises(CallerError, match="a program that lives"):
        Resumed(other, "r")


def test_law_1_what_is_resumed_can_be_cancelled(street: Street, kind: str) -> None:
    house, cut = asking(street, kind)
    second = street.open(kind, [house.rt.tools["pay"]], journal=crashed(cut))
    resumed = Resumed(second)
    assert second.state.calls["r/0.0"].phase is Phase.AWAITING_APPROVAL
    second.cancel("r").wait()
    (batch,) = resumed.finish()
    assert endings(batch) == [("cancelled", "cancelled_by_user", "none")]
    assert not second.rt.approve("r/0.0")
