"""One app that is asked everything twice: as it is, and as the SDK's dispatcher would answer.

The second time nothing is everyday to it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
)

from endstop.server import rpc
from tests.server.house import head, message

TOKEN = "a-token-of-the-tests"
METHODS = ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask")
ERRORS: dict[str, Exception] = {
    "gone": TaskNotFoundError(),
    "over": TaskNotCancelableError("Task x is in terminal state: ☂", data={"a": [1, None]}),
    "type": ContentTypeNotSupportedError(data={"b": "c"}),
    "lacks": InvalidParamsError("bad", data={"errors": [{"field": "x", "message": "y"}]}),
    "bug": KeyError("of a handler"),
}
HEADERS = ("content-type", "content-length", "cache-control", "connection", "x-accel-buffering")


class Echo(RequestHandler):
    """Answers with what it was asked, or with the error that was asked for; keeps who asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def _note(self, params: Any, context: Any) -> str:
        told = context.model_dump(exclude={"user"})
        user = (type(context.user), context.user.user_name, context.user.is_authenticated)
        self.asked.append((type(params), params.SerializeToString(deterministic=True), told, user))
        said = params.message.message_id if hasattr(params, "message") else params.id
        if said in ERRORS:
            raise ERRORS[said]
        return str(said)

    def _task(self, params: Any, context: Any) -> Task | None:
        said = self._note(params, context)
        if said == "none":
            return None
        task = Task(id=said, status=TaskStatus(state=TaskState.TASK_STATE_WORKING))
        task.status.timestamp.FromMilliseconds(1_700_000_000_123)
        if hasattr(params, "message"):
            task.history.append(params.message)
            task.artifacts.append(Artifact(artifact_id="a", parts=params.message.parts))
        if hasattr(params, "metadata"):
            task.metadata.MergeFrom(params.metadata)
        if said == "nan":
            task.metadata["x"] = math.nan
        return task

    async def on_message_send(self, params: Any, context: Any) -> Any:
        task = self._task(params, context)
        return params.message if params.message.message_id == "back" else task

    async def on_get_task(self, params: Any, context: Any) -> Any:
        return self._task(params, context)

    on_cancel_task = on_get_task

    async def _updates(self, params: Any, context: Any) -> AsyncGenerator[Any]:
        said = self._note(params, context)
        if said == "empty":
            return
        yield self._task(params, context) or Message(message_id="m", parts=[Part(text="\u2028\r")])
        yield TaskStatusUpdateEvent(task_id=said)
        yield TaskArtifactUpdateEvent(task_id=said, append=True, artifact=Artifact(name="ü"))
        if said.startswith("late "):
            raise ERRORS[said.removeprefix("late ")]

    on_message_send_stream = on_subscribe_to_task = _updates

    async def _no(self, params: Any, context: Any) -> Any:
        raise TaskNotFoundError

    on_list_tasks = on_get_extended_agent_card = on_create_task_push_notification_config = _no
    on_get_task_push_notification_config = on_list_task_push_notification_configs = _no
    on_delete_task_push_notification_config = _no


@dataclass(slots=True)
class Pair:
    """One app, asked as it is and as the SDK would."""

    loop: asyncio.AbstractEventLoop
    handler: Echo
    client: httpx.AsyncClient

    def ask(self, content: Any, **headers: str) -> tuple[Any, Any]:
        """A request of this content; what came back and what the handler was asked."""
        self.handler.asked.clear()
        told = head(TOKEN, **headers)
        if headers.get("a2a_version") == "absent":
            del told["a2a-version"]
        answer = self.loop.run_until_complete(self.client.post("/", json=content, headers=told))
        kept = {name: answer.headers.get(name) for name in HEADERS}
        return (answer.status_code, kept, answer.text), list(self.handler.asked)

    def compare(self, content: Any, *, exactly: bool = True, **headers: str) -> str:
        """Ask both ways; returns the body. The order of names in metadata is nobody's promise."""
        ours, asked = self.ask(content, **headers)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rpc, "read", lambda *_: None)
            theirs, told = self.ask(content, **headers)
        assert asked == told
        body = str(ours[2])
        ours, theirs = hidden(ours), hidden(theirs)
        if not exactly:
            ours, theirs = (*ours[:2], parsed(ours[2])), (*theirs[:2], parsed(theirs[2]))
        assert ours == theirs
        return body


def hidden(answer: Any) -> Any:
    """An answer without the number of an internal error, which is never the same twice."""
    status, headers, text = answer
    before, found, after = text.partition("internal error ")
    return status, headers, before + found + after[8:] if found else text


def parsed(text: str) -> list[Any]:
    """The lines of an answer, in which JSON is taken apart."""
    lines = [line.partition("{") for line in text.split("\n")]
    return [(before, json.loads(brace + rest)) for before, brace, rest in lines if brace]


def request(method: str, params: Any) -> dict[str, Any]:
    """A request in its envelope."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def params_of(method: str, said: str) -> dict[str, Any]:
    """The least that a method needs."""
    return {"message": message("x", messageId=said)} if "Send" in method else {"id": said}
