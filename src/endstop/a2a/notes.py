"""The notes of a task: the protocol's objects as the journal keeps them, and back.

What is in a note is the protocol's own JSON, so that anybody can read a journal. It is made by hand
for what is common, because it is made for every event of every task; the rest goes through the
general converters. Nothing here may decide what an event means.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from a2a.types.a2a_pb2 import Artifact, Message, Part, Role, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict, ParseDict

MESSAGE = "a2a.message"
"""A message that was sent to the task, or by its agent beside its status."""
SAID = "a2a.said"
"""A message that is history and nothing else: an answer to a question, or the agent's word."""
REPLY = "a2a.reply"
"""The message by which the agent answers instead of working on a task."""
STATUS = "a2a.status"
"""A status that the agent gave itself; it is the task's only as far as the run allows."""
ARTIFACT = "a2a.artifact"
"""An artifact, or a chunk of one."""
METADATA = "a2a.metadata"
"""Metadata of the task that the agent set."""

Json = dict[str, Any]

_STATE_NAMES: dict[int, str] = {number: name for name, number in TaskState.items()}
_STATES: dict[str, int] = dict(TaskState.items())
_ROLE_NAMES: dict[int, str] = {number: name for name, number in Role.items()}
_ROLES: dict[str, int] = dict(Role.items())


def message_json(message: Message) -> Json:
    """A message as JSON."""
    found: Json = {
        "messageId": message.message_id,
        "role": _ROLE_NAMES.get(message.role, "ROLE_UNSPECIFIED"),
        "parts": [part_json(part) for part in message.parts],
    }
    if message.context_id:
        found["contextId"] = message.context_id
    if message.task_id:
        found["taskId"] = message.task_id
    if message.HasField("metadata"):
        found["metadata"] = MessageToDict(message.metadata)
    if message.extensions:
        found["extensions"] = list(message.extensions)
    if message.reference_task_ids:
        found["referenceTaskIds"] = list(message.reference_task_ids)
    return found


def check(message: Message) -> None:
    """Raise ValueError for a message that JSON has no words for, such as one with a NaN in it."""
    if message.HasField("metadata") or any(map(_may_lack_words, message.parts)):
        message_json(message)


def _may_lack_words(part: Part) -> bool:
    return part.WhichOneof("content") == "data" or part.HasField("metadata")


def read_message(found: Mapping[str, Any]) -> Message:
    """The message that was kept."""
    message = Message(
        message_id=found.get("messageId", ""),
        role=_ROLES.get(found.get("role", ""), 0),  # type: ignore[arg-type]
        parts=[read_part(part) for part in found.get("parts", ())],
        context_id=found.get("contextId", ""),
        task_id=found.get("taskId", ""),
        extensions=found.get("extensions", ()),
        reference_task_ids=found.get("referenceTaskIds", ()),
    )
    if "metadata" in found:
        ParseDict(found["metadata"], message.metadata)
    return message


def part_json(part: Part) -> Json:
    """A part as JSON. Raises ValueError for data that JSON has no words for, such as NaN."""
    kind = part.WhichOneof("content")
    found: Json
    match kind:
        case "text":
            found = {"text": part.text}
        case "raw":
            found = {"raw": base64.b64encode(part.raw).decode("ascii")}
        case "url":
            found = {"url": part.url}
        case "data":
            found = {"data": MessageToDict(part.data)}
        case _:
            found = {}
    if part.filename:
        found["filename"] = part.filename
    if part.media_type:
        found["mediaType"] = part.media_type
    if part.HasField("metadata"):
        found["metadata"] = MessageToDict(part.metadata)
    return found


def read_part(found: Mapping[str, Any]) -> Part:
    """The part that was kept."""
    if len(found) == 1 and "text" in found:
        return Part(text=found["text"])
    part = Part(filename=found.get("filename", ""), media_type=found.get("mediaType", ""))
    if "text" in found:
        part.text = found["text"]
    elif "raw" in found:
        part.raw = base64.b64decode(found["raw"])
    elif "url" in found:
        part.url = found["url"]
    elif "data" in found:
        ParseDict(found["data"], part.data)
    if "metadata" in found:
        ParseDict(found["metadata"], part.metadata)
    return part


def artifact_json(artifact: Artifact) -> Json:
    """An artifact as JSON."""
    found: Json = {
        "artifactId": artifact.artifact_id,
        "parts": [part_json(part) for part in artifact.parts],
    }
    if artifact.name:
        found["name"] = artifact.name
    if artifact.description:
        found["description"] = artifact.description
    if artifact.HasField("metadata"):
        found["metadata"] = MessageToDict(artifact.metadata)
    if artifact.extensions:
        found["extensions"] = list(artifact.extensions)
    return found


def read_artifact(found: Mapping[str, Any]) -> Artifact:
    """The artifact that was kept."""
    artifact = Artifact(
        artifact_id=found.get("artifactId", ""),
        name=found.get("name", ""),
        description=found.get("description", ""),
        parts=[read_part(part) for part in found.get("parts", ())],
        extensions=found.get("extensions", ()),
    )
    if "metadata" in found:
        ParseDict(found["metadata"], artifact.metadata)
    return artifact


def status_json(status: TaskStatus, metadata: Json | None = None) -> Json:
    """A status as JSON, with the metadata of the update that brought it.

    Without its timestamp: when it is recorded is when it came.
    """
    found: Json = {"state": state_name(status.state)}
    if status.HasField("message"):
        found["message"] = message_json(status.message)
    if metadata:
        found["metadata"] = metadata
    return found


def state_name(state: int) -> str:
    """The protocol's name of a state."""
    return _STATE_NAMES.get(state, "TASK_STATE_UNSPECIFIED")


def read_state(name: object) -> int:
    """The state with this name; unspecified for one that is unknown."""
    return _STATES.get(str(name), 0)


def text_message(
    text: str, *, message_id: str, context: str = "", task: str = "", data: Json | None = None
) -> Message:
    """A message of the agent with these words."""
    parts = [Part(text=text)]
    if data is not None:
        part = Part()
        ParseDict(data, part.data)
        parts.append(part)
    return Message(
        message_id=message_id,
        role=Role.ROLE_AGENT,
        parts=parts,
        context_id=context,
        task_id=task,
    )


def words_of(parts: Iterable[Part]) -> str:
    """The text of some parts, a line each."""
    return "\n".join(part.text for part in parts if part.WhichOneof("content") == "text")
