"""What a tool of a server answered, as bounded data for the model (law 19 any-payload).

Text alone becomes text; structured content stands for the text that repeats it; anything else is
the list of its parts. Pictures, sound and files are kept as base64 within the bound, and above it
replaced by a part that says how large they were. Nothing here may grow with what a server sends.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types

from endstop.adapters.mcp.errors import McpToolError
from endstop.core.payload import PayloadLimits, Unserialisable, dumps, to_data
from endstop.core.text import safe_text

RESULT_BYTES = 1 << 20
"""Characters of one result that are kept, unless the server's terms say otherwise."""

PARTS_MAX = 500


class _Room:
    """How many characters of a result may still be kept."""

    def __init__(self, chars: int) -> None:
        self.left = chars

    def text(self, text: str) -> str:
        kept = safe_text(text, max(self.left, 100)) if len(text) > self.left else safe_text(text)
        if len(text) <= self.left and len(kept) < len(text):
            # Longer than what is safe to show in one piece, but within the bound.
            kept = safe_text(text, len(text) + 1)
        self.left = max(0, self.left - len(kept))
        return kept

    def data(self, made: dict[str, Any], key: str, value: str | None) -> dict[str, Any]:
        text = value or ""
        if len(text) > self.left:
            return {**made, "omitted": f"{len(text)} characters of base64, more than is kept"}
        self.left -= len(text)
        return {**made, key: safe_text(text, len(text) + 1)}


def read_result(answer: types.CallToolResult, limit: int = RESULT_BYTES) -> Any:
    """The value of a result. Raises McpToolError where the server says that the tool failed."""
    room = _Room(limit)
    parts = [_part(block, room) for block in answer.content[:PARTS_MAX]]
    if len(answer.content) > PARTS_MAX:
        parts.append({"type": "omitted", "parts": len(answer.content) - PARTS_MAX})
    words = [part["text"] for part in parts if part["type"] == "text"]
    only_text = len(words) == len(parts)
    if answer.is_error:
        raise McpToolError("\n".join(words) if only_text else parts)
    structured = _structured(answer.structured_content, limit)
    if only_text:
        if structured == {"result": (text := "\n".join(words))}:
            # How servers wrap a plain text so that it has a schema.
            return text
        return text if structured is None else structured
    return {"content": parts} if structured is None else {"content": parts, "data": structured}


def _structured(value: Any, limit: int) -> Any:
    if value is None:
        return None
    try:
        data = to_data(value, limits=PayloadLimits(chars=limit))
        size = len(dumps(data))
    except (Unserialisable, RecursionError) as problem:
        return {"omitted": safe_text(f"structured content: {problem}", 300)}
    if size > limit:
        return {"omitted": f"structured content of {size} characters, more than is kept"}
    return data


def _part(block: types.ContentBlock, room: _Room) -> dict[str, Any]:
    match block:
        case types.TextContent():
            return {"type": "text", "text": room.text(block.text)}
        case types.ImageContent():
            return room.data({"type": "image", "mime": _short(block.mime_type)}, "data", block.data)
        case types.AudioContent():
            return room.data({"type": "audio", "mime": _short(block.mime_type)}, "data", block.data)
        case types.ResourceLink():
            about = {"type": "link", "uri": room.text(str(block.uri)), "name": _short(block.name)}
            return about if block.mime_type is None else {**about, "mime": _short(block.mime_type)}
        case types.EmbeddedResource():
            return _resource(block.resource, room)
        case _:
            return {"type": _short(getattr(block, "type", "unknown")), "omitted": "not understood"}


def _resource(found: Any, room: _Room) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "resource", "uri": room.text(str(found.uri))}
    if found.mime_type is not None:
        about["mime"] = _short(found.mime_type)
    match found:
        case types.TextResourceContents():
            return {**about, "text": room.text(found.text)}
        case types.BlobResourceContents():
            return room.data(about, "data", found.blob)
        case _:
            return {**about, "omitted": "not understood"}


def _short(text: Any) -> str:
    return safe_text(str(text), 200)
