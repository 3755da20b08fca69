"""The stop ladder, time, and what is said of those who were stopped (laws 2, 3, 5, 6, 8, 17)."""

from __future__ import annotations

import pytest

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.terms import (
    ApprovalTerms,
    EffectClass,
    Flag,
    How,
    Isolation,
    Mode,
    Outcome,
    Phase,
    Reason,
    StoppedBy,
    Verdict,
)
from endstop.errors import CallerError, NotFound
from tests.stories import CALM, PLAIN, Story, asked, begin, contract, x

C0, C1, C2 = "r/0.0", "r/0.1", "r/0.2"
PROCESS = contract(isolation=Isolation.PROCESS)


def told(events: list[e.Event], call: str) -> list[str]:
    """What happened to one call, by the names of the events."""
    return [type(event).__name__ for event in events if getattr(event, "call", None) == call]


def running(**terms: object) -> Story:
    """One call, running."""
    story = Story()
    story.say(*begin(asked(x("k"), terms=contract(**terms))))
    story.start(C0)
    return story


@pytest.mark.parametrize(
    ("isolation", "instants", "rungs", "by"),
    [
        (Isolation.COROUTINE, (3.0,), ["AskSent", "CallSettled"], StoppedBy.ABANDONED),
        (
            Isolation.PROCESS,
            (3.0, 5.0),
            ["AskSent", "KillSent", "CallSettled"],
            StoppedBy.ABANDONED,
        ),
    ],
)
def test_law_6_the_ladder_has_its_rungs_at_their_times(
    isolation: Isolation, instants: tuple[float, ...], rungs: list[str], by: StoppedBy
) -> None:
    story = running(isolation=isolation)
    events = story.cancel("r")
    for instant in instants:
        assert story.at(instant - 0.01) == []
        events += story.at(instant)
    assert [name for name in told(events, C0) if name != "StopRequested"] == rungs
    assert story.ending(C0).stopped_by is by
    story.over()


@pytest.mark.parametrize(
    ("isolation", "rungs"),
    [
        (Isolation.PROCESS, ["StopRequested", "KillSent", "CallSettled"]),
        (Isolation.THREAD, ["StopRequested", "AskSent", "CallSettled"]),
    ],
)
def test_law_6_kill_skips_the_grace(isolation: Isolation, rungs: list[str]) -> None:
    story = running(isolation=isolation)
    events = story.cancel("r", Mode.KILL) + story.at(2.0)
    assert told(events, C0) == rungs


def test_law_6_a_second_cancel_climbs_and_a_third_changes_nothing() -> None:
    story = running(isolation=Isolation.PROCESS)
    assert told(story.cancel("r"), C0) == ["StopRequested", "AskSent"]
    assert story.cancel("r") == []
    assert told(story.cancel("r", Mode.KILL), C0) == ["KillSent"]
    assert story.cancel("r", Mode.KILL) == []
    story.end(C0, how=How.STOPPED)
    assert story.ending(C0).stopped_by is StoppedBy.KILLED
    assert story.cancel("r") == []
    story.over()


def test_law_6_a_stop_waits_for_the_commit_block_and_not_for_ever() -> None:
    story = running(commits=True)
    story.say(i.CommitEntered(call=C0))
    assert told(story.cancel("r"), C0) == ["StopRequested"]
    assert story.at(4.9) == []
    assert told(story.at(5.0), C0) == ["AskSent"]
    assert told(story.at(8.0), C0) == ["CallSettled"]


def test_law_6_kill_asks_a_body_in_its_commit_block_before_giving_it_up() -> None:
    story = running(commits=True)
    story.say(i.CommitEntered(call=C0))
    story.cancel("r")
    assert told(story.cancel("r", Mode.KILL), C0) == ["AskSent"]
    assert told(story.at(0.1), C0) == ["CallSettled"]


def test_law_6_what_is_due_in_one_tick_does_not_cost_the_grace() -> None:
    """The batch's deadline and the call's fall together: the call still has its grace."""
    story = Story()
    terms = contract(deadline_s=5.0)
    story.say(*begin(asked(terms=terms), asked(terms=terms), deadline_s=5.0))
    story.start(C0, C1)
    assert told(story.at(5.0), C0) == ["StopRequested", "AskSent"]
    story.end(C0, how=How.STOPPED)
    assert story.ending(C0).stopped_by is StoppedBy.ASKED


def test_law_6_a_waiter_that_is_freed_in_the_tick_of_its_limit_goes_on() -> None:
    story = Story()
    first = contract(deadline_s=5.0, isolation=Isolation.PROCESS)
    story.say(*begin(asked(x("k"), terms=first), asked(x("k", 10.0))))
    story.start(C0)
    story.at(9.0)
    story.end(C0, how=How.STOPPED)
    story.at(10.0)
    assert story.call(C1).phase is Phase.GRANTED


def test_law_8_the_deadline_stands_still_while_a_human_thinks() -> None:
    story = running(deadline_s=5.0)
    story.at(2.0)
    story.say(i.HumanBegan(call=C0))
    story.at(10.0)
    story.say(i.HumanEnded(call=C0))
    assert story.at(12.9) == []
    assert story.call(C0).phase is Phase.RUNNING
    story.at(13.0)
    assert story.call(C0).stop_reason is Reason.DEADLINE
    story.end(C0, how=How.RAISED)
    assert story.ending(C0).ran_s == 5.0


def test_law_8_pauses_that_overlap_leave_the_batch_its_deadline() -> None:
    story = Story()
    story.say(*begin(asked(), asked(), deadline_s=5.0))
    story.start(C0, C1)
    story.say(*(i.HumanBegan(call=C0) for _ in range(3)), i.HumanEnded(call=C0))
    story.cancel(C0)
    story.end(C0, how=How.STOPPED)
    story.at(5.0)
    assert story.call(C1).stop_reason is Reason.BATCH_DEADLINE


def test_law_8_progress_extends_the_idle_limit_only() -> None:
    story = running(deadline_s=5.0, idle_s=2.0)
    for second in range(1, 5):
        story.at(float(second))
        story.say(i.Progressed(call=C0))
    story.at(5.0)
    assert story.call(C0).stop_reason is Reason.DEADLINE
    silent = running(deadline_s=5.0, idle_s=2.0)
    silent.at(2.0)
    assert silent.call(C0).stop_reason is Reason.IDLE


def test_law_8_the_time_of_all_who_wait_stands_still_while_a_child_asks() -> None:
    story = Story()
    story.say(*begin(asked(terms=contract(deadline_s=5.0)), deadline_s=6.0))
    story.start(C0)
    story.say(i.OpenRun(run="c", parent_call=C0))
    story.say(i.SubmitBatch(run="c", calls=(asked(ready=False),)))
    story.at(1.0)
    ask = ApprovalTerms(digest="d")
    story.say(i.Prepared(call="c/0.0", arguments={}, claims=(), approval=ask))
    story.at(100.0)
    assert story.say(i.HumanEnded(call=C0)) == [], "it was not the parent that asked"
    story.say(i.Answered(call="c/0.0", digest="d", verdict=Verdict.APPROVE))
    story.start("c/0.0")
    story.say(i.HumanBegan(call="c/0.0"))
    story.at(200.0)
    story.say(i.HumanEnded(call="c/0.0"))
    story.at(203.9)
    assert story.call(C0).phase is Phase.RUNNING
    story.at(204.0)
    assert story.call(C0).stop_reason is Reason.DEADLINE
    detached = Story()
    detached.say(*begin(asked(terms=contract(deadline_s=5.0))))
    detached.start(C0)
    detached.say(i.OpenRun(run="c", parent_call=C0, detached=True))
    detached.say(i.SubmitBatch(run="c", calls=(asked(ready=False),)))
    detached.say(i.Prepared(call="c/0.0", arguments={}, claims=(), approval=ask))
    detached.at(5.0)
    assert detached.call(C0).stop_reason is Reason.DEADLINE, "nobody waits for a detached run"


def test_law_8_an_approval_pauses_the_deadline_of_its_batch() -> None:
    story = Story()
    story.say(*begin(asked(ready=False), deadline_s=5.0))
    ask = ApprovalTerms(digest="d")
    story.say(i.Prepared(call=C0, arguments={}, claims=(), approval=ask))
    story.at(100.0)
    story.say(i.Answered(call=C0, digest="d", verdict=Verdict.APPROVE))
    story.start(C0)
    story.at(104.0)
    assert story.call(C0).phase is Phase.RUNNING
    story.at(105.0)
    assert story.call(C0).stop_reason is Reason.BATCH_DEADLINE


def test_drain_lets_run_what_runs_and_keeps_its_limits() -> None:
    story = Story()
    story.say(*begin(asked(), asked(x("k")), asked(x("k")), deadline_s=5.0))
    story.start(C0)
    story.cancel("r/0", Mode.DRAIN)
    assert story.phases() == [Phase.RUNNING, Phase.SETTLED, Phase.SETTLED]
    story.at(5.0)
    assert story.call(C0).phase is Phase.STOPPING, "the batch still has its deadline"


@pytest.mark.parametrize(
    ("how", "outcome", "flags"),
    [
        (How.RETURNED, Outcome.SUCCEEDED, (Flag.CANCEL_REQUESTED,)),
        (How.UNSERIALISABLE, Outcome.FAILED, (Flag.CANCEL_REQUESTED,)),
        (How.RAISED, Outcome.CANCELLED, ()),
        (How.STOPPED, Outcome.CANCELLED, ()),
        (How.LOST, Outcome.CANCELLED, ()),
    ],
)
def test_law_3_what_the_stop_caused_is_not_the_bodys_result(
    how: How, outcome: Outcome, flags: tuple[Flag, ...]
) -> None:
    story = running()
    story.cancel("r")
    story.end(C0, how=how)
    assert (story.ending(C0).outcome, story.ending(C0).flags) == (outcome, flags)


def test_law_3_a_late_result_revives_nobody() -> None:
    story = running(deadline_s=1.0)
    story.at(10.0)
    before = story.ending(C0)
    story.say(i.BodyEnded(call=C0, how=How.RETURNED, value=42))
    assert story.ending(C0) is before
    assert before.value is None
    assert [late.how for late in story.told(e.LateEnd)] == [How.RETURNED]
    story.over()


@pytest.mark.parametrize(
    ("terms", "steps", "effect"),
    [
        ({}, (), "unknown"),
        ({"effect": EffectClass.READ_ONLY}, (), "none"),
        ({"commits": True}, (), "none"),
        ({"commits": True}, (i.CommitEntered(call=C0),), "unknown"),
        ({"commits": True}, (i.CommitEntered(call=C0), i.CommitLeft(call=C0, done=True)), "done"),
        (
            {"commits": True},
            (i.CommitEntered(call=C0), i.CommitLeft(call=C0, done=False)),
            "unknown",
        ),
    ],
)
@pytest.mark.parametrize("stop", [True, False])
def test_law_5_the_effect_says_what_is_known(
    terms: dict[str, object], steps: tuple[i.Input, ...], effect: str, stop: bool
) -> None:
    story = running(**terms)
    story.say(*steps)
    if stop:
        story.cancel("r")
    story.say(i.BodyEnded(call=C0, how=How.RAISED))
    assert story.ending(C0).effect == effect


def test_law_14_a_failure_stops_the_siblings_with_their_children() -> None:
    story = Story()
    story.say(*begin(asked(), asked(), asked(x("k")), asked(x("k")), stop_on_failure=True))
    story.start(C0, C1, C2)
    for call, child in ((C0, "c"), (C1, "d")):
        story.say(i.OpenRun(run=child, parent_call=call))
        story.say(i.SubmitBatch(run=child, calls=(asked(), asked(x("k")))))
    story.end(C0, how=How.RAISED)
    assert story.phases() == [Phase.SETTLED, Phase.STOPPING, Phase.STOPPING, Phase.SETTLED]
    assert story.ending("r/0.3").reason is Reason.SIBLING_FAILED
    assert story.state.runs["c"].cancelled is Reason.PARENT_CANCELLED
    assert story.state.runs["d"].cancelled is Reason.PARENT_CANCELLED


@pytest.mark.parametrize("kill", [False, True])
def test_law_14_a_call_that_had_to_be_abandoned_failed_too(kill: bool) -> None:
    story = Story()
    terms = contract(deadline_s=1.0)
    story.say(*begin(asked(terms=terms), asked(), stop_on_failure=True))
    story.start(C0, C1)
    story.at(1.0)
    assert story.call(C1).phase is Phase.RUNNING
    if kill:
        story.cancel(C0, Mode.KILL)
    else:
        story.at(4.0)
    assert story.ending(C0).outcome is Outcome.TIMED_OUT
    assert story.call(C1).stop_reason is Reason.SIBLING_FAILED


def test_law_14_a_run_that_is_killed_settles_each_sibling_once() -> None:
    story = Story()
    terms = contract(deadline_s=1.0)
    story.say(*begin(asked(terms=terms), asked(), asked(x("k")), stop_on_failure=True))
    story.start(C0, C1)
    story.at(1.0)
    story.cancel("r", Mode.KILL)
    story.at(5.0)
    story.over()


def test_law_17_children_are_stopped_in_the_same_instant_at_every_depth() -> None:
    story = Story()
    story.say(*begin(asked()))
    above = C0
    for run in ("c", "d", "f"):
        story.start(above)
        story.say(i.OpenRun(run=run, parent_call=above, detached=run == "f"))
        story.say(i.SubmitBatch(run=run, calls=(asked(),)))
        above = f"{run}/0.0"
    story.start(above)
    story.cancel("r")
    assert [story.call(c).phase for c in (C0, "c/0.0", "d/0.0", "f/0.0")] == [
        Phase.STOPPING,
        Phase.STOPPING,
        Phase.STOPPING,
        Phase.RUNNING,
    ]
    story.say(i.OpenRun(run="late", parent_call=C0))
    story.say(i.SubmitBatch(run="late", calls=(asked(),)))
    assert story.ending("late/0.0").reason is Reason.PARENT_CANCELLED


def test_law_2_a_cancel_reaches_its_target_only_and_unknown_ids_are_said() -> None:
    story = Story()
    story.say(*begin(asked(), asked()), i.OpenRun(run="q"))
    story.say(i.SubmitBatch(run="q", calls=(asked(),)))
    story.start(C0, C1, "q/0.0")
    story.cancel(C0)
    assert story.phases() == [Phase.STOPPING, Phase.RUNNING]
    story.cancel("r/0")
    assert story.call("q/0.0").phase is Phase.RUNNING
    for unknown in ("x", "r/7", "r/0.9", "r/x", ""):
        with pytest.raises(NotFound, match=repr(unknown)):
            story.cancel(unknown)


def test_law_2_a_cancel_of_a_batch_leaves_the_next_one_alone() -> None:
    story = Story()
    story.say(*begin(asked(), asked()), i.SubmitBatch(run="r", calls=(asked(),)))
    story.start(C0, "r/1.0")
    story.cancel("r/0")
    assert story.phases() == [Phase.STOPPING, Phase.SETTLED, Phase.RUNNING]


@pytest.mark.parametrize("target", ["r", "r/0"])
def test_law_2_the_first_reason_stays(target: str) -> None:
    story = Story()
    story.say(*begin(asked()))
    story.start(C0)
    for reason, mode in ((Reason.SUPERSEDED, Mode.DRAIN), (Reason.SHUTDOWN, Mode.INTERRUPT)):
        story.say(i.Cancel(target=target, reason=reason, mode=mode))
    story.end(C0, how=How.STOPPED)
    assert story.ending(C0).reason is Reason.SUPERSEDED


def test_bad_requests_are_refused_and_change_nothing() -> None:
    story = Story()
    story.say(*begin(asked()))
    before = list(story.state.calls)
    bad: list[tuple[i.Input, str]] = [
        (i.Cancel(target="r", reason=Reason.OK), "ok is no reason for a cancel"),
        (i.SubmitBatch(run="r", calls=(asked(),), parallel=0), "parallel=0 lets nothing run"),
        (i.OpenRun(run="r"), "open already"),
        (i.OpenRun(run="a/b"), "must not be empty nor contain"),
        (i.OpenRun(run="c", parent_call="nobody"), "the parent of run c"),
        (i.SubmitBatch(run="nobody", calls=()), "no run 'nobody'"),
    ]
    for said, words in bad:
        with pytest.raises(CallerError, match=words):
            story.say(said)
    assert list(story.state.calls) == before
    assert list(story.state.runs) == ["r"]
    story.say(i.CloseRun(run="r"))
    with pytest.raises(CallerError, match="takes no more batches"):
        story.say(i.SubmitBatch(run="r", calls=()))


def test_law_13_one_answer_to_one_question() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)))
    ask = ApprovalTerms(digest="d", expires_s=60.0)
    story.say(i.Prepared(call=C0, arguments={"n": 1}, claims=(), approval=ask))
    yes = i.Answered(call=C0, digest="d", verdict=Verdict.APPROVE)
    assert story.say(i.Answered(call=C0, digest="other", verdict=Verdict.APPROVE)) == []
    assert told(story.say(yes), C0)[0] == "ApprovalAnswered"
    assert story.say(yes, i.Answered(call=C0, digest="d", verdict=Verdict.REJECT)) == []
    story.start(C0)


def test_law_13_silence_is_never_consent() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)))
    ask = ApprovalTerms(digest="d", expires_s=60.0)
    story.say(i.Prepared(call=C0, arguments={}, claims=(), approval=ask))
    story.at(60.0)
    ending = story.ending(C0)
    assert (ending.outcome, ending.reason) == (Outcome.REJECTED, Reason.APPROVAL_EXPIRED)
    assert story.say(i.Answered(call=C0, digest="d", verdict=Verdict.APPROVE)) == []


def test_a_hook_fails_closed_after_its_limit() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)), i.HookBegan(call=C0, hook="policy", limit_s=15.0))
    story.at(15.0)
    assert story.ending(C0).reason is Reason.HOOK_FAILED
    assert story.ending(C0).error == "policy did not answer in time"
    assert story.say(i.Prepared(call=C0, arguments={}, claims=())) == []


def test_a_granted_call_that_no_worker_takes_is_given_back() -> None:
    story = Story()
    story.say(*begin(asked(terms=contract(PLAIN, start_s=3.0))))
    story.at(3.0)
    assert story.ending(C0).reason is Reason.START_FAILED
    assert story.say(i.Claimed(call=C0)) == []


def test_law_2_a_fenced_run_starts_nothing_and_loses_what_runs() -> None:
    story = Story()
    story.say(*begin(asked(terms=CALM), asked(x("k"), terms=CALM)))
    story.start(C0)
    story.say(i.RunFenced(run="r"), i.RunFenced(run="unknown"))
    story.end(C0, how=How.STOPPED)
    assert {story.ending(c).outcome for c in (C0, C1)} == {Outcome.LOST}
    story.say(i.SubmitBatch(run="r", calls=(asked(),)))
    assert story.ending("r/1.0").outcome is Outcome.LOST
