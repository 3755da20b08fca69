"""What the compatibility kit's scenarios ask of the agent under test, in every binding.

The scenarios are read from ../shared where they are there, so that none is forgotten; what each one
must show is written here.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator

import pytest
from a2a.types import Part, Task
from google.protobuf.json_format import MessageToDict

from tests.support import SHARED, needs_shared
from tests.wire.cards import BINDINGS
from tests.wire.harness import Caller, Seen, Server, house, state_of

AGENT = "examples/agent_under_test.py"
FEATURES = ("core_operations.feature", "streaming.feature")
STREAM_S = 0.3

COMPLETED: dict[str, Callable[[Part], bool] | None] = {
    "tck-complete-task": None,
    "tck-artifact-text": lambda part: part.text == "Generated text content",
    "tck-artifact-file": lambda part: _named(part) and bool(part.raw),
    "tck-artifact-file-url": lambda part: (
        _named(part) and part.url == "https://example.com/output.txt"
    ),
    "tck-artifact-data": lambda part: MessageToDict(part.data) == {"key": "value", "count": 42},
}
"""Messages that complete their task, and what their one artifact must be."""

STREAMED = {
    "tck-stream-001": ["Stream hello from TCK"],
    "tck-stream-002": [],
    "tck-stream-003": ["Stream task lifecycle"],
    "tck-stream-ordering-001": ["Ordered output"],
    "tck-stream-artifact-text": ["Streamed text content"],
    "tck-stream-artifact-file": [""],
    "tck-stream-artifact-chunked": ["chunk-1 ", "chunk-2"],
}
"""Streams that complete their task, and the texts that they show on the way."""

OTHERS = {
    "tck-message-response",
    "tck-input-required",
    "tck-reject-task",
    "test-resubscribe-message-id",
}

bindings = pytest.mark.parametrize("binding", BINDINGS)


def _named(part: Part) -> bool:
    return (part.filename, part.media_type) == ("output.txt", "text/plain")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with house("endstop", tmp_path_factory.mktemp("kit"), AGENT) as home:
        yield home.start("memory", TCK_STREAMING_TIMEOUT=str(STREAM_S))


def converse(
    server: Server, binding: str, conversation: Callable[[Caller], Awaitable[None]]
) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30), Caller(server, binding) as client:
            await conversation(client)

    asyncio.run(whole())


def said(prefix: str) -> dict[str, str]:
    return {"message_id": f"{prefix}-{uuid.uuid4()}"}


@needs_shared
def test_no_scenario_is_forgotten() -> None:
    asked: set[str] = set()
    for name in FEATURES:
        text = (SHARED / "a2a" / name).read_text(encoding="utf-8")
        asked |= set(re.findall(r'received with prefix "([^"]+)"', text))
    assert asked == set(COMPLETED) | set(STREAMED) | OTHERS


@bindings
@pytest.mark.parametrize("prefix", COMPLETED)
def test_it_completes(server: Server, binding: str, prefix: str) -> None:
    wanted = COMPLETED[prefix]

    async def conversation(client: Caller) -> None:
        got = await client.send("hello", **said(prefix))
        assert state_of(got) == "COMPLETED"
        if wanted is None:
            assert [part.text for part in got.status.message.parts] == ["Hello from TCK"]
            assert not got.artifacts
        else:
            (artifact,) = got.artifacts
            (part,) = artifact.parts
            assert wanted(part), part
        assert await client.state(got.id) == "COMPLETED"

    converse(server, binding, conversation)


@bindings
def test_a_message_a_question_and_a_refusal(server: Server, binding: str) -> None:
    async def conversation(client: Caller) -> None:
        answer = await client.answer("hello", **said("tck-message-response"))
        assert [part.text for part in answer.message.parts] == ["Direct message response"]
        asked = await client.send("hello", **said("tck-input-required"))
        assert state_of(asked) == "INPUT_REQUIRED"
        assert state_of(await client.cancel(asked.id)) == "CANCELED"
        refused = await client.send("hello", **said("tck-reject-task"))
        assert state_of(refused) == "REJECTED"
        assert "rejected" in refused.status.message.parts[0].text

    converse(server, binding, conversation)


@bindings
@pytest.mark.parametrize("prefix", STREAMED)
def test_it_streams(server: Server, binding: str, prefix: str) -> None:
    async def conversation(client: Caller) -> None:
        seen = await client.stream("hello", **said(prefix)).end()
        assert seen.closed, seen.error
        assert seen.endings == ["COMPLETED"]
        assert seen.states[-1] == "COMPLETED", "the last event is the ending"
        shown = [update.artifact for update in updates(seen)]
        shown = list(first(seen).artifacts) + shown
        assert [part.text for artifact in shown for part in artifact.parts] == STREAMED[prefix]
        if prefix.endswith("chunked"):
            # A stream begins with the task as it stands: the first chunk may be in it by then.
            chunks = updates(seen) or pytest.fail("the last chunk was not shown")
            assert {chunk.artifact.artifact_id for chunk in chunks} == {"chunked"}
            assert (chunks[-1].append, chunks[-1].last_chunk) == (True, True)
        stored = await client.get(first(seen).id)
        texts = [part.text for artifact in stored.artifacts for part in artifact.parts]
        assert texts == STREAMED[prefix], "what was streamed is what is stored"

    converse(server, binding, conversation)


@bindings
def test_a_long_task_can_be_watched_again(server: Server, binding: str) -> None:
    async def conversation(client: Caller) -> None:
        stream = client.stream("hello", **said("test-resubscribe-message-id"))
        task = (await stream.until("WORKING")).task_id
        await stream.leave()
        seen = await client.subscribe(task).end()
        assert seen.closed, seen.error
        assert seen.states[0] == "WORKING"
        assert seen.endings == ["COMPLETED"]

    converse(server, binding, conversation)


def first(seen: Seen) -> Task:
    """A stream of a task begins with the task."""
    assert seen.events[0].HasField("task")
    return seen.events[0].task


def updates(seen: Seen) -> list:  # type: ignore[type-arg]
    return [event.artifact_update for event in seen.events if event.HasField("artifact_update")]
