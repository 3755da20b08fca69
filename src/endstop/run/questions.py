"""Questions from inside running bodies, listed and answered from outside.

The core takes the first answer to an open question; only then is it handed to the body. A secret
answer goes that way and no other: no input, event, journal or log holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from endstop.core import inputs as i
from endstop.core.events import QuestionAsked
from endstop.core.terms import Phase
from endstop.core.text import safe_text
from endstop.errors import CallerError, NotFound
from endstop.run.answering import Answerer, own_question

if TYPE_CHECKING:
    from endstop.run.engine import Engine

ANSWER_CHARS = 100_000
"""Longest answer that is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a running body asks a human; `secret` answers are for passwords and the like."""

    question_id: str
    call_id: str
    tool: str
    text: str
    choices: tuple[str, ...] = ()
    secret: bool = False
    _runtime: Questions = field(repr=False, compare=False)

    def answer(self, text: str, *, by: str = "") -> bool:
        """Answer it; see `Runtime.answer`."""
        return self._runtime.answer(self.question_id, text, by=by)


class Questions:
    """The part of a runtime that lists and answers the questions of running bodies."""

    engine: Engine
    _loop_of_handlers: Callable[[], asyncio.AbstractEventLoop]
    _answerers: list[Answerer] | None = None

    def answer_with(self, handler: Callable[[Question], Any]) -> Callable[[], None]:
        """Put what bodies ask from now on to `handler`; returns the function that ends that.

        It is a coroutine function, or a plain one, which gets a thread. It returns the answer as a
        text, or None to leave the question open, and so does one that raises or hangs. An async one
        is cancelled when its question is over.
        """
        answerer = Answerer(self, handler, self._loop_of_handlers)
        self._answerers = [*(self._answerers or ()), answerer]
        self.engine.audience.add(answerer)

        def end() -> None:
            self.engine.audience.remove(answerer)
            answerer.close()

        return end

    def questions(self) -> list[Question]:
        """What running bodies wait to be told, oldest first by call.

        A question whose call was asked to stop is void and not listed (law 7 every-wait-listens).
        """
        state = self.engine.state
        with self.engine.lock:
            return [
                self._question(asked, state.calls[call].tool)
                for call, mine in state.questions.items()
                if state.calls[call].phase is Phase.RUNNING
                for asked in mine.values()
            ]

    def answer(self, target: str, text: str, *, by: str = "") -> bool:
        """Answer a question, by its own id or by that of its call if that asks only one.

        False if it is over: answered by somebody else, withdrawn by the body, or void because its
        call must stop. `by` is recorded, the text too unless the question is secret. Raises
        CallerError where the text is none of the choices, and where the call asks several things;
        NotFound for a call that is not here.
        """
        if not isinstance(text, str):
            raise CallerError(f"an answer is a text, not {type(text).__name__}")
        asked = self._find(target)
        if asked is None:
            return False
        if asked.choices and text not in asked.choices:
            known = ", ".join(map(repr, asked.choices))
            raise CallerError(f"{asked.question} can be answered with one of: {known}")
        if len(text) > ANSWER_CHARS:
            raise CallerError(f"an answer has at most {ANSWER_CHARS} characters")
        said = i.QuestionTold(
            call=asked.call,
            question=asked.question,
            text=None if asked.secret else safe_text(text, ANSWER_CHARS),
            by=by,
        )
        if asked.question == own_question.get():
            for one in self._answerers or ():
                one.leave_alone(asked.question)
        plan = self.engine.plans.get(asked.call)
        if plan is None or not self.engine.tell(said):
            return False
        worker = self.engine.workers[plan.contract.isolation]
        worker.answer(asked.call, asked.question, safe_text(text, ANSWER_CHARS))
        return True

    # -- inside

    def _question(self, asked: QuestionAsked, tool: str) -> Question:
        return Question(
            question_id=asked.question,
            call_id=asked.call,
            tool=tool,
            text=asked.text,
            choices=asked.choices,
            secret=asked.secret,
            _runtime=self,
        )

    def _find(self, target: str) -> QuestionAsked | None:
        """The open question that an answer is meant for."""
        call_id, by_question, _ = target.partition("?")
        with self.engine.lock:
            call = self.engine.state.calls.get(call_id)
            mine = dict(self.engine.state.questions.get(call_id, {}))
        if call is None:
            raise NotFound(f"no call {call_id!r} is here")
        if by_question:
            return mine.get(target)
        if len(mine) > 1:
            known = ", ".join(mine)
            raise CallerError(f"{call_id} asks several things; answer one of: {known}")
        return next(iter(mine.values()), None)
