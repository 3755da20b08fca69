"""Elsewhere: asking the server that drives a task, through the inbox of the journal they share.

Messages are asked for by a request of a kind of their own; a stop is the request that every driver
knows. What is asked is answered by whoever drives the task, as if it had come to it directly.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import SendMessageRequest
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict

from endstop.a2a.executor import NamedUser
from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask, Request
from endstop.a2a.secrecy import asks_secretly, check_late
from endstop.a2a.task import TaskView
from endstop.core.terms import Mode, Reason
from endstop.errors import JournalError
from endstop.run.errands import CANCEL
from endstop.run.runtime import Runtime
from endstop.store import inbox as mail
from endstop.store.protocol import Recorded
from endstop.work.steps import on_thread

log = logging.getLogger("endstop.a2a")

MESSAGE = "a2a.message"
"""The kind of request that brings a message to a task."""
LOOK_S = 0.1
"""How often an answer is looked for where no ring says that it is there."""
ANSWER_S = 5.0
"""How long a driver that lives may take to answer."""

_ERRORS: dict[str, type[A2AError]] = {
    one.__name__: one
    for one in (InvalidParamsError, UnsupportedOperationError, TaskNotFoundError, InternalError)
}

Take = Callable[[str, Request], Awaitable[None]]
"""Takes a message to a task that is driven here."""


class Gone(Exception):
    """Who drove the task does so no more: it is to be looked at again."""


class Silent(Gone):
    """Who drives the task does not answer; it may live all the same."""


class Elsewhere:
    """Both ends of what servers on one journal ask each other."""

    def __init__(self, runtime: Runtime, hall: Hall, take: Take) -> None:
        self._runtime = runtime
        self._hall = hall
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._rung: set[asyncio.Future[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()
        found = getattr(runtime.engine.journal, "inbox", None)
        self._inbox: mail.Inbox | None = found() if callable(found) else None
        if self._inbox is not None:
            runtime._errands.kinds[MESSAGE] = self._asked
            runtime._errands.on_ring = self._on_ring
            runtime._errands.begin()

    # -- asking

    async def send(self, task: LiveTask, request: Request) -> None:
        """Bring a message to whoever drives a task.

        Raises what the driver refused it with, and Gone where nobody drives it any more.
        """
        await self._catch_up(task)

        def look(view: TaskView) -> tuple[bool, bool]:
            return check_late(view, task, request), asks_secretly(view)

        confirmed, secret = self._hall.read(task, look)
        context = request.context
        said = MessageToDict(request.params)
        # What may be a password is in no file.
        body = {
            "request": None if secret else said,
            "confirmed": confirmed,
            "key": request.key,
            "user": context.user.user_name,
            "tenant": context.tenant,
        }
        words = json.dumps(said) if secret else None
        answer = await self._ask(task, MESSAGE, body, context.user.user_name, words)
        match answer.get("what"):
            case "taken":
                return
            case "refused" if answer.get("error") in _ERRORS:
                raise _ERRORS[answer["error"]](str(answer.get("why", "")))
            case "gone":
                raise Gone
            case _:
                log.warning("task %s: its server answered %r", task.id, answer)
                raise InternalError("The server that drives the task could not take the message")

    async def _catch_up(self, task: LiveTask) -> None:
        """Know all that whoever sends something may have seen, such as what is asked.

        What was shown anywhere is recorded (law 15 record-first). Raises Gone for a task that is
        driven here by now.
        """
        journal = self._runtime.engine.journal
        recorded: list[Recorded] = await on_thread(
            lambda: list(journal.read(task.id, task.view.seq))
        )
        self._hall.catch_up(task, recorded)
        if not task.remote:
            raise Gone

    async def cancel(self, task: LiveTask, by: str) -> None:
        """Have a task stopped by whoever drives it. Raises Gone where nobody does any more."""
        body = {"reason": str(Reason.CANCELLED_BY_USER), "mode": str(Mode.INTERRUPT)}
        answer = await self._ask(task, CANCEL, body, by)
        if answer.get("what") not in ("cancelled", "not_found"):
            log.warning("task %s: its server answered %r", task.id, answer)

    async def _ask(
        self,
        task: LiveTask,
        kind: str,
        body: dict[str, Any],
        by: str,
        secret: str | None = None,
    ) -> dict[str, Any]:
        inbox = self._inbox
        if inbox is None:
            raise InternalError("The task is driven by another server that cannot be asked")
        post = partial(inbox.post, task.id, task.id, kind, body, by, secret=secret)
        try:
            posted: int | None = await on_thread(post)
        except JournalError:
            if secret is None:
                raise
            raise InternalError(
                "The secret could not be brought to the server that drives the task; send it there"
            ) from None
        if posted is None:
            raise Gone
        until = monotonic() + ANSWER_S
        while monotonic() < until:
            # Before it is looked: a ring in between must not be missed.
            rung: asyncio.Future[None] = self._loop.create_future()
            self._rung.add(rung)
            try:
                answer: dict[str, Any] | None = await on_thread(inbox.answered, posted)
                if answer is not None:
                    return answer
                if task.view.over and await on_thread(inbox.withdraw, posted):
                    # It ended before its driver looked, and nobody drives it any more.
                    raise Gone
                await asyncio.wait({rung}, timeout=LOOK_S)
            finally:
                self._rung.discard(rung)
                rung.cancel()
        if await on_thread(inbox.withdraw, posted):
            raise Silent
        late: dict[str, Any] | None = await on_thread(inbox.answered, posted)
        return late or {}

    def _on_ring(self) -> None:
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for rung in self._rung:
            if not rung.done():
                rung.set_result(None)

    # -- being asked

    def _asked(self, request: mail.Request) -> None:
        """A message for a task that is driven here; on the errands' thread, answered later."""
        assert self._inbox is not None, "what is asked came by the inbox"
        letter = request.body.get("letter")
        words = self._inbox.bell().letter(str(letter)) if letter is not None else None
        self._loop.call_soon_threadsafe(self._serve, request, words)

    def _serve(self, request: mail.Request, words: str | None) -> None:
        serving = self._loop.create_task(self._answer(request, words))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _answer(self, request: mail.Request, words: str | None) -> None:
        assert self._inbox is not None, "what is asked came by the inbox"
        try:
            await self._take(request.run, _read(request, words))
            answer = {"what": "taken"}
        except Gone:
            answer = {"what": "gone"}
        except A2AError as error:
            answer = {"what": "refused", "error": type(error).__name__, "why": error.message}
        except Exception:
            log.exception("task %s: a message of another server could not be taken", request.run)
            answer = {"what": "failed"}
        await on_thread(self._inbox.answer, request.id, answer)

    def close(self) -> None:
        """Answer nothing more."""
        self._runtime._errands.kinds.pop(MESSAGE, None)
        self._runtime._errands.on_ring = None


def _read(request: mail.Request, words: str | None) -> Request:
    body = request.body
    said = body["request"] if words is None else json.loads(words)
    if said is None:
        raise InternalError("the secret did not arrive; answer again")
    params = ParseDict(said, SendMessageRequest(), ignore_unknown_fields=True)
    user = NamedUser(str(body.get("user", "")))
    context = ServerCallContext(user=user, tenant=str(body.get("tenant", "")))
    read = Request(params, context, str(body.get("key", "")))
    read.secret, read.confirmed = words is not None, bool(body.get("confirmed"))
    return read
