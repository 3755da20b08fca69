"""Secrecy: words that may be the secret answer to a question are recorded by no way round.

A question can be over by the time its answer comes: withdrawn by its body, answered by somebody
else, gone with its server. The message is then none to the task, for nobody knows that it is not a
password. Pure, but for what one task remembers here while it is driven; nothing in clear.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

from a2a.types.a2a_pb2 import Message
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from endstop.a2a.answers import Approval, Told, data_in, is_bare
from endstop.a2a.notes import words_of
from endstop.a2a.task import ASKED, TOLD, TaskView
from endstop.core import events as e

if TYPE_CHECKING:
    from endstop.a2a.livetask import LiveTask, Request
    from endstop.run.engine import Engine

Approvals = dict[str, e.ApprovalAsked]
Questions = dict[str, e.QuestionAsked]

REMEMBERED = 16
"""How many secret answers to one task are known again."""
LATE = "A secret was given that is not asked for any more; nothing of it is kept"


class Secrecy:
    """What is remembered of the secret answers to one task."""

    __slots__ = ("_given", "_key", "_warned")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._given: deque[bytes] = deque(maxlen=REMEMBERED)
        self._warned: frozenset[str] = frozenset()

    def given(self, text: str) -> None:
        """These words are a secret that was given in time: they are known again, and not kept."""
        self._given.append(self._digest(text))

    def _is_given(self, text: str) -> bool:
        digest = self._digest(text)
        return any(hmac.compare_digest(digest, one) for one in self._given)

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=self._key).digest()

    def check(self, view: TaskView, message: Message, *, confirmed: bool = False) -> bool:
        """Refuse what may be an answer to a secret question that is not open any more.

        What is named so is refused for good; what is not, once: whoever sends it again was told.
        With `confirmed` that was so elsewhere. Returns whether whoever sent it was told. Raises
        InvalidParamsError and UnsupportedOperationError, without words of the message.
        """
        data, text = data_in(message), words_of(message.parts).strip()
        named = str((data or {}).get("question") or "")
        if named in view.secrets and named not in view.questions:
            raise InvalidParamsError(f"{named} is not asked any more; nothing of this is kept")
        if self._is_given(text) and not asks_secretly(view):
            raise UnsupportedOperationError("The secret was given before; it is not kept")
        if _is_named(view, data, named):
            return False
        if view.approvals and asks_secretly(view) and not is_bare(data, text):
            raise InvalidParamsError(
                "a secret is asked for as well: name in a data part what is answered"
            )
        doubtful = _doubtful(view)
        if not doubtful or (is_bare(data, text) and view.approvals and not view.questions):
            return False
        if confirmed or doubtful <= self._warned:
            return True
        self._warned |= doubtful
        what = "answer by name" if view.questions or view.approvals else "send it again"
        raise UnsupportedOperationError(
            "A secret was asked for that is not asked for any more. This message may be the answer "
            f"to that, so nothing of it is kept; if it is not, {what}"
        )


def asks_secretly(view: TaskView) -> bool:
    """Whether a secret is asked for just now."""
    return any(asked.secret for asked in view.questions.values())


def _is_named(view: TaskView, data: dict[str, Any] | None, named: str) -> bool:
    """Whether a message says what it answers, and that is open."""
    if data is None:
        return False
    return named in view.questions or str(data.get("call")) in view.approvals


def _doubtful(view: TaskView) -> frozenset[str]:
    """The secret questions that are over, and whose answer may still be on its way."""
    return frozenset(
        question
        for question, known in view.secrets.items()
        if question not in view.questions
        and (known == ASKED or (known == TOLD and _goes_on(view, question)))
    )


def _goes_on(view: TaskView, question: str) -> bool:
    """Whether the body that asked works on, and shows nothing new to be answered."""
    line = view.calls.get(question.partition("?")[0])
    return line is not None and line.settled is None and not view.at_rest


def secrecy_of(task: LiveTask) -> Secrecy:
    """What is remembered of a task; made when it is first asked for."""
    if task.secrecy is None:
        task.secrecy = Secrecy()
    return task.secrecy


def check_late(view: TaskView, task: LiveTask, request: Request) -> bool:
    """The same for a message on its way to a task: see `Secrecy.check`."""
    if request.secret and not asks_secretly(view):
        raise UnsupportedOperationError(LATE)
    if not view.secrets:
        return False
    message = request.params.message
    return secrecy_of(task).check(view, message, confirmed=request.confirmed)


def asked_of(view: TaskView, task: LiveTask, request: Request) -> tuple[Approvals, Questions]:
    """What a task asks for, at the instant in which `check_late` has looked at the answer."""
    check_late(view, task, request)
    return dict(view.approvals), dict(view.questions)


def keep_in_mind(task: LiveTask, answer: Approval | Told, questions: Questions) -> None:
    """Know the words of an answer again, where they are secret."""
    if isinstance(answer, Told) and questions[answer.question].secret:
        secrecy_of(task).given(answer.text)


def check_early(engine: Engine, task_id: str) -> None:
    """Refuse a message to a task that asks for a secret, and does not show it yet.

    Others may have read the question in the record before its own server told of it.
    """
    asked = engine.state.questions
    if not asked:
        return
    with engine.lock:
        open_ = [one for mine in asked.values() for one in mine.values() if one.run == task_id]
    if any(one.secret for one in open_):
        raise UnsupportedOperationError(f"Task {task_id} asks for a secret now: look at it again")
