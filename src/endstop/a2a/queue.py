"""The queue that an executor publishes to: every event becomes a note of its call, or nothing.

What an executor says is recorded first and seen by others only then (law 15 record-first); what it
says without a pause is recorded in one step. Its word that the task is over is a declaration: it
closes the run, and what it publishes afterwards is counted and shown to nobody (law 3 one-ending).
Nothing here may wait for a reader.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from a2a.server.events.event_queue import Event, EventQueue
from a2a.types.a2a_pb2 import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import MessageToDict

from endstop.a2a import notes
from endstop.a2a.limits import TaskLimits
from endstop.a2a.notes import Json
from endstop.a2a.states import COMPLETED, INTERRUPTED, SUBMITTED, TERMINAL, UNSPECIFIED

BREATH = 8
"""Events after which the executor's loop may look at other things: a stop, another task."""


class BadEvent(ValueError):
    """An executor published what cannot be an event of its task."""


class Port(Protocol):
    """What a queue asks of the task that it belongs to; from any thread."""

    id: str
    context: str
    limits: TaskLimits

    @property
    def spoken(self) -> bool:
        """Whether the executor has said anything of the task."""

    def weigh(self, size: int) -> int:
        """So many bytes are added to the task; returns how many there are now."""

    def note(self, kind: str, body: Json) -> None:
        """Record a note of the call, soon; one that comes too late is counted and not kept."""

    def declare(self, state: int, kind: str, body: Json) -> None:
        """The executor says that the task is over, with a last note; what is late is counted."""

    def heard(self) -> None:
        """The executor has said its first word about the task."""

    def flush(self) -> None:
        """Record now what was said and is not recorded yet."""

    def knows(self, message_id: str) -> bool:
        """Whether a message is in the task's history already."""


class TaskQueue(EventQueue):
    """See `a2a.server.events.EventQueue`; one for every call of an executor."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._count = 0
        # The messages that it was given: what is recorded of them may not be seen here yet.
        self._given: set[str] = set()
        self.interrupted = False

    async def enqueue_event(self, event: Event) -> None:
        """Publish an event. Raises BadEvent for one that cannot be of this task."""
        self.publish(event)
        self._count += 1
        if self._count % BREATH == 0:
            # A body that never waits could not be asked to stop, nor would it say so little at a
            # time that it can be kept until it is recorded.
            self._port.flush()
            await asyncio.sleep(0)

    def publish(self, event: Event) -> None:
        """The same, without ever waiting."""
        self._weigh(event)
        match event:
            case TaskStatusUpdateEvent():
                self._check(event.task_id, event.context_id, "status update")
                metadata = MessageToDict(event.metadata) if event.HasField("metadata") else None
                self._status(event.status, metadata)
            case TaskArtifactUpdateEvent():
                self._check(event.task_id, event.context_id, "artifact update")
                self._artifact(event)
            case Task():
                self._check(event.id, event.context_id, "task")
                self._task(event)
            case Message():
                self._message(event)
            case _:
                raise BadEvent(f"{type(event).__name__} is no event of a task")

    def _weigh(self, event: Any) -> None:
        port, size = self._port, event.ByteSize()
        limits = port.limits
        if size > limits.event_bytes:
            raise BadEvent(
                f"an event of {size} bytes: at most {limits.event_bytes} are taken; send an "
                "artifact in chunks"
            )
        if port.weigh(size) > limits.task_bytes:
            raise BadEvent(f"the task is full: at most {limits.task_bytes} bytes are taken")

    def _check(self, task: str, context: str, what: str) -> None:
        port = self._port
        if task and task != port.id:
            raise BadEvent(f"the {what} is for task {task}, and this is task {port.id}")
        if context and context != port.context:
            raise BadEvent(f"the {what} is for context {context}, and this is {port.context}")

    def _status(self, status: TaskStatus, metadata: Json | None) -> None:
        state = status.state
        if state == UNSPECIFIED:
            raise BadEvent("the status update has no state")
        self._heard()
        self.interrupted = state in INTERRUPTED
        first = state == SUBMITTED and not metadata
        if first and not status.HasField("message"):
            # What every task is before it works: nothing is new.
            return
        if status.HasField("message"):
            self._given.add(status.message.message_id)
        body = notes.status_json(status, metadata)
        if state in TERMINAL:
            self._port.declare(state, notes.STATUS, body)
        else:
            self._port.note(notes.STATUS, body)

    def _artifact(self, event: TaskArtifactUpdateEvent) -> None:
        artifact = event.artifact
        if not artifact.artifact_id or not artifact.parts:
            raise BadEvent("an artifact has an id, and at least one part")
        self._heard()
        body: Json = {"artifact": notes.artifact_json(artifact)}
        if event.append:
            body["append"] = True
        if event.last_chunk:
            body["lastChunk"] = True
        if event.HasField("metadata"):
            body["metadata"] = MessageToDict(event.metadata)
        self._port.note(notes.ARTIFACT, body)

    def _task(self, task: Task) -> None:
        """A whole task is what is new in it, piece by piece: the status last, it may be the end."""
        self._heard()
        if task.history:
            # What it holds may have been said just now.
            self._port.flush()
        for message in task.history:
            name = message.message_id
            if name not in self._given and not self._port.knows(name):
                self._given.add(name)
                self._port.note(notes.SAID, notes.message_json(message))
        for artifact in task.artifacts:
            self._artifact(TaskArtifactUpdateEvent(artifact=artifact))
        if task.HasField("metadata"):
            self._port.note(notes.METADATA, MessageToDict(task.metadata))
        if task.status.state != UNSPECIFIED:
            self._status(task.status, None)

    def _message(self, message: Message) -> None:
        """An answer instead of a task, where nothing was said before; else words of the agent."""
        self._given.add(message.message_id)
        body = notes.message_json(message)
        if self._port.spoken:
            self.interrupted = False
            self._port.note(notes.STATUS, {"state": "TASK_STATE_WORKING", "message": body})
            return
        self._port.declare(COMPLETED, notes.REPLY, body)

    def _heard(self) -> None:
        if not self._port.spoken:
            self._port.heard()
