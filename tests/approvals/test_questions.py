"""Questions from inside running bodies, in every kind of worker, on both drivers."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from endstop import CallerError, Context, NotFound, tool
from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from tests.approvals.bodies import BODIES
from tests.driving import OK, House, Street, call, endings, until
from tests.stories import Story, asked, begin

STOPPED = ("cancelled", "cancelled_by_user", "unknown")
PLACES = tuple(BODIES)


@pytest.fixture(params=PLACES)
def where(request: pytest.FixtureRequest) -> str:
    """The kind of worker that the body runs in."""
    return str(request.param)


def open_with(street: Street, kind: str, where: str, **options: Any) -> House:
    return street.open(kind, [BODIES[where]], **options)


def test_a_body_asks_and_is_answered(street: Street, kind: str, where: str) -> None:
    house = open_with(street, kind, where)
    going = house.run("r").begin([call("asks", text="Which?", choices=["a", "b"])])
    house.watch.wait(e.QuestionAsked)
    (question,) = house.rt.questions()
    assert (question.call_id, question.tool, question.text) == ("r/0.0", "asks", "Which?")
    assert (question.choices, question.secret) == (("a", "b"), False)
    assert "a human's answer: Which?" in [view.waits_for for view in house.rt.calls()]
    with pytest.raises(CallerError, match="'a', 'b'"):
        question.answer("c")
    assert question.answer("b", by="anna")
    assert not question.answer("a"), "an answer was taken twice"
    (result,) = going.result()
    assert endings([result]) == [OK]
    assert result.value == "b"
    answered = house.watch.wait(e.QuestionAnswered)
    assert (answered.text, answered.by, answered.question) == ("b", "anna", question.question_id)
    assert not house.rt.answer("r/0.0", "late")
    assert house.rt.questions() == []


def test_BH03_a_cancel_withdraws_the_question(street: Street, kind: str, where: str) -> None:
    house = open_with(street, kind, where)
    run = house.run("r")
    going = run.begin([call("asks", text="Which?")])
    house.watch.wait(e.QuestionAsked)
    (question,) = house.rt.questions()
    began = time.monotonic()
    run.cancel()
    assert house.rt.questions() == []
    assert not question.answer("late"), "a late answer was taken"
    (result,) = going.result(3.0)
    assert time.monotonic() - began < 2.0
    assert endings([result]) == [STOPPED]
    assert not result.alive, "the wait did not listen to the stop"
    assert not house.watch.told(e.QuestionAnswered)


def test_the_deadline_stands_still(street: Street, kind: str, where: str) -> None:
    house = open_with(street, kind, where)
    run = house.run("r")
    going = run.begin([call("asks", text="Which?")], timeout_s=0.4, deadline_s=30.0)
    house.watch.wait(e.QuestionAsked)
    with pytest.raises(TimeoutError):
        going.future.result(0.8)
    assert house.rt.answer("r/0.0", "at last")
    (result,) = going.result()
    assert result.value == "at last"
    assert result.ran_s < 0.4


def test_a_secret_answer_is_recorded_nowhere(street: Street, kind: str, where: str) -> None:
    house = open_with(street, kind, where)
    going = house.run("r").begin([call("asks", text="Password:", secret=True)])
    house.watch.wait(e.QuestionAsked)
    (question,) = house.rt.questions()
    assert question.secret
    assert house.rt.answer(question.question_id, "hunter2", by="anna")
    (result,) = going.result()
    # The body of this test returns what it was told; no other record has it.
    assert result.value == "hunter2"
    house.watch.wait(e.BatchClosed)
    rest = [x for x in house.watch.events if not isinstance(x, e.CallSettled)]
    assert "hunter2" not in repr(rest)
    recorded = [x.event for x in house.rt.engine.journal.read("r")]
    assert "hunter2" not in repr([x for x in recorded if not isinstance(x, e.CallSettled)])


def test_a_body_may_give_up(street: Street, kind: str, where: str) -> None:
    house = open_with(street, kind, where)
    (result,) = house.execute(call("asks", text="Anybody?", limit_s=0.05))
    assert result.value == "nobody"
    house.watch.wait(e.QuestionWithdrawn)
    assert not house.watch.told(e.QuestionAnswered)


def test_an_answer_and_a_cancel_at_once(street: Street, kind: str) -> None:
    house = open_with(street, kind, "thread")
    for number in range(40):
        run = house.run(f"r{number}")
        going = run.begin([call("asks", text="Which?")])
        house.watch.wait(e.QuestionAsked, f"r{number}/0.0")
        meet = threading.Barrier(2)
        took: list[bool] = []

        def answer(name: str = f"r{number}/0.0", meet: Any = meet, took: Any = took) -> None:
            meet.wait(5)
            took.append(house.rt.answer(name, "yes"))

        thread = threading.Thread(target=answer)
        thread.start()
        meet.wait(5)
        run.cancel()
        thread.join(5)
        (result,) = going.result(5.0)
        if not took[0]:
            assert endings([result]) == [STOPPED]
    assert house.rt.questions() == []


def test_several_questions_of_one_body(street: Street, kind: str) -> None:
    @tool(resources=())
    def both(ctx: Context) -> list[str]:
        found: dict[str, str] = {}

        def ask(text: str) -> None:
            found[text] = ctx.ask(text)

        threads = [threading.Thread(target=ask, args=(text,)) for text in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found["one"], found["two"]]

    house = street.open(kind, [both])
    going = house.run("r").begin([call("both")])
    house.watch.wait(e.QuestionAsked, count=2)
    with pytest.raises(CallerError, match="asks several things"):
        house.rt.answer("r/0.0", "?")
    for question in reversed(house.rt.questions()):
        assert question.answer(f"to {question.text}")
    (result,) = going.result()
    assert result.value == ["to one", "to two"]


def test_what_cannot_be_asked_or_answered(street: Street, kind: str) -> None:
    @tool(resources=())
    def asks_oddly(ctx: Context) -> list[str]:
        problems = []
        odd: tuple[Any, ...] = ("abc", [1], [""], ["x" * 201], ["x"] * 101)
        for choices in odd:
            try:
                ctx.ask("?", choices=choices)
            except CallerError as problem:
                problems.append(str(problem))
        return problems

    house = street.open(kind, [asks_oddly])
    (result,) = house.execute(call("asks_oddly"))
    assert len(result.value) == 5
    with pytest.raises(NotFound):
        house.rt.answer("r/9.9", "x")
    with pytest.raises(NotFound):
        house.rt.answer("r/9.9?abc", "x")
    not_text: Any = 5
    with pytest.raises(CallerError, match="is a text"):
        house.rt.answer("r/9.9", not_text)


def test_a_body_whose_call_is_over_cannot_ask(street: Street, kind: str) -> None:
    refused: list[str] = []
    door = street.door()

    @tool(resources=(), grace=0.05)
    def late(ctx: Context) -> None:
        door.wait()
        try:
            ctx.ask("still there?")
        except Exception as error:
            refused.append(type(error).__name__)

    house = street.open(kind, [late])
    run = house.run("r")
    going = run.begin([call("late")])
    house.watch.wait(e.CallStarted)
    run.cancel()
    (result,) = going.result(3.0)
    assert result.alive
    door.open()
    until(lambda: refused)
    assert refused == ["Stopped"]
    assert not house.watch.told(e.QuestionAsked)


# -- the core alone


def running() -> Story:
    story = Story()
    story.say(*begin(asked()))
    story.say(i.Claimed(call="r/0.0"))
    return story


def test_an_answer_of_an_earlier_attempt_fits_no_other() -> None:
    story = running()
    story.say(i.QuestionBegan(call="r/0.0", question="q1", text="?"))
    assert step(story.state, i.QuestionTold(call="r/0.0", question="q2", text="x"), 0.0) == []
    assert "r/0.0" in story.state.questions


def test_the_end_of_a_wait_is_no_end_of_a_question() -> None:
    story = running()
    story.say(i.QuestionBegan(call="r/0.0", question="q1", text="?"))
    assert step(story.state, i.HumanEnded(call="r/0.0"), 0.0) == []
    assert story.call("r/0.0").humans == 1
