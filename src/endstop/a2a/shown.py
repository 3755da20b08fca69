"""Showing a task: from what is known of it to the protocol's Task and updates. Part of `task.py`.

Pure. Whoever shows the same number of events shows the same, to the last byte.
"""

from __future__ import annotations

from typing import Any

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import ParseDict

from endstop.a2a import notes, words
from endstop.a2a.notes import Json
from endstop.a2a.states import CALLS, COMPLETED, SEQ
from endstop.core import events as e


class Shown:
    """The part of a task's view that shows it."""

    id: str
    seq: int
    context: str
    state: int
    at_s: float
    ended: e.RunEnded | None
    history: list[Message]
    artifacts: dict[str, Artifact]
    metadata: Json
    calls: dict[str, words.Line]
    _message: Message | None
    _last_said: int
    _artifact: Json
    _status_metadata: Json | None

    def task(self, history_length: int | None = None, *, artifacts: bool = True) -> Task:
        """The task as it stands; `history_length` bounds its messages, newest kept."""
        history = self.history
        if history_length is not None:
            history = history[-history_length:] if history_length > 0 else []
        task = Task(id=self.id, context_id=self.context, status=self._status(), history=history)
        if artifacts and self.artifacts:
            task.artifacts.extend(self.artifacts.values())
        if self.metadata:
            task.metadata.update(self.metadata)
        self._own_metadata(task.metadata)
        return task

    def left(self) -> Task:
        """The task in the state in which its agent left it: what the agent's next call is told."""
        task = self.task()
        task.status.state = self._last_said  # type: ignore[assignment]
        return task

    def status_update(self) -> TaskStatusUpdateEvent:
        """The status as it stands, as an update of a stream."""
        update = TaskStatusUpdateEvent(
            task_id=self.id, context_id=self.context, status=self._status()
        )
        if self._status_metadata:
            update.metadata.update(self._status_metadata)
        self._own_metadata(update.metadata)
        return update

    def artifact_update(self) -> TaskArtifactUpdateEvent:
        """What was added last, as an update of a stream."""
        found = self._artifact
        update = TaskArtifactUpdateEvent(
            task_id=self.id,
            context_id=self.context,
            artifact=notes.read_artifact(found["artifact"]),
            append=found.get("append", False),
            last_chunk=found.get("lastChunk", False),
        )
        if "metadata" in found:
            ParseDict(found["metadata"], update.metadata)
        update.metadata[SEQ] = self.seq
        return update

    def _status(self) -> TaskStatus:
        status = TaskStatus(state=self.state, message=self._message)  # type: ignore[arg-type]
        seconds = int(self.at_s)
        status.timestamp.seconds = seconds
        # Whole milliseconds: the protocol's format of an instant.
        status.timestamp.nanos = int((self.at_s - seconds) * 1000) * 1_000_000
        return status

    def _own_metadata(self, metadata: Any) -> None:
        metadata[SEQ] = self.seq
        if self.ended is not None and self.state != COMPLETED:
            table = words.table(self.calls.values())
            if table:
                metadata[CALLS] = table
