"""The handler that answers what running bodies ask: a coroutine on the loop, or a plain function.

It watches as an observer does, so that runtimes without one pay nothing. What it says is an answer
like any other: the first counts, and one that comes too late is refused.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from endstop.core import events as e
from endstop.errors import CallerError, NotFound
from endstop.work.thread import DaemonThreads

if TYPE_CHECKING:
    from endstop.run.questions import Question, Questions

log = logging.getLogger("endstop.run")

ANSWERER_THREADS = 8
"""How many plain handlers may think at the same time; the others stand in line."""


own_question: ContextVar[str] = ContextVar("endstop_answering", default="")
"""The question whose handler runs here: its own answer must not break it off."""


class Answerer:
    """Puts questions to the handler, and breaks it off when nobody waits for its answer."""

    def __init__(
        self,
        runtime: Questions,
        handler: Callable[[Question], Any],
        loop: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        if not callable(handler):
            raise CallerError(f"answer_with takes a function, {handler!r} is not callable")
        self._runtime = runtime
        self._handler = handler
        self._loop = loop
        self._is_async = inspect.iscoroutinefunction(handler)
        self._threads = DaemonThreads(ANSWERER_THREADS, "endstop-answer")
        self._lock = threading.Lock()
        self._thinking: dict[str, Future[None]] = {}

    def __call__(self, event: e.Event) -> None:
        """See an event; as an observer."""
        match event:
            case e.QuestionAsked():
                if self._is_async:
                    self._begin(event, self._handler)
                else:
                    self._threads.queue(lambda: self._on_thread(event))
            case e.QuestionAnswered() | e.QuestionWithdrawn():
                self._break_off(lambda question: question == event.question)
            case e.StopRequested() | e.CallSettled() | e.CallRetried() if self._thinking:
                self._break_off(lambda question: question.startswith(f"{event.call}?"))
            case _:
                pass

    def close(self) -> None:
        """Ask no more; a handler that hangs is not waited for (law 6 bounded-stop)."""
        self._threads.close()
        self._break_off(lambda question: True)

    def leave_alone(self, question: str) -> None:
        """Let the handler of a question go on, whatever becomes of the question."""
        with self._lock:
            self._thinking.pop(question, None)

    def _break_off(self, which: Callable[[str], bool]) -> None:
        with self._lock:
            found = [self._thinking.pop(name) for name in list(self._thinking) if which(name)]
        for future in found:
            future.cancel()

    def _find(self, asked: e.QuestionAsked) -> Question | None:
        mine = (one for one in self._runtime.questions() if one.question_id == asked.question)
        return next(mine, None)

    def _on_thread(self, asked: e.QuestionAsked) -> None:
        question = self._find(asked)
        if question is None:
            return
        try:
            answer = self._handler(question)
        except BaseException as error:
            self._failed(asked, error)
            return
        if inspect.isawaitable(answer):
            self._begin(asked, lambda _: answer)
        else:
            self._take(question, answer)

    def _begin(self, asked: e.QuestionAsked, handler: Callable[[Question], Awaitable[Any]]) -> None:
        async def think() -> None:
            question = self._find(asked)
            if question is None:
                return
            own_question.set(asked.question)
            try:
                self._take(question, await handler(question))
            except (Exception, SystemExit) as error:
                # SystemExit too: it would take the whole event loop down (law 19).
                self._failed(asked, error)
            finally:
                self.leave_alone(asked.question)

        thinking = think()
        try:
            with self._lock:
                # The lock is what keeps it from being over before it is listed.
                future = asyncio.run_coroutine_threadsafe(thinking, self._loop())
                self._thinking[asked.question] = future
        except RuntimeError:
            thinking.close()
            return
        if self._find(asked) is None:
            self._break_off(lambda question: question == asked.question)

    def _take(self, question: Question, answer: Any) -> None:
        if answer is None:
            return
        try:
            with suppress(NotFound):
                question.answer(answer, by="handler")
        except CallerError as problem:
            log.error("the answer to %s: %s; it stays open", question.question_id, problem)

    def _failed(self, asked: e.QuestionAsked, error: BaseException) -> None:
        words = "the answering handler failed; question %s stays open"
        log.error(words, asked.question, exc_info=error)
