"""The laws about a call that is made again see what they should (law 10 no-blind-retry)."""

from __future__ import annotations

from dataclasses import replace

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.terms import Effect, EffectClass, How, Isolation, Outcome, Reason
from endstop.testing.laws import check_story
from tests.stories import PLAIN, Story, asked, begin, contract

THREAD = contract(PLAIN, isolation=Isolation.THREAD)
LAW = "law 10 no-blind-retry"


def told_twice(effect: EffectClass = EffectClass.EFFECTFUL) -> list[e.Event]:
    """A call that failed half way, and then twice the same in one batch."""
    story = Story()
    terms = contract(effect=effect)
    story.say(*begin(asked(terms=terms)))
    story.start("r/0.0")
    story.end("r/0.0", how=How.RAISED)
    story.say(i.SubmitBatch(run="r", calls=(asked(terms=terms), asked(terms=terms))))
    for call in ("r/1.0", "r/1.1"):
        story.start(call)
        story.end(call)
    return story.events


def tampered(events: list[e.Event], call: str, **fields: object) -> list[str]:
    """What is wrong with a story in which the grant of this call says something else."""
    found = [
        replace(one, **fields) if isinstance(one, e.CallGranted) and one.call == call else one
        for one in events
    ]
    return [one for one in check_story(found, complete=False) if one.startswith(LAW)]


def test_both_of_two_identical_calls_are_told_of_the_earlier_one() -> None:
    events = told_twice()
    grants = {one.call: one for one in events if isinstance(one, e.CallGranted)}
    assert grants["r/0.0"].earlier is None
    for call in ("r/1.0", "r/1.1"):
        earlier = grants[call].earlier
        assert earlier is not None
        assert (earlier.call, earlier.effect) == ("r/0.0", Effect.UNKNOWN)
        wrong = tampered(events, call, earlier=None)
        assert wrong == [f"{LAW}: {call} was told of None, what is known is r/0.0"]


def test_nothing_is_made_up() -> None:
    events = told_twice()
    earlier = next(one for one in events if isinstance(one, e.CallGranted) and one.earlier).earlier
    wrong = tampered(events, "r/0.0", earlier=earlier)
    assert wrong == [f"{LAW}: r/0.0 was told of r/0.0, what is known is None"]
    harmless = told_twice(EffectClass.IDEMPOTENT)
    wrong = tampered(harmless, "r/1.0", earlier=earlier)
    assert wrong == [f"{LAW}: r/1.0 was told of r/0.0, what is known is None"]


def test_a_grant_beside_a_living_attempt_is_seen() -> None:
    story = Story()
    story.say(*begin(asked(terms=THREAD)))
    story.start("r/0.0")
    story.say(i.Cancel(target="r/0.0"))
    story.at(10.0)
    assert story.call("r/0.0").alive
    story.say(i.SubmitBatch(run="r", calls=(asked(terms=THREAD),)))
    refused = story.events[-2]
    assert isinstance(refused, e.CallSettled)
    assert (refused.outcome, refused.reason) == (Outcome.REJECTED, Reason.EARLIER_ATTEMPT_ALIVE)
    late = e.LateEnd(run="r", call="r/0.0", how=How.STOPPED)
    freed = [*story.events[:-2], late, *story.events[-2:]]
    assert [one for one in check_story(freed, complete=False) if one.startswith(LAW)] == [
        f"{LAW}: r/1.0 was refused, and no earlier one runs"
    ]
    story.end("r/0.0", how=How.STOPPED)
    story.say(i.SubmitBatch(run="r", calls=(asked(terms=THREAD),)))
    hasty = [one for one in story.events if not isinstance(one, e.LateEnd)]
    assert f"{LAW}: r/2.0 was granted while r/0.0 runs" in check_story(hasty, complete=False)
