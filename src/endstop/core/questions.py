"""Decides what questions from inside a running body mean. Part of `decide.py`, pure as it is.

A question belongs to one call and is answered once. From the instant in which its call is asked to
stop it is void: who is answered then could only go on with what must not happen any more (law 13
one-approval, and law 7 every-wait-listens).
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.state import State
from endstop.core.terms import Phase


def find(state: State, call_id: str, question: str) -> e.QuestionAsked | None:
    """An open question of a call."""
    return state.questions.get(call_id, {}).get(question)


def began(state: State, said: i.QuestionBegan, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.RUNNING:
        return []
    if find(state, call.id, said.question) is not None:
        return []
    return [
        e.QuestionAsked(
            run=call.run.id,
            call=call.id,
            question=said.question,
            text=said.text,
            choices=said.choices,
            secret=said.secret,
        )
    ]


def told(state: State, said: i.QuestionTold, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    asked = find(state, said.call, said.question)
    if call is None or call.phase is not Phase.RUNNING or asked is None:
        return []
    # What is secret goes to the body and nowhere else.
    text = None if asked.secret else said.text
    return [
        e.QuestionAnswered(
            run=call.run.id, call=call.id, question=said.question, text=text, by=said.by
        )
    ]


def left(state: State, said: i.QuestionLeft, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase not in (Phase.RUNNING, Phase.STOPPING):
        return []
    if find(state, call.id, said.question) is None:
        return []
    return [e.QuestionWithdrawn(run=call.run.id, call=call.id, question=said.question)]
