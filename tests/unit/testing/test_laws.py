"""The law checkers complain: a broken story or state never passes, and the law is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.state import Stage, State
from endstop.core.terms import Effect, How, Isolation, Mode, Outcome, Phase, Reason, StoppedBy
from endstop.testing.laws import at_rest, check_state, check_story, conflict
from tests.stories import PLAIN, Story, asked, begin, contract, eur, s, x

C0, C1, C2 = "r/0.0", "r/0.1", "r/0.2"
THREAD = contract(PLAIN, isolation=Isolation.THREAD)


def good_story() -> list[e.Event]:
    """One call succeeds, one waits for it and is abandoned after a cancel, one never starts."""
    story = Story({Isolation.THREAD: 1})
    story.say(*begin(asked(x("k"), cost=eur("1")), asked(x("k")), asked(x("k"))))
    story.start(C0)
    story.say(i.Spent(call=C0, money=eur("2")))
    story.end(C0)
    story.start(C1)
    story.cancel("r")
    story.at(30.0)
    story.end(C1, how=How.STOPPED)
    story.over()
    return story.events


Events = list[e.Event]


def place(events: Events, kind: type, call: str = "r") -> int:
    """Where the first event of a kind is told of a call or run."""
    for number, event in enumerate(events):
        if isinstance(event, kind) and getattr(event, "call", event.run) == call:
            return number
    raise LookupError(kind)


def change(kind: type, call: str, **fields: Any) -> Callable[[Events], None]:
    def tamper(events: Events) -> None:
        at = place(events, kind, call)
        events[at] = replace(events[at], **fields)

    return tamper


def twice(kind: type, call: str) -> Callable[[Events], None]:
    return lambda events: events.append(events[place(events, kind, call)])


def drop(kind: type, call: str) -> Callable[[Events], None]:
    return lambda events: events.pop(place(events, kind, call)) and None


def move(kind: type, call: str, before: type, other: str) -> Callable[[Events], None]:
    def tamper(events: Events) -> None:
        event = events.pop(place(events, kind, call))
        events.insert(place(events, before, other), event)

    return tamper


@pytest.mark.parametrize(
    ("law", "tamper"),
    [
        ("law 1 one-door", twice(e.CallStarted, C0)),
        ("law 1 one-door", drop(e.CallGranted, C0)),
        ("law 1 one-door", move(e.RunCancelled, "r", e.CallStarted, C1)),
        ("law 1 one-door", move(e.RunCancelled, "r", e.CallGranted, C1)),
        ("law 2 right-target", twice(e.RunOpened, "r")),
        ("law 2 right-target", twice(e.StopRequested, C1)),
        ("law 2 right-target", change(e.StopRequested, C1, reason=Reason.DEADLINE)),
        ("law 3 one-ending", twice(e.CallSettled, C0)),
        ("law 3 one-ending", twice(e.RunEnded, "r")),
        ("law 3 one-ending", twice(e.RunCancelled, "r")),
        ("law 3 one-ending", drop(e.RunEnded, "r")),
        ("law 3 one-ending", twice(e.BatchClosed, "r")),
        ("law 3 one-ending", change(e.RunEnded, "r", outcome=Outcome.SUCCEEDED)),
        ("law 4 one-answer", drop(e.CallSettled, C2)),
        ("law 4 one-answer", drop(e.CallAccepted, C2)),
        ("law 4 one-answer", drop(e.BatchClosed, "r")),
        ("law 4 one-answer", twice(e.CallAccepted, C0)),
        ("law 4 one-answer", move(e.CallGranted, C1, e.CallGranted, C0)),
        ("law 5 honest-effect", change(e.CallSettled, C0, effect=Effect.NONE)),
        ("law 5 honest-effect", change(e.CallSettled, C0, outcome=Outcome.REJECTED)),
        ("law 5 honest-effect", change(e.CallSettled, C1, effect=Effect.DONE)),
        ("law 5 honest-effect", change(e.CallSettled, C2, effect=Effect.UNKNOWN)),
        ("law 5 honest-effect", change(e.CallSettled, C2, outcome=Outcome.TIMED_OUT)),
        ("law 6 bounded-stop", drop(e.AskSent, C1)),
        ("law 6 bounded-stop", change(e.CallSettled, C1, stopped_by=StoppedBy.KILLED, alive=False)),
        ("law 9 on-the-books", twice(e.LateEnd, C1)),
        ("law 9 on-the-books", change(e.CallSettled, C1, alive=False)),
        ("law 20 paid-once", change(e.CallSettled, C0, spent=())),
        ("law 20 paid-once", change(e.CallSpent, C0, late=True)),
    ],
)
def test_a_story_that_breaks_a_law_is_not_passed(
    law: str, tamper: Callable[[Events], None]
) -> None:
    events = list(good_story())
    assert check_story(events) == []
    tamper(events)
    assert any(words.startswith(law) for words in check_story(events)), check_story(events)


def test_the_beginning_of_a_story_is_enough_if_it_need_not_be_complete() -> None:
    events = good_story()
    for length in range(len(events) + 1):
        assert check_story(events[:length], complete=False) == []
    assert check_story(events[: len(events) // 2]) != []


def busy() -> State:
    """One runs, one waits for its resource, one for its slot, one for an earlier call."""
    story = Story({Isolation.THREAD: 1})
    story.say(
        *begin(
            asked(x("k"), cost=eur("1"), terms=THREAD),
            asked(x("k")),
            asked(terms=THREAD),
            asked(x("j"), ready=False),
            asked(x("j")),
            parallel=3,
            deadline_s=50.0,
        )
    )
    story.start(C0)
    return story.state


def set_on(call: str, **fields: Any) -> Callable[[State], None]:
    def tamper(state: State) -> None:
        for name, value in fields.items():
            setattr(state.calls[call], name, value)

    return tamper


def _slots(state: State) -> None:
    state.slots[Isolation.THREAD].taken -= 1


def _lanes(state: State) -> None:
    state.runs["r"].batches[0].lanes -= 1


def _unsettled(state: State) -> None:
    state.runs["r"].batches[0].unsettled -= 1


def _reserved(state: State) -> None:
    state.runs["r"].budget.release(eur("1"))


def _line(state: State) -> None:
    state.slots[Isolation.THREAD].line.clear()


def _released(state: State) -> None:
    state.resources.remove(C0)


def _cancelled(state: State) -> None:
    state.runs["r"].cancelled, state.runs["r"].mode = Reason.SHUTDOWN, Mode.INTERRUPT


def _counted(state: State) -> None:
    state.runs["r"].budget.uncount("t")


def _paused(state: State) -> None:
    state.runs["r"].batches[0].meter.pause(0.0)


@pytest.mark.parametrize(
    ("law", "tamper"),
    [
        ("law 12 no-leaked-lock", _slots),
        ("law 12 no-leaked-lock", _lanes),
        ("law 4 one-answer", _unsettled),
        ("law 20 paid-once", _reserved),
        ("law 20 paid-once", _counted),
        ("law 12 no-leaked-lock", _line),
        ("law 12 no-leaked-lock", _released),
        ("law 1 one-door", _cancelled),
        ("law 2 right-target", _cancelled),
        ("law 8 machine-time", _paused),
        ("law 1 one-door", set_on(C0, slot=False)),
        ("law 3 one-ending", set_on(C0, phase=Phase.SETTLED)),
        ("law 6 bounded-stop", set_on(C0, phase=Phase.STOPPING, due=None)),
        ("law 8 machine-time", set_on(C0, due=None)),
        ("law 8 machine-time", set_on(C0, due=99.0)),
        ("law 9 on-the-books", set_on(C0, alive=False)),
        ("law 12 no-leaked-lock", set_on(C1, stage=Stage.LANE)),
        ("law 12 no-leaked-lock", set_on(C0, parked=True)),
        ("law 13 one-approval", set_on("r/0.3", approval="d")),
        ("law 1 one-door", set_on(C1, started=True)),
        ("law 4 one-answer", set_on("r/0.4", stage=Stage.RESTING)),
    ],
)
def test_a_state_that_breaks_a_law_is_not_passed(law: str, tamper: Callable[[State], None]) -> None:
    state = busy()
    assert check_state(state) == []
    assert not at_rest(state)
    tamper(state)
    assert any(words.startswith(law) for words in check_state(state)), check_state(state)


@pytest.mark.parametrize(
    ("one", "other", "excludes"),
    [
        (x("k"), x("k"), True),
        (x("k"), s("k"), True),
        (s("k"), s("k"), False),
        (x("k"), x("j"), False),
        (x("file:/a"), s("file:/a/b"), True),
        (x("file:/a/b"), s("file:/a"), True),
        (x("file:/a"), x("file:/ab"), False),
        (x("file:/"), x("file:/a"), True),
        (x("file:/a"), x("net:/a"), False),
        (x("account:4"), x("account:42"), False),
    ],
)
def test_claims_exclude_each_other(one: Any, other: Any, excludes: bool) -> None:
    assert conflict(one, other) is excludes
    assert conflict(other, one) is excludes
