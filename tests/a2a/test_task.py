"""The projection: from events made by hand to the task, without any server."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from a2a.types.a2a_pb2 import Message, Part, Role
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.a2a import notes, words
from endstop.a2a.states import ARTIFACT_SHOWN, EXECUTE, STATUS_SHOWN
from endstop.a2a.task import TaskView
from endstop.core import events as e
from endstop.core.terms import (
    Contract,
    Effect,
    Mode,
    Outcome,
    Reason,
    StoppedBy,
)
from tests.a2a.serving import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    REJECTED,
    SUBMITTED,
    WORKING,
)

RUN = "r1"
CALL = "r1/0.0"


def opened() -> e.RunOpened:
    labels = {"context": "c1", "owner": "", "agent": "a"}
    return e.RunOpened(run=RUN, labels=labels)


def message(text: str, name: str = "m1") -> e.Noted:
    body = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": text}]}
    return e.Noted(run=RUN, kind=notes.MESSAGE, body=body)


def accepted(call: str = CALL, tool: str = EXECUTE, name: str = "m1") -> e.CallAccepted:
    return e.CallAccepted(
        run=RUN,
        call=call,
        batch=call.rpartition(".")[0],
        index=0,
        model_id="",
        tool=tool,
        arguments={"message": name},
        contract=Contract(),
    )


def status(state: str, text: str = "", call: str = CALL) -> e.Noted:
    body: dict[str, object] = {"state": f"TASK_STATE_{state}"}
    if text:
        body["message"] = {"messageId": text, "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return e.Noted(run=RUN, kind=notes.STATUS, body=body, call=call)


def artifact(name: str, text: str, *, append: bool = False) -> e.Noted:
    body: dict[str, object] = {"artifact": {"artifactId": name, "parts": [{"text": text}]}}
    if append:
        body["append"] = True
    return e.Noted(run=RUN, kind=notes.ARTIFACT, body=body, call=CALL)


def settled(
    outcome: Outcome = Outcome.SUCCEEDED, call: str = CALL, **more: object
) -> e.CallSettled:
    terms: dict[str, object] = {"reason": Reason.OK, "effect": Effect.DONE, **more}
    return e.CallSettled(run=RUN, call=call, outcome=outcome, **terms)  # type: ignore[arg-type]


def ended(outcome: Outcome, reason: Reason = Reason.OK) -> e.RunEnded:
    return e.RunEnded(run=RUN, outcome=outcome, reason=reason)


def view_of(events: Sequence[e.Event]) -> TaskView:
    view = TaskView(RUN)
    for at_s, event in enumerate(events, 1):
        view.apply(event, float(at_s))
    return view


BEGUN = (opened(), message("hello"), accepted(), e.CallStarted(run=RUN, call=CALL))


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (BEGUN[:1], SUBMITTED),
        (BEGUN[:3], SUBMITTED),
        (BEGUN, WORKING),
        ((*BEGUN, status("SUBMITTED")), WORKING),
        ((*BEGUN, status("INPUT_REQUIRED")), INPUT_REQUIRED),
        ((*BEGUN, status("AUTH_REQUIRED"), settled()), AUTH_REQUIRED),
        ((*BEGUN, status("INPUT_REQUIRED"), message("more", "m2")), WORKING),
        # Only the end of the run is the end of the task.
        ((*BEGUN, status("COMPLETED")), WORKING),
        ((*BEGUN, status("COMPLETED"), e.RunClosing(run=RUN), settled()), WORKING),
        ((*BEGUN, settled(), ended(Outcome.SUCCEEDED)), COMPLETED),
        ((*BEGUN, settled(), ended(Outcome.FAILED)), FAILED),
        ((*BEGUN, settled(), ended(Outcome.REJECTED)), REJECTED),
        ((*BEGUN, ended(Outcome.CANCELLED, Reason.CANCELLED_BY_USER)), CANCELED),
        ((*BEGUN, ended(Outcome.CANCELLED, Reason.SHUTDOWN)), FAILED),
        ((*BEGUN, ended(Outcome.LOST, Reason.DRIVER_LOST)), FAILED),
        # A declared end that a cancel has overtaken.
        (
            (
                *BEGUN,
                e.RunCancelled(run=RUN, reason=Reason.CANCELLED_BY_USER, mode=Mode.INTERRUPT),
                status("COMPLETED", "done"),
                settled(),
                ended(Outcome.CANCELLED, Reason.CANCELLED_BY_USER),
            ),
            CANCELED,
        ),
    ],
)
def test_the_status_is_a_reading_of_the_run(events: Sequence[e.Event], state: int) -> None:
    assert view_of(events).state == state


def test_the_end_absorbs_whatever_follows() -> None:
    """Law 3 one-ending: nothing after it changes what the task is, in any order."""
    over = (*BEGUN, artifact("a", "1"), settled(), ended(Outcome.SUCCEEDED))
    view = view_of(over)
    before = view.task()
    later: list[e.Event] = [
        status("WORKING", "again"),
        status("FAILED", "late"),
        artifact("b", "late"),
        message("late", "m9"),
        e.LateEnd(run=RUN, call=CALL, how="returned"),  # type: ignore[arg-type]
        e.RunClosing(run=RUN),
        ended(Outcome.CANCELLED, Reason.CANCELLED_BY_USER),
    ]
    random.Random(3).shuffle(later)
    for event in later:
        assert view.apply(event, 99.0) == 0
        now = view.task()
        now.metadata["endstop/seq"] = before.metadata["endstop/seq"]
        assert now == before


def test_the_words_of_a_cancel_say_what_is_known() -> None:
    other = "r1/1.0"
    view = view_of(
        (
            *BEGUN,
            settled(),
            accepted(other, name="m2"),
            e.CallStarted(run=RUN, call=other),
            e.RunCancelled(run=RUN, reason=Reason.CANCELLED_BY_USER, mode=Mode.INTERRUPT),
            settled(
                Outcome.CANCELLED,
                other,
                reason=Reason.CANCELLED_BY_USER,
                effect=Effect.UNKNOWN,
                stopped_by=StoppedBy.ABANDONED,
                alive=True,
            ),
            ended(Outcome.CANCELLED, Reason.CANCELLED_BY_USER),
        )
    )
    task = view.task()
    said = task.status.message.parts[0].text
    assert "may still be running: the agent" in said
    assert "Had already happened: the agent" in said
    assert "is unknown: the agent" in said
    rows = MessageToDict(task.metadata)["endstop/calls"]
    assert [(row["outcome"], row["effect"]) for row in rows] == [
        ("succeeded", "done"),
        ("cancelled", "unknown"),
    ]


def test_an_unbegun_task_says_that_nothing_had_begun() -> None:
    view = view_of(
        (
            *BEGUN[:3],
            settled(Outcome.CANCELLED, reason=Reason.CANCELLED_BY_USER, effect=Effect.NONE),
            ended(Outcome.CANCELLED, Reason.CANCELLED_BY_USER),
        )
    )
    assert view.task().status.message.parts[0].text == "Canceled. Nothing of it had begun."


def test_a_question_of_ours_is_shown_and_goes_away() -> None:
    asked = e.QuestionAsked(run=RUN, call=CALL, question=f"{CALL}?1", text="which?")
    view = view_of((*BEGUN, asked))
    assert view.state == INPUT_REQUIRED
    assert "which?" in view.task().status.message.parts[0].text
    data = MessageToDict(view.task().status.message.parts[1].data)
    assert data["questions"][0]["question"] == asked.question  # type: ignore[call-overload, index]
    told = e.QuestionAnswered(run=RUN, call=CALL, question=asked.question, text="that")
    assert view.apply(told, 9.0) & STATUS_SHOWN
    assert view.state == WORKING
    assert not view.task().status.HasField("message")


def test_a_status_that_is_replaced_leaves_its_message_in_the_history() -> None:
    view = view_of((*BEGUN, status("WORKING", "one"), status("WORKING", "two")))
    assert [one.parts[0].text for one in view.task().history] == ["hello", "one"]
    assert view.task().status.message.parts[0].text == "two"
    assert [one.parts[0].text for one in view.task(1).history] == ["one"]
    assert not view.task(0).history


def test_an_artifact_is_appended_to_or_replaced() -> None:
    view = view_of(
        (*BEGUN, artifact("a", "1"), artifact("b", "x"), artifact("a", "2", append=True))
    )
    assert view.apply(artifact("b", "y"), 9.0) & ARTIFACT_SHOWN
    found = {one.artifact_id: [p.text for p in one.parts] for one in view.task().artifacts}
    assert found == {"a": ["1", "2"], "b": ["y"]}
    assert view.artifact_update().artifact.parts[0].text == "y"
    assert not view.task(artifacts=False).artifacts


def test_the_cost_of_an_event_does_not_grow_with_the_task() -> None:
    def cost_s(number: int) -> float:
        view = view_of(BEGUN)
        events = [artifact(f"a{index}", "x" * 50) for index in range(number)]
        best = float("inf")
        for _ in range(3):
            at = time.process_time()
            for event in events:
                view.apply(event, 1.0)
            best = min(best, time.process_time() - at)
        return best / number

    assert cost_s(8000) < 3 * cost_s(1000)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    part = Part(filename=draw(TEXTS), media_type=draw(TEXTS))
    match draw(st.sampled_from(["text", "raw", "url", "data"])):
        case "text":
            part.text = draw(TEXTS)
        case "raw":
            part.raw = draw(st.binary(max_size=30))
        case "url":
            part.url = draw(TEXTS)
        case _:
            ParseDict(draw(VALUES), part.data)
    if draw(st.booleans()):
        part.metadata.update({"k": draw(TEXTS)})
    return part


@given(st.lists(parts(), min_size=1, max_size=4), TEXTS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_kept_is_the_protocols_own_json(found: list[Part], text: str, more: bool) -> None:
    """What another program reads in a journal is what the protocol's own converters write."""
    made = Message(message_id=text, role=Role.ROLE_USER, parts=found)
    if more:
        made.extensions.append(text)
        made.reference_task_ids.append(text)
        made.context_id = text
        made.metadata.update({"key": text})
    kept = notes.message_json(made)
    assert notes.read_message(kept) == made
    assert ParseDict(kept, Message()) == made


def test_long_tables_and_lists_of_names_are_bounded() -> None:
    lines = []
    for number in range(500):
        line = words.Line(f"r1/0.{number}", "tool")
        line.started = True
        line.settled = settled(call=line.call)
        lines.append(line)
    assert len(words.table(lines)) == words.ROWS_MAX
    said = words.ending(ended(Outcome.CANCELLED, Reason.CANCELLED_BY_USER), lines, EXECUTE)
    assert said is not None
    assert "and 490 more" in said
