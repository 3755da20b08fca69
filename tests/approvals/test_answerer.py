"""A handler that answers what running bodies ask, on both drivers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from endstop import CallerError, Question
from endstop.core import events as e
from tests.approvals.bodies import BODIES
from tests.driving import OK, House, Street, call, endings, until


def open_with(street: Street, kind: str, handler: Any, where: str = "thread") -> House:
    house = street.open(kind, [BODIES[where]])
    house.rt.answer_with(handler)
    return house


@pytest.mark.parametrize("where", ["coroutine", "thread"])
@pytest.mark.parametrize("how", ["plain", "async"])
def test_a_handler_answers(street: Street, kind: str, how: str, where: str) -> None:
    async def slowly(question: Question) -> str:
        await asyncio.sleep(0)
        return f"to {question.text}"

    handler = slowly if how == "async" else (lambda question: f"to {question.text}")
    house = open_with(street, kind, handler, where)
    (result,) = house.execute(call("asks", text="Which?"))
    assert endings([result]) == [OK]
    assert result.value == "to Which?"
    assert house.watch.wait(e.QuestionAnswered).by == "handler"


@pytest.mark.parametrize("what", ["raises", "says nothing", "says nonsense", "none of the choices"])
def test_what_is_no_answer_leaves_it_open(
    street: Street, kind: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()
    answers = {"says nothing": None, "says nonsense": 5, "none of the choices": "c"}

    async def handler(question: Question) -> Any:
        over.set()
        if what == "raises":
            raise ValueError("no idea")
        return answers[what]

    house = open_with(street, kind, handler)
    going = house.run("r").begin([call("asks", text="Which?", choices=["a", "b"])])
    assert over.wait(5)
    if what != "says nothing":
        until(lambda: "stays open" in caplog.text)
    assert [one.call_id for one in house.rt.questions()] == ["r/0.0"]
    assert house.rt.answer("r/0.0", "a")
    assert [one.value for one in going.result()] == ["a"]


@pytest.mark.parametrize("end", ["cancel", "answered elsewhere"])
def test_a_handler_that_hangs_is_let_go(street: Street, kind: str, end: str) -> None:
    began, broken_off = threading.Event(), threading.Event()

    async def handler(question: Question) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            broken_off.set()
            raise

    house = open_with(street, kind, handler)
    run = house.run("r")
    going = run.begin([call("asks", text="Which?")])
    assert began.wait(5)
    if end == "cancel":
        run.cancel()
    else:
        assert house.rt.answer("r/0.0", "yes")
    going.result(5.0)
    assert broken_off.wait(5), "nobody waits for its answer any more"


def test_a_handler_may_answer_by_the_question_and_go_on(street: Street, kind: str) -> None:
    went_on = threading.Event()

    async def handler(question: Question) -> None:
        assert question.answer("yes", by="bot")
        await asyncio.sleep(0.01)
        went_on.set()

    house = open_with(street, kind, handler)
    assert endings(house.execute(call("asks", text="Which?"))) == [OK]
    assert went_on.wait(5), "its own answer broke the handler off"


def test_it_can_be_ended_and_must_be_callable(street: Street, kind: str) -> None:
    house = street.open(kind, [BODIES["thread"]])
    with pytest.raises(CallerError, match="answer_with takes a function"):
        house.rt.answer_with("yes")
    end = house.rt.answer_with(lambda question: "handled")
    end()
    going = house.run("r").begin([call("asks", text="Which?")])
    house.watch.wait(e.QuestionAsked)
    assert house.rt.answer("r/0.0", "by hand")
    assert [one.value for one in going.result()] == ["by hand"]
