"""Notes, and runs that are closed with the ending that they are to have (law 3 one-ending)."""

from __future__ import annotations

import pytest

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.noting import KIND_CHARS, make_note
from endstop.core.recovery import Unfinished
from endstop.core.restore import restore
from endstop.core.state import State
from endstop.core.terms import How, Mode, Outcome, Reason
from endstop.errors import CallerError
from tests.stories import Story, asked, begin


def of_run(**fields: str) -> i.Note:
    return i.Note(run="r", kind="k", body={"n": 1}, **fields)


def ending(story: Story) -> tuple[Outcome, Reason]:
    (ended,) = [one for one in story.events if isinstance(one, e.RunEnded)]
    return ended.outcome, ended.reason


def test_a_note_is_kept_until_the_end_of_the_run() -> None:
    story = Story()
    story.say(*begin(asked()))
    noted = e.Noted(run="r", kind="k", body={"n": 1})
    assert story.say(of_run()) == [noted]
    story.say(i.CloseRun(run="r"))
    assert story.say(of_run()) == [noted], "closing is not the end"
    story.start("r/0.0")
    story.end("r/0.0")
    assert isinstance(story.events[-1], e.RunEnded)
    assert story.say(of_run()) == []


def test_a_note_of_a_call_is_kept_until_its_ending() -> None:
    story = Story()
    story.say(*begin(asked(), asked()))
    story.start("r/0.0")
    assert story.say(of_run(call="r/0.0"))
    story.say(i.Cancel(target="r/0.0"))
    assert story.say(of_run(call="r/0.0")), "it is being stopped, and has no ending yet"
    story.end("r/0.0", how=How.STOPPED)
    assert story.say(of_run(call="r/0.0")) == []
    assert story.say(of_run(call="r/0.1")), "its sibling goes on"


@pytest.mark.parametrize("call", ["r/0.7", "o/0.0", "nothing"])
def test_a_note_in_the_name_of_another_call_is_refused(call: str) -> None:
    story = Story()
    story.say(*begin(asked()), i.OpenRun(run="o"), i.SubmitBatch(run="o", calls=(asked(),)))
    assert story.say(of_run(call=call)) == []
    assert story.say(i.Note(run="gone", kind="k", body={})) == []


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.REJECTED])
def test_a_declared_ending_is_the_ending(outcome: Outcome) -> None:
    story = Story()
    story.say(*begin(), i.CloseRun(run="r", outcome=outcome))
    reason = Reason.OK if outcome is Outcome.SUCCEEDED else Reason.DECLARED
    assert ending(story) == (outcome, reason)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.LOST])
def test_other_endings_cannot_be_declared(outcome: Outcome) -> None:
    story = Story()
    story.say(*begin())
    with pytest.raises(CallerError, match="it is one of failed, rejected, succeeded"):
        story.say(i.CloseRun(run="r", outcome=outcome))


def test_a_cancel_after_a_declared_ending_stops_and_does_not_decide() -> None:
    story = Story()
    story.say(*begin(asked()))
    story.start("r/0.0")
    story.say(i.CloseRun(run="r", outcome=Outcome.FAILED), i.Cancel(target="r"))
    assert story.say(of_run()), "the run has not ended"
    story.end("r/0.0", how=How.STOPPED)
    settled = story.call("r/0.0").settled
    assert settled is not None
    assert settled.outcome is Outcome.CANCELLED, "what runs is stopped all the same"
    assert ending(story) == (Outcome.FAILED, Reason.DECLARED)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_declared_ending_after_a_cancel_says_nothing(mode: Mode) -> None:
    story = Story()
    story.say(*begin(asked()))
    story.start("r/0.0")
    story.say(i.Cancel(target="r", mode=mode))
    assert story.say(i.CloseRun(run="r", outcome=Outcome.SUCCEEDED)) == [e.RunClosing(run="r")]
    assert story.say(i.CloseRun(run="r", outcome=Outcome.FAILED)) == []
    story.end("r/0.0")
    assert ending(story) == (Outcome.CANCELLED, Reason.CANCELLED_BY_USER)


def test_the_first_declared_ending_stands_also_after_a_plain_close() -> None:
    story = Story()
    story.say(*begin(asked()), i.CloseRun(run="r"))
    assert story.say(i.CloseRun(run="r")) == []
    assert story.say(i.CloseRun(run="r", outcome=Outcome.REJECTED))
    assert story.say(i.CloseRun(run="r", outcome=Outcome.FAILED)) == []
    story.start("r/0.0")
    story.end("r/0.0")
    assert ending(story)[0] is Outcome.REJECTED


def test_law_16_a_declared_ending_outlives_the_driver() -> None:
    story = Story()
    story.say(*begin(asked()))
    story.start("r/0.0")
    story.say(i.CloseRun(run="r", outcome=Outcome.FAILED), i.Cancel(target="r"))
    left = Unfinished("r")
    left.read(story.events)
    assert left.closing()[-1] == e.RunEnded(run="r", outcome=Outcome.FAILED, reason=Reason.DECLARED)


def test_law_16_a_declared_ending_is_restored() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)), i.CloseRun(run="r", outcome=Outcome.FAILED))
    state = State()
    run = restore(state, [(0.0, one) for one in story.events], 0.0, 0.0)
    assert (run.closing, run.declared) == (True, Outcome.FAILED)


def test_law_19_a_note_is_made_safe_once() -> None:
    body = {"text": "a\ud800b", "list": (1, 2)}
    note = make_note("r", "k", body)
    assert note.body == {"text": "a\ufffdb", "list": [1, 2]}
    assert note.body is not body


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("", {}, "the kind is text of 1 to 100 characters"),
        ("k" * (KIND_CHARS + 1), {}, "the kind is text"),
        (7, {}, "the kind is text"),
        ("k", [1], "the body is a JSON object"),
        ("k", {"a": object()}, r"note\.a: is of type object"),
    ],
)
def test_what_is_no_note_is_refused_in_words(
    kind: str, body: dict[str, object], words: str
) -> None:
    with pytest.raises(CallerError, match=words):
        make_note("r", kind, body)


def test_the_default_of_labels_cannot_be_filled() -> None:
    opened = e.RunOpened(run="r")
    assert opened.labels == {}
    with pytest.raises(TypeError, match="make a dictionary of your own"):
        opened.labels["owner"] = "everybody"
    assert e.RunOpened(run="o").labels == {}


def test_a_note_and_what_it_comes_with_are_one_piece() -> None:
    story = Story()
    story.say(i.OpenRun(run="r"))
    batch = i.SubmitBatch(run="r", calls=(asked(),))
    happened = story.say(i.Together(inputs=(of_run(), batch)))
    kinds = [type(one) for one in happened]
    assert kinds[:3] == [e.Noted, e.BatchOpened, e.CallAccepted]
    story.start("r/0.0")
    last = i.Together(inputs=(of_run(), i.CloseRun(run="r", outcome=Outcome.FAILED)))
    assert [type(one) for one in story.say(last)] == [e.Noted, e.RunClosing]
    story.end("r/0.0")
    assert ending(story)[0] is Outcome.FAILED


def test_what_comes_with_a_note_that_is_too_late_does_not_happen() -> None:
    """Law 3 one-ending: the message is not taken, so nobody works on it, and nothing is closed."""
    story = Story()
    story.say(*begin(asked(), asked()))
    story.start("r/0.0")
    story.end("r/0.0")
    late = of_run(call="r/0.0")
    more = i.SubmitBatch(run="r", calls=(asked(),))
    close = i.CloseRun(run="r", outcome=Outcome.FAILED)
    assert story.say(i.Together(inputs=(late, more, close))) == []
    assert story.say(of_run()), "the run goes on"


def test_what_was_decided_before_a_refusal_has_happened() -> None:
    """Law 15 record-first: it is applied, so it must be told, whatever becomes of the rest."""
    story = Story()
    story.say(*begin(asked()))
    story.say(i.CloseRun(run="r"))
    more = i.SubmitBatch(run="r", calls=(asked(),))
    with pytest.raises(CallerError):
        story.say(more)
    assert [type(one) for one in story.say(i.Together(inputs=(of_run(), more)))] == [e.Noted]


def test_of_two_last_words_on_the_end_the_first_counts() -> None:
    """They come with the end of a body, in one step, in which neither has happened yet."""
    story = Story()
    story.say(*begin(asked()))
    story.start("r/0.0")
    said = (
        of_run(call="r/0.0"),
        i.CloseRun(run="r", outcome=Outcome.SUCCEEDED),
        i.CloseRun(run="r", outcome=Outcome.FAILED),
    )
    story.say(i.BodyEnded(call="r/0.0", how=How.RETURNED, said=said))
    assert ending(story) == (Outcome.SUCCEEDED, Reason.OK)
