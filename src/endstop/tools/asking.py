"""Tools: the questions that a running body asks a human, as the body sees them.

A question is open from the core's yes until it is answered, withdrawn or void; whoever waits for it
is woken by the answer and by a stop alike (law 7 every-wait-listens). Nothing here waits by itself:
`Context.ask` and `AsyncContext.ask` do, each in its own way.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from endstop.core.inputs import QuestionBegan, QuestionLeft
from endstop.core.text import safe_text
from endstop.errors import CallerError

if TYPE_CHECKING:
    from endstop.tools.context import BodyContext

TEXT_CHARS = 2_000
CHOICE_CHARS = 200
CHOICES_MAX = 100
LAST_WORD_S = 1.0
"""How long an answer that was taken may be on its way to a body that has just given up."""


def _token() -> str:
    """Not a count: an answer to an earlier attempt of a call must not fit a later one."""
    return secrets.token_hex(4)


naming: ContextVar[Callable[[], str]] = ContextVar("endstop_naming", default=_token)
"""Where names of questions come from; a simulation has its own."""

_lock = threading.RLock()
# By context, which is itself: bodies that ask are few, and no other one shall pay for them.
_open: dict[BodyContext, dict[str, Question]] = {}


class Question:
    """One open question. `wake` is called, from whatever thread, on an answer and on a stop."""

    __slots__ = ("_context", "answer", "id", "wake")

    def __init__(self, context: BodyContext, wake: Callable[[], None]) -> None:
        self.id = f"{context.call_id}?{naming.get()()}"
        self.answer: str | None = None
        self.wake = wake
        self._context = context

    def withdraw(self) -> bool:
        """Ask no more; false if there is an answer, or one on its way."""
        told = QuestionLeft(call=self._context.call_id, question=self.id)
        return self.answer is None and self._context._tell(told)

    def close(self) -> None:
        """Forget the question; it is withdrawn if nobody answered."""
        with _lock:
            mine = _open.get(self._context, {})
            mine.pop(self.id, None)
            if not mine:
                _open.pop(self._context, None)
        if self.answer is None:
            self.withdraw()


def ask(
    context: BodyContext,
    text: str,
    choices: Sequence[str],
    secret: bool,
    wake: Callable[[], None],
) -> Question:
    """Open a question. Raises Stopped once the body must stop; CallerError for odd choices."""
    if isinstance(choices, str) or not all(isinstance(one, str) and one for one in choices):
        raise CallerError("ask(): choices is a list of texts")
    if len(choices) > CHOICES_MAX or any(len(one) > CHOICE_CHARS for one in choices):
        raise CallerError(
            f"ask(): at most {CHOICES_MAX} choices, of at most {CHOICE_CHARS} characters each"
        )
    question = Question(context, wake)
    # Before it is told: the answer may come at once.
    with _lock:
        _open.setdefault(context, {})[question.id] = question
    began = QuestionBegan(
        call=context.call_id,
        question=question.id,
        text=safe_text(str(text), TEXT_CHARS),
        choices=tuple(safe_text(one) for one in choices),
        secret=secret,
    )
    # The core is asked even when the flag is up: only its answer counts (law 1 one-door).
    if not context._tell(began):
        question.close()
        raise context._stopped()
    return question


def answered(context: BodyContext, question_id: str, text: str) -> None:
    """Give a body the answer that was taken. For workers; from any thread."""
    with _lock:
        question = _open.get(context, {}).get(question_id)
        if question is None or question.answer is not None:
            return
        question.answer = text
    question.wake()


def wake_all(context: BodyContext) -> None:
    """The body shall stop: whoever waits for an answer looks up."""
    with _lock:
        waiting = tuple(_open.get(context, {}).values())
    for question in waiting:
        question.wake()
