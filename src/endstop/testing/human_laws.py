"""What must be true of the questions in a story. Public test tools; only reads."""

from __future__ import annotations

from collections.abc import Iterable

from endstop.core import events as e


def check_questions(events: Iterable[e.Event]) -> list[str]:
    """Every law that a story breaks in what its bodies asked humans."""
    wrong: list[str] = []
    asked: dict[tuple[str, str], e.QuestionAsked] = {}
    stopping: set[str] = set()
    for event in events:
        match event:
            case e.StopRequested():
                stopping.add(event.call)
            case e.CallSettled() | e.CallRetried():
                asked = {key: one for key, one in asked.items() if key[0] != event.call}
            case e.QuestionAsked():
                if (event.call, event.question) in asked:
                    wrong.append(f"law 13 one-approval: {event.question} was asked twice")
                asked[event.call, event.question] = event
            case e.QuestionAnswered() | e.QuestionWithdrawn():
                question = asked.pop((event.call, event.question), None)
                if question is None:
                    wrong.append(f"law 13 one-approval: {event.question} got a stray answer")
                elif isinstance(event, e.QuestionAnswered):
                    wrong += _answered(event, question, event.call in stopping)
            case _:
                pass
    return wrong


def _answered(event: e.QuestionAnswered, asked: e.QuestionAsked, stopping: bool) -> list[str]:
    wrong = []
    if stopping:
        wrong.append(f"law 7 every-wait-listens: {event.question} was answered after the stop")
    if asked.secret and event.text is not None:
        wrong.append(f"law 13 one-approval: the secret answer to {event.question} was recorded")
    return wrong
