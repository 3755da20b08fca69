"""Money that notes tell of, and a closing that counts only where nothing was said since."""

from __future__ import annotations

from decimal import Decimal

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.restore import restore
from endstop.core.state import State
from endstop.core.terms import Limits, Money, Outcome
from endstop.testing.laws import check_state
from tests.stories import Story, asked, begin


def usd(amount: str) -> Money:
    return Money(amount=Decimal(amount), currency="USD")


def paid(amount: str, run: str = "r") -> i.Note:
    return i.Note(run=run, kind="reply", body={}, spent=usd(amount))


def test_paid_once_what_a_note_tells_of_leaves_less_for_calls() -> None:
    """Law 20: a model's reply and a tool's call draw on one budget."""
    story = Story()
    story.say(i.OpenRun(run="r", limits=Limits(money=(usd("1.00"),))), paid("0.70"))
    story.say(i.SubmitBatch(run="r", calls=(asked(cost=usd("0.40")),)))
    (ending,) = [one for one in story.events if isinstance(one, e.CallSettled)]
    assert "0.30 USD of 1.00 are left" in (ending.error or "")
    assert check_state(story.state) == []


def test_paid_once_a_note_of_a_child_counts_in_its_parents_run() -> None:
    story = Story()
    story.say(*begin(asked()))
    story.start("r/0.0")
    story.say(i.OpenRun(run="c", parent_call="r/0.0"), paid("0.25", "c"), paid("0.25", "c"))
    assert story.state.runs["r"].budget.taken("USD") == Decimal("0.50")
    assert check_state(story.state) == []


def test_survives_restart_what_was_paid_is_still_paid() -> None:
    """Law 16: a run that is taken up has what is left, and not what it had."""
    story = Story()
    story.say(i.OpenRun(run="r"), paid("0.70"), paid("0.05"))
    state = State({})
    run = restore(state, [(0.0, one) for one in story.events], 0.0, 0.0)
    assert run.budget.taken("USD") == Decimal("0.75")
    assert run.paid == (usd("0.75"),)


def test_record_first_a_run_is_closed_only_where_all_that_was_said_is_seen() -> None:
    """Law 15: what is recorded in the moment of the closing is not lost under it."""
    story = Story()
    story.say(i.OpenRun(run="r"))
    seen = len(story.events)
    story.state.runs["r"].seq = seen
    story.say(i.Note(run="r", kind="user", body={}))
    story.state.runs["r"].seq = len(story.events)
    closing = i.CloseRun(run="r", outcome=Outcome.SUCCEEDED, at_seq=seen)
    assert story.say(closing) == []
    assert not story.state.runs["r"].closing
    now = i.CloseRun(run="r", outcome=Outcome.SUCCEEDED, at_seq=len(story.events))
    assert [type(one) for one in story.say(now)] == [e.RunClosing, e.RunEnded]
