"""The gate: who may go, in which order, and what stands in the way (laws 1, 4, 7, 12)."""

from __future__ import annotations

import pytest

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.evolve import evolve
from endstop.core.gate import waits_for
from endstop.core.terms import (
    ApprovalTerms,
    Effect,
    How,
    Isolation,
    Limits,
    Mode,
    Outcome,
    Phase,
    Reason,
    Verdict,
)
from tests.stories import CALM, PLAIN, Story, asked, begin, contract, eur, s, x

C0, C1, C2 = "r/0.0", "r/0.1", "r/0.2"
THREAD = contract(isolation=Isolation.THREAD)


def granted(story: Story) -> list[str]:
    """The calls that were granted, in order."""
    return [event.call for event in story.told(e.CallGranted)]


_WHY = {"reason": Reason.SUPERSEDED, "mode": Mode.INTERRUPT}


@pytest.mark.parametrize(
    "cancelled", [e.RunCancelled(run="r", **_WHY), e.BatchCancelled(run="r", batch="r/0", **_WHY)]
)
def test_law_1_one_door_a_cancel_that_is_known_closes_the_gate_and_the_claim(
    cancelled: e.RunCancelled | e.BatchCancelled,
) -> None:
    """Only the cancel is applied, as by a driver that reads it from a journal."""
    story = Story()
    story.say(*begin(asked(), asked(x("k")), asked(x("k"))))
    evolve(story.state, cancelled, 0.0)
    assert step(story.state, i.Claimed(call=C0), 0.0) == [], "the claim is the last door"
    # The slot that is free now would have been the next call's.
    found = step(story.state, i.StartFailed(call=C1, message="no worker"), 0.0)
    ends = [event for event in found if isinstance(event, e.CallSettled)]
    assert [(end.call, end.reason, end.effect) for end in ends] == [
        (C1, Reason.START_FAILED, Effect.NONE),
        (C2, Reason.SUPERSEDED, Effect.NONE),
    ]
    assert not any(isinstance(event, e.CallGranted) for event in found)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("target", ["r", "r/0"])
def test_law_1_one_door_no_wait_ends_in_a_start_after_a_cancel(target: str, mode: Mode) -> None:
    story = Story({Isolation.THREAD: 1})
    ask = ApprovalTerms(digest="d")
    story.say(
        *begin(
            asked(x("k"), terms=THREAD),
            asked(ready=False),
            asked(ready=False),
            asked(x("k")),
            asked(terms=THREAD),
            asked(ready=False),
            asked(x("p")),
            parallel=6,
        )
    )
    story.start(C0)
    story.say(i.Prepared(call="r/0.2", arguments={}, claims=(), approval=ask))
    story.say(i.HookBegan(call=C1, hook="h", limit_s=1.0))
    waiting = [waits_for(story.state, c) for c in story.state.calls.values()]
    assert waiting == ["", "hook h", "approval", "k", "a free thread slot", "being prepared", ""]
    story.cancel(target, mode)
    late: tuple[i.Input, ...] = (
        i.Prepared(call=C1, arguments={}, claims=()),
        i.Answered(call=C2, digest="d", verdict=Verdict.APPROVE),
        i.Prepared(call="r/0.5", arguments={}, claims=()),
        *(i.Claimed(call=f"r/0.{n}") for n in range(7)),
    )
    assert story.say(*late) == []
    story.end(C0)
    assert [event.call for event in story.told(e.CallStarted)] == [C0]
    assert {story.ending(f"r/0.{n}").outcome for n in range(1, 7)} == {Outcome.CANCELLED}
    story.over()


def test_law_4_order_holds_while_the_earlier_call_is_prepared_and_approved() -> None:
    story = Story()
    story.say(*begin(asked(x("file:/a"), ready=False), asked(s("file:/a/b")), asked(x("k"))))
    assert granted(story) == [C2], "what conflicts with nothing goes at once"
    ask = ApprovalTerms(digest="d")
    story.say(i.Prepared(call=C0, arguments={}, claims=(x("file:/a"),), approval=ask))
    assert waits_for(story.state, story.call(C1)) == "an earlier call of its batch"
    story.say(i.Answered(call=C0, digest="d", verdict=Verdict.APPROVE))
    story.start(C0)
    assert granted(story) == [C2, C0]
    story.end(C0)
    assert granted(story) == [C2, C0, C1]


def test_law_4_rewritten_arguments_keep_their_place() -> None:
    story = Story()
    story.say(*begin(asked(x("a"), ready=False), asked(x("b"), ready=False), asked(x("b"))))
    story.say(i.Prepared(call=C0, arguments={}, claims=(x("b"),)))
    assert granted(story) == [C0]
    story.say(i.Prepared(call=C1, arguments={}, claims=(x("c"),)))
    assert granted(story) == [C0, C1], "it no longer wants what it wanted"
    story.start(C0)
    story.end(C0)
    assert granted(story) == [C0, C1, C2]


def test_law_4_the_question_to_a_human_shows_what_is_wanted_now() -> None:
    story = Story()
    story.say(*begin(asked(x("a"), ready=False), asked(x("b"), ready=False), asked(x("a"))))
    ask = ApprovalTerms(digest="d")
    story.say(i.Prepared(call=C0, arguments={}, claims=(x("b"),), approval=ask))
    assert granted(story) == [C2], "what it wanted before is free"
    story.say(i.Prepared(call=C1, arguments={}, claims=(x("b"),)))
    assert granted(story) == [C2], "what it wants now is not"
    story.say(i.Answered(call=C0, digest="d", verdict=Verdict.APPROVE))
    story.start(C0)
    story.end(C0)
    assert granted(story) == [C2, C0, C1]


def test_law_12_a_wait_for_a_human_holds_nothing_against_other_runs() -> None:
    story = Story()
    story.say(*begin(asked(x("k"), ready=False), asked(x("k"))))
    ask = ApprovalTerms(digest="d")
    story.say(i.Prepared(call=C0, arguments={}, claims=(x("k"),), approval=ask))
    story.say(i.OpenRun(run="q"), i.SubmitBatch(run="q", calls=(asked(x("k")),)))
    story.start("q/0.0")


def test_waiters_are_served_in_request_order() -> None:
    story = Story({Isolation.THREAD: 1})
    calls = [asked(x("k"), terms=THREAD) for _ in range(5)]
    story.say(*begin(asked(terms=THREAD), *calls, *(asked(terms=THREAD) for _ in range(3))))
    for n in (0, 1, 6, 7, 8, 2, 3, 4, 5):
        assert granted(story)[-1] == f"r/0.{n}"
        story.start(f"r/0.{n}")
        story.end(f"r/0.{n}")
    story.over()


def test_those_who_are_freed_together_go_in_request_order() -> None:
    story = Story({Isolation.THREAD: 1})
    story.say(
        *begin(
            asked(x("file:/"), x("file:/a")),
            asked(x("file:/a"), terms=THREAD),
            asked(x("file:/b"), terms=THREAD),
        )
    )
    story.start(C0)
    story.end(C0)
    assert granted(story) == [C0, C1]


def test_a_barrier_waits_for_all_before_it_and_holds_all_behind_it() -> None:
    story = Story()
    story.say(*begin(asked(), asked(terms=contract(exclusive=True)), asked()))
    assert granted(story) == [C0]
    story.start(C0)
    story.end(C0)
    assert granted(story) == [C0, C1]
    story.start(C1)
    story.end(C1)
    assert granted(story) == [C0, C1, C2]


def test_one_at_a_time_is_a_row_of_barriers() -> None:
    story = Story()
    story.say(*begin(*(asked() for _ in range(4)), parallel=1))
    for n in range(4):
        assert granted(story) == [f"r/0.{m}" for m in range(n + 1)]
        story.start(f"r/0.{n}")
        story.end(f"r/0.{n}")
    story.over()


def test_lanes_bound_a_batch_and_pass_on() -> None:
    story = Story()
    story.say(*begin(*(asked() for _ in range(5)), parallel=2))
    assert granted(story) == [C0, C1]
    assert waits_for(story.state, story.call(C2)) == "one of 2 parallel calls"
    story.cancel(C0)
    assert granted(story) == [C0, C1, C2]
    story.start(C1, C2)
    story.end(C1, C2)
    story.start("r/0.3", "r/0.4")
    story.end("r/0.3", "r/0.4")
    story.over()


def test_law_7_who_waits_for_a_lane_can_be_cancelled() -> None:
    story = Story()
    story.say(*begin(*(asked() for _ in range(4)), parallel=2))
    story.cancel(C2)
    story.start(C0)
    story.end(C0)
    assert granted(story) == [C0, C1, "r/0.3"]


def test_together_starts_when_the_last_is_prepared_or_refused() -> None:
    story = Story()
    story.say(*begin(asked(), asked(ready=False), asked(ready=False), together=True))
    story.say(i.Prepared(call=C1, arguments={}, claims=()))
    assert granted(story) == []
    story.cancel(C2)
    assert granted(story) == [C0, C1]


def test_bh24_never_started_calls_are_not_reported_as_timed_out() -> None:
    story = Story()
    story.say(*begin(*(asked() for _ in range(10)), parallel=2, deadline_s=1.0))
    story.start(C0, C1)
    story.end(C1)
    story.start(C2)
    story.end(C2, how=How.RAISED)
    story.start("r/0.3")
    story.at(1.0)
    story.end("r/0.3", how=How.STOPPED)
    story.at(20.0)
    wedged = story.ending(C0)
    assert (wedged.outcome, wedged.reason, wedged.effect, wedged.alive) == (
        Outcome.TIMED_OUT,
        Reason.BATCH_DEADLINE,
        Effect.UNKNOWN,
        True,
    )
    for n in range(4, 10):
        ending = story.ending(f"r/0.{n}")
        assert ending.outcome is Outcome.REJECTED
        assert (ending.reason, ending.effect) == (Reason.BATCH_DEADLINE, Effect.NONE)
    assert not story.state.runs["r"].batches[0].line
    story.over()


def test_a_parked_body_goes_on_where_abandoned_workers_hold_every_slot() -> None:
    story = Story({Isolation.THREAD: 1})
    story.say(*begin(asked(terms=THREAD)))
    story.start(C0)
    story.say(i.OpenRun(run="c", parent_call=C0), i.ParkBegan(call=C0))
    story.say(i.SubmitBatch(run="c", calls=(asked(terms=THREAD),)))
    story.start("c/0.0")
    story.cancel("c")
    story.at(10.0)
    assert story.ending("c/0.0").alive
    story.say(i.ParkEnded(call=C0))
    assert not story.call(C0).parked
    story.end(C0)
    story.end("c/0.0", how=How.STOPPED)
    story.over()


def test_a_parked_body_goes_on_before_who_has_not_begun() -> None:
    story = Story({Isolation.THREAD: 1})
    story.say(*begin(*(asked(terms=THREAD) for _ in range(3))))
    story.start(C0)
    story.say(i.ParkBegan(call=C0))
    story.start(C1)
    story.say(i.ParkEnded(call=C0))
    story.end(C1)
    assert not story.call(C0).parked
    assert story.call(C2).phase is Phase.QUEUED


def test_law_7_a_parked_body_that_ends_leaves_the_line() -> None:
    story = Story({Isolation.THREAD: 1})
    story.say(*begin(*(asked(terms=THREAD) for _ in range(3))))
    story.start(C0)
    story.say(i.ParkBegan(call=C0))
    story.start(C1)
    story.say(i.ParkEnded(call=C0))
    story.cancel(C0)
    story.end(C0, C1)
    story.start(C2)


def test_law_9_saturated_is_said_at_once_and_is_over_with_the_late_end() -> None:
    story = Story({Isolation.THREAD: 1})
    story.say(*begin(asked(terms=THREAD), asked(terms=THREAD)))
    story.start(C0)
    story.cancel(C0)
    assert story.call(C1).phase is Phase.QUEUED, "it may still stop within its grace"
    story.at(10.0)
    ending = story.ending(C1)
    assert (ending.reason, ending.effect) == (Reason.SATURATED, Effect.NONE)
    assert "1 thread slots" in (ending.error or "")
    story.end(C0, how=How.STOPPED)
    story.say(i.SubmitBatch(run="r", calls=(asked(terms=THREAD),)))
    story.start("r/1.0")


def test_law_9_an_abandoned_worker_keeps_its_resources() -> None:
    story = Story()
    story.say(*begin(asked(x("k"), terms=contract(PLAIN, deadline_s=1.0)), asked(x("k", 60.0))))
    story.start(C0)
    story.at(30.0)
    assert story.ending(C0).alive
    assert waits_for(story.state, story.call(C1)) == "k"
    assert story.say(i.Claimed(call=C1)) == []
    story.end(C0, how=How.RETURNED)
    assert [event.how for event in story.told(e.LateEnd)] == [How.RETURNED]
    story.end(C0)
    assert len(story.told(e.LateEnd)) == 1, "a late end is recorded once"
    story.start(C1)


def test_law_12_a_wait_for_a_resource_has_the_limit_of_its_kind() -> None:
    story = Story()
    story.say(*begin(asked(x("k"), x("j")), asked(x("k", 30.0), x("j", 5.0), x("free", 1.0))))
    story.start(C0)
    story.at(4.9)
    assert story.call(C1).phase is Phase.QUEUED, "what is free has no limit to exceed"
    story.at(5.0)
    ending = story.ending(C1)
    assert (ending.reason, ending.effect) == (Reason.RESOURCE_TIMEOUT, Effect.NONE)
    assert ending.error == "j was not free within 5 s"


def test_law_20_a_budget_is_looked_at_when_the_slot_is_free() -> None:
    story = Story()
    price = {"cost": eur("2"), "terms": CALM}
    limits = Limits(money=(eur("5"),))
    story.say(*begin(*(asked(x("k"), **price) for _ in range(4)), limits=limits))
    for n, amount in enumerate(("1", "1")):
        story.start(f"r/0.{n}")
        story.say(i.Spent(call=f"r/0.{n}", money=eur(amount)))
        story.end(f"r/0.{n}")
    story.start(C2)
    story.end(C2)
    assert story.ending("r/0.3").reason is Reason.OVER_BUDGET, "1 + 1 + 2 are spent, 2 are asked"
    story.say(i.Spent(call=C2, money=eur("0.5")))
    assert story.state.runs["r"].budget.taken("EUR") == eur("2.5").amount, "the late word counts"
    story.say(i.SubmitBatch(run="r", calls=(asked(**price),)))
    story.start("r/1.0")


def test_law_20_children_draw_on_the_budget_of_their_parents() -> None:
    story = Story()
    story.say(*begin(asked(), limits=Limits(calls=2)))
    story.start(C0)
    story.say(i.OpenRun(run="c", parent_call=C0, limits=Limits(calls=5)))
    story.say(i.SubmitBatch(run="c", calls=(asked(), asked())))
    story.start("c/0.0")
    assert story.ending("c/0.1").reason is Reason.OVER_BUDGET
