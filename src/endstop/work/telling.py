"""What a body in another process may tell the core, as data.

Only these inputs cross, and always in the name of the call that the process was given: a body
cannot speak for another call (law 2 right-target), nor claim or end anything.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from endstop.core.inputs import (
    CommitEntered,
    CommitLeft,
    HumanBegan,
    HumanEnded,
    Input,
    Note,
    ParkBegan,
    ParkEnded,
    Progressed,
    QuestionBegan,
    QuestionLeft,
    Spent,
)
from endstop.core.noting import make_note
from endstop.core.payload import safe_text
from endstop.core.terms import Money
from endstop.errors import CallerError

_MESSAGE_CHARS = 4000
_CHOICES = 100


def encode(told: Input) -> dict[str, Any]:
    """An input of a body as a frame. Raises TypeError for one that a body may not tell."""
    match told:
        case Progressed(message=message, fraction=fraction):
            return {"t": "tell", "what": "progressed", "message": message, "fraction": fraction}
        case HumanBegan(why=why):
            return {"t": "tell", "what": "human_began", "why": why}
        case HumanEnded():
            return {"t": "tell", "what": "human_ended"}
        case QuestionBegan(question=question, text=text, choices=choices, secret=secret):
            frame = {"t": "tell", "what": "question_began", "question": question, "text": text}
            return {**frame, "choices": list(choices), "secret": secret}
        case QuestionLeft(question=question):
            return {"t": "tell", "what": "question_left", "question": question}
        case Note(kind=kind, body=body):
            return {"t": "tell", "what": "note", "kind": kind, "body": body}
        case CommitEntered():
            return {"t": "tell", "what": "commit_entered"}
        case CommitLeft(done=done):
            return {"t": "tell", "what": "commit_left", "done": done}
        case Spent(money=money):
            amount = str(money.amount)
            return {"t": "tell", "what": "spent", "amount": amount, "currency": money.currency}
        case ParkBegan():
            return {"t": "tell", "what": "park_began"}
        case ParkEnded():
            return {"t": "tell", "what": "park_ended"}
        case _:
            raise TypeError(f"a body may not tell {type(told).__name__}")


def decode(frame: dict[str, Any], call: str) -> Input | None:
    """The input that a frame stands for, in the name of `call`; None for one that is malformed."""
    match frame:
        case {"what": "progressed", "message": str(message), "fraction": fraction}:
            share = float(fraction) if isinstance(fraction, int | float) else None
            return Progressed(call=call, message=safe_text(message, _MESSAGE_CHARS), fraction=share)
        case {"what": "human_began", "why": str(why)}:
            return HumanBegan(call=call, why=safe_text(why, _MESSAGE_CHARS))
        case {"what": "human_ended"}:
            return HumanEnded(call=call)
        case {
            "what": "question_began",
            "question": str(question),
            "text": str(text),
            "choices": [*choices],
            "secret": bool(secret),
        }:
            return QuestionBegan(
                call=call,
                question=safe_text(question, _MESSAGE_CHARS),
                text=safe_text(text, _MESSAGE_CHARS),
                choices=tuple(safe_text(str(one), _MESSAGE_CHARS) for one in choices[:_CHOICES]),
                secret=secret,
            )
        case {"what": "question_left", "question": str(question)}:
            return QuestionLeft(call=call, question=safe_text(question, _MESSAGE_CHARS))
        case {"what": "note", "kind": str(kind), "body": dict(body)}:
            try:
                return make_note(call.partition("/")[0], kind, body, call)
            except CallerError:
                return None
        case {"what": "commit_entered"}:
            return CommitEntered(call=call)
        case {"what": "commit_left", "done": bool(done)}:
            return CommitLeft(call=call, done=done)
        case {"what": "spent", "amount": str(amount), "currency": str(currency)}:
            try:
                value = Decimal(amount)
            except InvalidOperation:
                return None
            return Spent(call=call, money=Money(amount=value, currency=currency))
        case {"what": "park_began"}:
            return ParkBegan(call=call)
        case {"what": "park_ended"}:
            return ParkEnded(call=call)
        case _:
            return None
