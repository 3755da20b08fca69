"""Weighing: what the executor has added to a task, from its record. Pure.

An event weighs in the record what it weighed when it was published, less what is not recorded of it
(the executor's own times), so that the bound of a task stands however often the task changes its
server or is put away.
"""

from __future__ import annotations

from collections.abc import Iterable

from a2a.types.a2a_pb2 import Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent
from google.protobuf.message import Message

from endstop.a2a import notes
from endstop.a2a.notes import Json
from endstop.core import events as e
from endstop.store.protocol import Recorded


def weigh(recorded: Iterable[Recorded], context: str) -> int:
    """The bytes of all that calls of the executor have published; linear in the record."""
    return sum(_weight(one.event, context) for one in recorded if isinstance(one.event, e.Noted))


def _weight(noted: e.Noted, context: str) -> int:
    if not noted.call:
        # The user's words, or the server's own.
        return 0
    event = _event(noted.kind, noted.body, noted.run, context)
    return event.ByteSize() if event is not None else 0


def _event(kind: str, body: Json, task: str, context: str) -> Message | None:
    """The event as it was published, as far as the record has it."""
    match kind:
        case notes.ARTIFACT:
            artifact = TaskArtifactUpdateEvent(
                task_id=task,
                context_id=context,
                artifact=notes.read_artifact(body["artifact"]),
                append=body.get("append", False),
                last_chunk=body.get("lastChunk", False),
            )
            artifact.metadata.update(body.get("metadata") or {})
            return artifact
        case notes.STATUS:
            said = TaskStatus(state=notes.read_state(body.get("state")))  # type: ignore[arg-type]
            if "message" in body:
                said.message.CopyFrom(notes.read_message(body["message"]))
            status = TaskStatusUpdateEvent(task_id=task, context_id=context, status=said)
            status.metadata.update(body.get("metadata") or {})
            return status
        case notes.SAID | notes.REPLY:
            return notes.read_message(body)
        case notes.METADATA:
            whole = Task()
            whole.metadata.update(body)
            return whole
        case _:
            return None
