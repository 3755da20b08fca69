"""The agent under test for the compatibility kit of the A2A protocol (a2a-tck).

The kit says what it wants by how the id of its message begins; `docs/conformance.md` says how it is
run. Serve it with `endstop serve examples/agent_under_test.py --port 9999 --grpc-port 9998`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Role,
    TaskState,
)
from google.protobuf.struct_pb2 import Struct, Value

STREAMING_TIMEOUT_S = float(os.environ.get("TCK_STREAMING_TIMEOUT", "2"))
"""How long the kit waits for a stream, in seconds; the variable is the kit's own."""


def text(words: str) -> Part:
    return Part(text=words)


def file(content: bytes) -> Part:
    return Part(raw=content, filename="output.txt", media_type="text/plain")


def data(**fields: Any) -> Part:
    made = Struct()
    made.update(fields)
    return Part(data=Value(struct_value=made))


async def complete(up: TaskUpdater) -> None:
    await up.complete(up.new_agent_message([text("Hello from TCK")]))


async def complete_silently(up: TaskUpdater) -> None:
    await up.complete()


def artifact(part: Part) -> Callable[[TaskUpdater], Awaitable[None]]:
    """Completes, with one artifact."""

    async def run(up: TaskUpdater) -> None:
        await up.add_artifact([part])
        await up.complete()

    return run


def streamed(part: Part) -> Callable[[TaskUpdater], Awaitable[None]]:
    """Works, shows one artifact and completes."""

    async def run(up: TaskUpdater) -> None:
        await up.start_work()
        await up.add_artifact([part])
        await up.complete()

    return run


async def chunked(up: TaskUpdater) -> None:
    await up.start_work()
    await up.add_artifact([text("chunk-1 ")], artifact_id="chunked", append=False)
    await up.add_artifact([text("chunk-2")], artifact_id="chunked", append=True, last_chunk=True)
    await up.complete()


async def ask(up: TaskUpdater) -> None:
    await up.requires_input(up.new_agent_message([text("More, please.")]))


async def reject(up: TaskUpdater) -> None:
    await up.reject(up.new_agent_message([text("rejected")]))


async def long_running(up: TaskUpdater) -> None:
    await up.start_work()
    await asyncio.sleep(2 * STREAMING_TIMEOUT_S)
    await up.complete()


URL = Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")

BEHAVIOURS: dict[str, Callable[[TaskUpdater], Awaitable[None]]] = {
    "tck-complete-task": complete,
    "tck-artifact-text": artifact(text("Generated text content")),
    "tck-artifact-file": artifact(file(b"Generated file content")),
    "tck-artifact-file-url": artifact(URL),
    "tck-artifact-data": artifact(data(key="value", count=42)),
    "tck-input-required": ask,
    "tck-reject-task": reject,
    "tck-stream-001": streamed(text("Stream hello from TCK")),
    "tck-stream-002": complete_silently,
    "tck-stream-003": streamed(text("Stream task lifecycle")),
    "tck-stream-ordering-001": streamed(text("Ordered output")),
    "tck-stream-artifact-text": streamed(text("Streamed text content")),
    "tck-stream-artifact-file": streamed(file(b"Streamed file content")),
    "tck-stream-artifact-chunked": chunked,
    "test-resubscribe-message-id": long_running,
}


def behaviour(message_id: str) -> Callable[[TaskUpdater], Awaitable[None]]:
    """What the longest prefix that fits asks for; without one, the task is completed."""
    fitting = [prefix for prefix in BEHAVIOURS if message_id.startswith(prefix)]
    return BEHAVIOURS[max(fitting, key=len)] if fitting else complete


class AgentUnderTest(AgentExecutor):
    """Does what the id of the message says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        if context.message.message_id.startswith("tck-message-response"):
            said = new_text_message("Direct message response", role=Role.ROLE_AGENT)
            await event_queue.enqueue_event(said)
            return
        up = TaskUpdater(event_queue, context.task_id, context.context_id)
        await behaviour(context.message.message_id)(up)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        up = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await up.update_status(TaskState.TASK_STATE_CANCELED)


agent = AgentUnderTest()
agent_card = AgentCard(
    name="agent under test",
    description="Does what the compatibility kit of the A2A protocol asks of an agent.",
    version="1.0.0",
    # The kit's schema of a card has no room for what clients of 0.3 look for.
    supported_interfaces=[AgentInterface(protocol_version="1.0")],
    capabilities=AgentCapabilities(
        streaming=True, push_notifications=True, extended_agent_card=True
    ),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[
        AgentSkill(id="tck", name="tck", description="Behaves as a message id says.", tags=["tck"])
    ],
)
extended_agent_card = AgentCard()
extended_agent_card.CopyFrom(agent_card)

if __name__ == "__main__":
    for prefix in BEHAVIOURS:
        print(prefix)
