"""Recovery: a story cut off anywhere is honest again (law 16 survives-restart)."""

from __future__ import annotations

import pytest

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.recovery import Unfinished
from endstop.core.terms import ApprovalTerms, Effect, EffectClass, How, Outcome, Reason, Verdict
from endstop.testing.laws import check_story
from tests.stories import Story, asked, begin, contract, eur, x

CLASSES = list(EffectClass)
AGAIN = (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)


def long_story() -> list[e.Event]:
    """A run with every kind of effect, an approval, a commit point, a cancel and a late end."""
    story = Story()
    story.say(
        *begin(
            *(asked(terms=contract(effect=effect), cost=eur("1")) for effect in CLASSES),
            asked(x("k"), terms=contract(commits=True)),
            asked(x("k"), ready=False),
            asked(x("k")),
        )
    )
    story.start(*(f"r/0.{n}" for n in range(5)))
    ask = ApprovalTerms(digest="d")
    story.say(
        i.CommitEntered(call="r/0.4"),
        i.Prepared(call="r/0.5", arguments={}, claims=(x("k"),), approval=ask),
        i.Spent(call="r/0.2", money=eur("1")),
        i.CommitLeft(call="r/0.4", done=True),
        i.Answered(call="r/0.5", digest="d", verdict=Verdict.APPROVE),
    )
    story.end("r/0.0", "r/0.1", "r/0.4")
    story.start("r/0.5")
    story.say(i.Cancel(target="r"))
    story.at(20.0)
    story.end("r/0.2", "r/0.3", "r/0.5", how=How.STOPPED)
    story.over()
    return [event for event in story.events if not isinstance(event, e.TRANSIENT)]


STORY = long_story()


@pytest.mark.parametrize("length", range(1, len(STORY) + 1))
def test_law_16_a_story_cut_off_anywhere_is_closed_honestly(length: int) -> None:
    recorded = STORY[:length]
    unfinished = Unfinished("r")
    unfinished.read(recorded)
    assert unfinished.seq == length
    found = unfinished.closing()
    assert check_story([*recorded, *found], complete=False) == []
    started = {event.call for event in recorded if isinstance(event, e.CallStarted)}
    granted = {event.call for event in recorded if isinstance(event, e.CallGranted)}
    settled = {event.call for event in recorded if isinstance(event, e.CallSettled)}
    lost = {event.call for event in found if isinstance(event, e.CallSettled)}
    left = {event.call for event in recorded if isinstance(event, e.StopRequested)}
    again = {f"r/0.{n}" for n, kind in enumerate(CLASSES) if kind in AGAIN} - left
    cancelled = any(isinstance(event, e.RunCancelled) for event in recorded)
    may_go_on = set() if cancelled else again
    assert (started | granted) - settled - may_go_on <= lost, "what may have begun is settled"
    assert not lost & may_go_on, "what can run again is not lost"
    for event in found:
        if isinstance(event, e.CallSettled):
            if event.reason is Reason.CANCELLED_BY_USER:
                assert event.call not in started | granted, "what had begun is lost"
                assert event.effect is Effect.NONE
                continue
            assert (event.outcome, event.reason) == (Outcome.LOST, Reason.DRIVER_LOST)
            number = int(event.call.rpartition(".")[2])
            kind = CLASSES[number] if number < len(CLASSES) else EffectClass.EFFECTFUL
            if event.call not in started | granted:
                assert kind is EffectClass.IDEMPOTENT, "only these may begin before their record"
            done = any(
                isinstance(other, e.CommitEnded) and other.call == event.call for other in recorded
            )
            expected = Effect.NONE if kind is EffectClass.READ_ONLY else Effect.UNKNOWN
            assert event.effect is (Effect.DONE if done else expected)
    ended = any(isinstance(event, e.RunEnded) for event in recorded)
    assert unfinished.ended == ended
    assert (found == []) == ended
    if cancelled and not ended:
        assert isinstance(found[-1], e.RunEnded), "a cancelled run ends, whoever opens it"
    again = Unfinished("r")
    again.read([*recorded, *found])
    assert again.closing() == [], "once"


def test_law_15_what_had_not_begun_stays_open_and_is_no_failure() -> None:
    story = Story()
    story.say(*begin(asked(x("k")), asked(x("k")), asked(ready=False)))
    story.start("r/0.0")
    unfinished = Unfinished("r")
    unfinished.read(story.events)
    ends = [end.call for end in unfinished.closing() if isinstance(end, e.CallSettled)]
    assert ends == ["r/0.0"]
    assert set(unfinished.open) == {"r/0.0", "r/0.1", "r/0.2"}
    assert not unfinished.may_have_begun("r/0.1")


@pytest.mark.parametrize("effect", list(EffectClass))
def test_law_10_no_blind_retry_what_begins_before_its_record_may_have_begun(
    effect: EffectClass,
) -> None:
    story = Story()
    story.say(*begin(asked(x("k")), asked(x("k"), terms=contract(effect=effect))))
    unfinished = Unfinished("r")
    unfinished.read(story.events)
    ends = [end.call for end in unfinished.closing() if isinstance(end, e.CallSettled)]
    assert ends == ["r/0.0"], "nobody has granted the second one"
    begun = effect is EffectClass.IDEMPOTENT
    assert unfinished.may_have_begun("r/0.1") == begun
    (ending,) = unfinished.losing(["r/0.1"])
    assert ending.effect is (Effect.UNKNOWN if begun else Effect.NONE)


@pytest.mark.parametrize("target", ["r/0.0", "r/0"])
def test_law_10_what_was_being_stopped_is_not_resumed(target: str) -> None:
    """A cancelled result is not retryable, also where nobody was left to record it."""
    story = Story()
    story.say(*begin(asked(terms=contract(effect=EffectClass.READ_ONLY))))
    story.start("r/0.0")
    story.cancel(target)
    unfinished = Unfinished("r")
    unfinished.read(story.events)
    assert not unfinished.may_go_on("r/0.0")
    ending = unfinished.closing()[0]
    assert isinstance(ending, e.CallSettled)
    assert (ending.outcome, ending.effect) == (Outcome.LOST, Effect.NONE)
