"""JSON-RPC of this house beside the SDK's dispatcher: no client and no handler can tell them apart.

Every request is sent twice to the same app, and the second time nothing is everyday to it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
from collections.abc import AsyncGenerator, Iterator
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
from hypothesis import given, settings
from hypothesis import strategies as st

from endstop.server import build_app, card_for, rpc
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


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    handler = Echo()
    app = build_app(handler, card_for("App", "Of the tests."), token=TOKEN)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x")
    with asyncio.Runner() as runner:
        yield Pair(runner.get_loop(), handler, client)
        runner.run(client.aclose())


def request(method: str, params: Any) -> dict[str, Any]:
    """A request in its envelope."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def params_of(method: str, said: str) -> dict[str, Any]:
    """The least that a method needs."""
    return {"message": message("x", messageId=said)} if "Send" in method else {"id": said}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "said", ["x", "", "none", "nan", "back", "empty", "late gone", "late bug", *ERRORS]
)
def test_answers_and_errors_are_the_same(pair: Pair, method: str, said: str) -> None:
    body = pair.compare(request(method, params_of(method, said)))
    refused = {*ERRORS, "nan"}
    if method in rpc.STREAMING:
        refused |= {"late gone", "late bug"}
    elif method != "SendMessage":
        refused.add("none")
    assert ('"error"' in body) == (said in refused)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "version",
    ["1.0", "absent", "", " 1.0", "1", "1.0.7", "1.1", "01.0", "2.0", "0.3", "x", "1.0, 1.0"],
)
def test_versions_are_the_same(pair: Pair, method: str, version: str) -> None:
    body = pair.compare(request(method, params_of(method, "x")), a2a_version=version)
    if version in ("absent", "", "2.0", "0.3", "x"):
        assert "-32009" in body


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "more",
    [
        {"id": "\u00fc"},
        {"id": None},
        {"id": True},
        {"id": 1.5},
        {"id": []},
        {"id": 10**30},
        {"id": ""},
        {"id": -1},
        {"jsonrpc": "1.0"},
        {"jsonrpc": 2.0},
        {"jsonrpc": None},
        {"extra": 1},
        {"params": None},
        {"params": []},
        {"params": [{}]},
        {"params": "x"},
        {"params": 0},
        {"params": {}},
        {"method": "GetTask "},
        {"method": None},
        {"method": 7},
        {"method": ["SendMessage"]},
        {"method": "rpc.x"},
        {"method": "tasks/get"},
        {"method": "message/stream"},
        {"method": "ListTasks"},
        {"method": ""},
    ],
    ids=str,
)
def test_envelopes_are_the_same(pair: Pair, method: str, more: dict[str, Any]) -> None:
    pair.compare(request(method, params_of(method, "x")) | more)


@pytest.mark.parametrize("lacking", ["jsonrpc", "id", "method", "params"])
@pytest.mark.parametrize("method", METHODS)
def test_envelopes_that_lack_something_are_the_same(pair: Pair, method: str, lacking: str) -> None:
    content = request(method, params_of(method, "x"))
    del content[lacking]
    pair.compare(content)
    pair.compare([content])


def test_headers_reach_the_handler_the_same(pair: Pair) -> None:
    content = request("SendMessage", {**params_of("SendMessage", "x"), "tenant": "acme"})
    for extensions in ("", "a", "a, b,,c ", "a,a"):
        pair.compare(content, A2A_Extensions=extensions, x_own='a,b;"c"')
        (_, _, told, _), *more = pair.handler.asked
        assert not more
        assert told["requested_extensions"] == {e.strip() for e in extensions.split(",")} - {""}
        assert told["tenant"] == "acme"


# -- params of every kind, and of none

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
META = st.dictionaries(st.text(max_size=6), JSON, max_size=3)
CONTENTS = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=20)}),
    st.fixed_dictionaries({"raw": st.sampled_from(["", "aGk=", "aGk", "_-8=", "+/8=", "!"])}),
    st.fixed_dictionaries({"url": st.text(max_size=9)}),
    st.fixed_dictionaries({"data": JSON}),
    st.just({}),
    st.just({"text": "a", "url": "b"}),
)
REST = st.fixed_dictionaries(
    {},
    optional={
        "filename": st.text(max_size=5),
        "mediaType": st.text(max_size=5),
        "metadata": META,
        "unknown": JSON,
    },
)
PARTS = st.builds(lambda a, b: {**a, **b}, CONTENTS, REST)
MESSAGES = st.fixed_dictionaries(
    {
        "messageId": st.text(max_size=5) | st.sampled_from(["back", *ERRORS]),
        "role": st.sampled_from(["ROLE_USER", "ROLE_AGENT", "ROLE_UNSPECIFIED", "ROLE_X", 1, 9]),
        "parts": st.lists(PARTS, max_size=3),
    },
    optional={
        "contextId": st.text(max_size=5),
        "taskId": st.text(max_size=5),
        "metadata": META,
        "extensions": st.lists(st.text(max_size=4), max_size=2),
        "referenceTaskIds": st.lists(st.text(max_size=4), max_size=2),
    },
)
CONFIGURATIONS = st.fixed_dictionaries(
    {},
    optional={
        "historyLength": st.sampled_from([0, 1, -1, 2**31, "3", 2.0, 1.5, None, True]),
        "returnImmediately": st.booleans() | st.sampled_from(["true", 1, None]),
        "acceptedOutputModes": st.lists(st.text(max_size=4), max_size=2),
        "taskPushNotificationConfig": st.just({"url": "http://x", "token": "t"}),
    },
)
SENT = st.fixed_dictionaries(
    {"message": MESSAGES},
    optional={
        "configuration": CONFIGURATIONS,
        "metadata": META,
        "tenant": st.text(max_size=4),
        "unknown": JSON,
        "[odd.name]": JSON,
    },
)
BY_ID = st.fixed_dictionaries(
    {"id": st.text(max_size=5) | st.sampled_from(["none", *ERRORS])},
    optional={
        "historyLength": st.sampled_from([0, 5, -2, 2**31, "3", 1.0, None]),
        "tenant": st.text(max_size=4),
        "metadata": META,
        "unknown": JSON,
    },
)
ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        2.0,
        1e300,
        10**30,
        10**400,
        "",
        "5",
        "ROLE_USER",
        [],
        {},
        [None],
        [[]],
        {"a": 1},
        {"values": []},
        "\u2028",
    ]
)
SNAKE = {
    "messageId": "message_id",
    "contextId": "context_id",
    "mediaType": "media_type",
    "historyLength": "history_length",
    "returnImmediately": "return_immediately",
}


def places(found: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a document, by what holds it and where."""
    pairs = list(found.items() if isinstance(found, dict) else enumerate(found))
    for at, value in pairs:
        yield found, at
        if isinstance(value, dict | list):
            yield from places(value)


@st.composite
def odd_params(draw: st.DrawFn) -> tuple[str, Any]:
    """Params of a method, in which something may be what it should not be."""
    method = draw(st.sampled_from(METHODS))
    params = copy.deepcopy(draw(SENT if "Send" in method else BY_ID))
    how = draw(st.sampled_from(["as it is", "as it is", "odd", "gone", "snake", "both"]))
    holder, at = draw(st.sampled_from(list(places(params))))
    match how:
        case "odd":
            holder[at] = draw(ODD)
        case "gone":
            del holder[at]
        case "snake" | "both" if at in SNAKE:
            holder[SNAKE[at]] = holder[at] if how == "both" else holder.pop(at)
    return method, params


@settings(max_examples=400, deadline=None)
@given(odd_params())
def test_params_are_read_the_same(pair: Pair, asked: tuple[str, Any]) -> None:
    method, params = asked
    pair.compare(request(method, params), exactly=False)


@pytest.mark.parametrize("depth", [1, 10, 16, 17, 18, 90, 99, 100, 101, 200])
def test_metadata_is_as_deep_as_the_sdk_lets_it(pair: Pair, depth: int) -> None:
    for opening, closing in (('{"a":', "}"), ("[", "]")):
        deep = json.loads('{"a":' + opening * depth + "1" + closing * depth + "}")
        pair.compare(request("SendMessage", {**params_of("SendMessage", "x"), "metadata": deep}))
