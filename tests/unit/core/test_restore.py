"""Restoring a run into a living state: what stands where, with what is left of its time."""

from __future__ import annotations

import pytest

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.recovery import Unfinished
from endstop.core.restore import Stamped, restore
from endstop.core.state import State
from endstop.core.terms import ApprovalTerms, EffectClass, How, Isolation, Outcome, Phase, Reason
from endstop.testing.laws import check_state
from tests.stories import PLAIN, Story, asked, begin, contract, eur, x

WALL = 1_000_000.0


def stamped(story: Story, at: float = WALL) -> list[Stamped]:
    """What a story has recorded, all at one instant."""
    return [(at, one) for one in story.events if not isinstance(one, e.TRANSIENT)]


@pytest.mark.parametrize(("gone_s", "left_s"), [(0.0, 50.0), (20.0, 30.0), (70.0, -20.0)])
def test_law_13_an_approval_has_what_is_left_of_its_time(gone_s: float, left_s: float) -> None:
    story = Story()
    ask = ApprovalTerms(digest="d", prompt="sure?", expires_s=50.0)
    story.say(*begin(asked(ready=False)))
    story.say(i.Prepared(call="r/0.0", arguments={"a": 1}, claims=(x("k"),), approval=ask))
    state = State()
    restore(state, stamped(story), 7.0, WALL + gone_s)
    step(state, i.ResumeRun(run="r"), 7.0)
    call = state.calls["r/0.0"]
    assert (call.phase, call.approval) == (Phase.AWAITING_APPROVAL, "d")
    assert (call.arguments, call.claims) == ({"a": 1}, (x("k"),))
    assert call.due == 7.0 + left_s
    assert check_state(state) == []


def test_law_8_a_clock_that_was_set_back_gives_no_time_away() -> None:
    story = Story()
    ask = ApprovalTerms(digest="d", expires_s=50.0)
    story.say(*begin(asked(ready=False)))
    story.say(i.Prepared(call="r/0.0", arguments={}, claims=(), approval=ask))
    state = State()
    restore(state, stamped(story), 7.0, WALL - 1000.0)
    assert state.calls["r/0.0"].due == 57.0


def test_law_10_the_deadline_counts_what_an_attempt_has_used() -> None:
    terms = contract(PLAIN, effect=EffectClass.IDEMPOTENT, deadline_s=20.0)
    story = Story()
    story.say(*begin(asked(terms=terms)))
    story.start("r/0.0")
    told: list[Stamped] = [*stamped(story), (WALL + 15.0, e.RunInterrupted(run="r"))]
    state = State()
    restore(state, told, 0.0, WALL + 500.0)
    step(state, i.ResumeRun(run="r", again=("r/0.0",)), 0.0)
    step(state, i.Claimed(call="r/0.0"), 1.0)
    assert state.calls["r/0.0"].due == 6.0, "5 of 20 seconds are left"


def test_law_10_a_used_up_deadline_is_not_given_anew() -> None:
    story = Story()
    story.say(*begin(asked(terms=contract(PLAIN, effect=EffectClass.READ_ONLY, deadline_s=20.0))))
    story.start("r/0.0")
    told: list[Stamped] = [*stamped(story), (WALL + 25.0, e.RunInterrupted(run="r"))]
    state = State()
    restore(state, told, 0.0, WALL + 25.0)
    step(state, i.ResumeRun(run="r", again=("r/0.0",)), 0.0)
    settled = state.calls["r/0.0"].settled
    assert settled is not None
    assert (settled.outcome, settled.reason) == (Outcome.LOST, Reason.DRIVER_LOST)


def test_law_12_what_was_granted_waits_for_what_others_hold_now() -> None:
    """A living run holds the slot and the resource: the restored one stands in line."""
    read = contract(effect=EffectClass.READ_ONLY)
    story = Story()
    story.say(*begin(asked(x("k"), terms=read), asked(x("k"))))
    story.start("r/0.0")
    living = Story(slots={Isolation.COROUTINE: 1})
    living.say(
        i.OpenRun(run="other"),
        i.SubmitBatch(run="other", calls=(asked(x("k")),)),
        i.Claimed(call="other/0.0"),
    )
    state = living.state
    restore(state, stamped(story), 0.0, WALL)
    step(state, i.ResumeRun(run="r", again=("r/0.0",)), 0.0)
    assert check_state(state) == []
    assert [state.calls[c].phase for c in ("r/0.0", "r/0.1")] == [Phase.QUEUED, Phase.QUEUED]
    step(state, i.BodyEnded(call="other/0.0", how=How.RETURNED), 1.0)
    assert [state.calls[c].phase for c in ("r/0.0", "r/0.1")] == [Phase.GRANTED, Phase.QUEUED]
    assert check_state(state) == []


def test_law_20_the_books_go_on_where_they_stood() -> None:
    story = Story()
    story.say(*begin(asked(cost=eur("2")), asked(cost=eur("3"), terms=contract(commits=True))))
    story.start("r/0.0", "r/0.1")
    story.say(i.Spent(call="r/0.0", money=eur("5")))
    story.end("r/0.0")
    left = Unfinished("r")
    told = stamped(story)
    left.read(event for _, event in told)
    state = State()
    run = restore(state, [*told, *((WALL, one) for one in left.closing())], 0.0, WALL)
    step(state, i.ResumeRun(run="r"), 0.0)
    assert run.budget.spent["EUR"] == eur("8").amount, "5 as told, 3 taken for spent"
    assert run.budget.calls == 2
    assert not any(run.budget.reserved.values())
    assert check_state(state) == []


def test_law_14_a_lost_sibling_stops_a_batch_that_asked_for_it() -> None:
    story = Story()
    story.say(*begin(asked(x("k")), asked(x("k")), asked(ready=False), stop_on_failure=True))
    story.start("r/0.0")
    told = stamped(story)
    left = Unfinished("r")
    left.read(event for _, event in told)
    state = State()
    restore(state, [*told, *((WALL, one) for one in left.closing())], 0.0, WALL)
    step(state, i.ResumeRun(run="r"), 0.0)
    ends = [state.calls[f"r/0.{n}"].settled for n in range(3)]
    assert [end.reason for end in ends if end is not None] == [
        Reason.DRIVER_LOST,
        Reason.SIBLING_FAILED,
        Reason.SIBLING_FAILED,
    ]
    assert state.runs["r"].batches[0].closed
    assert check_state(state) == []
