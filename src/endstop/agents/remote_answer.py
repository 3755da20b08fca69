"""A remote agent's messages and artifacts as plain, bounded data.

What a stranger sent is cut to size once, here (law 19 any-payload); whoever reads it further on,
a model or a journal, need not ask where it came from. Needs the SDK of the protocol.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from a2a.types import Artifact, Message, Part, Task
from google.protobuf.json_format import MessageToDict

from endstop.core.text import safe_text

TEXT_CHARS = 200_000
"""Characters of all texts of an answer together."""
DATA_CHARS = 200_000
"""Characters of one piece of data as JSON."""
FILE_BYTES = 256 * 1024
"""Bytes of a file that is sent along; a larger one is named, without its bytes."""
PARTS_MAX = 1_000
SHORT_CHARS = 2_000
"""Characters of a name, a URL or a status in words."""

Plain = dict[str, Any]


def plain_task(task: Task) -> Plain:
    """What a task has brought: `text`, everything that is text in it; `artifacts`, part by part.

    Where there is no artifact, the agent's last word is the text.
    """
    rest = _Rest()
    artifacts = [_artifact(one, rest) for one in list(task.artifacts)[:PARTS_MAX]]
    texts = [_texts(one["parts"]) for one in artifacts]
    if not any(texts):
        texts = [words_of(task)]
    answer: Plain = {"text": "\n\n".join(text for text in texts if text), "artifacts": artifacts}
    left_out = rest.left_out + max(0, len(task.artifacts) - PARTS_MAX)
    if left_out:
        answer["left_out"] = f"parts that were too many or too large: {left_out}"
    return answer | {"task": _short(task.id), "context": _short(task.context_id)}


def plain_message(message: Message) -> Plain:
    """A message that is the whole answer."""
    rest = _Rest()
    parts = _parts(message.parts, rest)
    answer: Plain = {"text": _texts(parts), "artifacts": []}
    others = [part for part in parts if "text" not in part]
    if others:
        answer["artifacts"] = [{"id": _short(message.message_id), "parts": others}]
    if rest.left_out:
        answer["left_out"] = f"parts that were too many or too large: {rest.left_out}"
    return answer | {"task": "", "context": _short(message.context_id)}


def words_of(task: Task) -> str:
    """What the agent says of its task's state, else its last message, as one short text."""
    if task.status.HasField("message"):
        return text_of(task.status.message)
    for message in reversed(task.history):
        if message.role != 1:
            return text_of(message)
    return ""


def text_of(message: Message, chars: int = SHORT_CHARS) -> str:
    """The texts of a message as one."""
    found = [part.text for part in message.parts if part.WhichOneof("content") == "text"]
    return safe_text("\n".join(found[:PARTS_MAX]), chars).strip()


class _Rest:
    """How much more of an answer is taken."""

    def __init__(self) -> None:
        self.chars = TEXT_CHARS
        self.parts = PARTS_MAX
        self.left_out = 0


def _artifact(artifact: Artifact, rest: _Rest) -> Plain:
    found: Plain = {"id": _short(artifact.artifact_id)}
    if artifact.name:
        found["name"] = _short(artifact.name)
    if artifact.description:
        found["description"] = _short(artifact.description)
    return found | {"parts": _parts(artifact.parts, rest)}


def _parts(parts: Iterable[Part], rest: _Rest) -> list[Plain]:
    found = []
    for part in parts:
        plain = _part(part, rest) if rest.parts > 0 else None
        if plain is None:
            rest.left_out += 1
        else:
            rest.parts -= 1
            found.append(plain)
    return found


def _part(part: Part, rest: _Rest) -> Plain | None:
    match part.WhichOneof("content"):
        case "text":
            if rest.chars <= 0:
                return None
            text = safe_text(part.text, rest.chars)
            rest.chars -= len(text)
            return {"text": text}
        case "data":
            data = MessageToDict(part.data)
            if len(json.dumps(data)) > DATA_CHARS:
                return None
            return {"data": data}
        case "raw":
            file = _file(part) | {"size": len(part.raw)}
            if len(part.raw) <= FILE_BYTES:
                file["bytes"] = base64.b64encode(part.raw).decode("ascii")
            return {"file": file}
        case "url":
            return {"file": _file(part) | {"url": _short(part.url)}}
        case _:
            return None


def _file(part: Part) -> Plain:
    found = {"name": _short(part.filename), "media_type": _short(part.media_type)}
    return {name: value for name, value in found.items() if value}


def _texts(parts: Iterable[Plain]) -> str:
    return "\n".join(part["text"] for part in parts if "text" in part)


def _short(text: str) -> str:
    return safe_text(text, SHORT_CHARS)
