"""The adapters: Anthropic messages.

Calls are `tool_use` blocks in the assistant's content; all of them are answered by one user
message whose content begins with their `tool_result` blocks. What the provider runs itself
(`server_tool_use` and its results) stays in the content and is not ours. No SDK, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endstop.adapters.parts import (
    Message,
    Observed,
    Parsed,
    Wanted,
    clean,
    joined_text,
    listed,
    mapping_of,
    read_call,
    stored_name,
    stored_object,
    text_of,
    unique_ids,
)
from endstop.core.text import scrub

CUT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""The stop reasons of replies that are not whole."""


def read(body: Mapping[str, Any] | list[Any]) -> Parsed:
    """Read a response body, a bare assistant message, or its bare list of content blocks."""
    content: object = body
    cut = None
    if isinstance(body, Mapping):
        content = body.get("content")
        reason = text_of(body.get("stop_reason"))
        cut = reason if reason in CUT else None
    blocks = content_blocks(content)
    calls = [block for block in blocks if is_call(block)]
    ids = unique_ids([text_of(block.get("id")) for block in calls])
    wanted: list[Wanted] = []
    for block, made_id in zip(calls, ids, strict=True):
        call = read_call(text_of(block.get("id")), block.get("name"), block.get("input"), cut)
        wanted.append(Wanted(call=call, id=made_id, kind="tool_use"))
    return Parsed(
        wanted=tuple(wanted),
        message={"role": "assistant", "content": stored_blocks(blocks, ids)},
        text=joined_text(blocks),
        cut=cut,
    )


def content_blocks(content: object) -> list[Mapping[str, Any]]:
    """The content as blocks; a plain text is one block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = listed(content, "`content`")
    return [
        {"type": "text", "text": block} if isinstance(block, str) else mapping_of(block)
        for block in blocks
    ]


def is_call(block: Mapping[str, Any]) -> bool:
    """Whether a block is a call of one of the caller's own tools."""
    return block.get("type") == "tool_use"


def stored_blocks(blocks: list[Mapping[str, Any]], ids: list[str]) -> list[Message]:
    """The content as it may be sent back, its calls under `ids`.

    Left out is what the provider refuses to take back: blank text, and thinking that was cut
    off before its signature.
    """
    remaining = iter(ids)
    stored: list[Message] = []
    for block in blocks:
        if is_call(block):
            stored.append(stored_call(block, next(remaining)))
        elif block and not _refused(block):
            stored.append(clean(block, "content"))
    return stored


def _refused(block: Mapping[str, Any]) -> bool:
    match block.get("type"):
        case "text":
            return not text_of(block.get("text")).strip()
        case "thinking":
            return not block.get("signature")
        case _:
            return False


def stored_call(block: Mapping[str, Any], made_id: str) -> Message:
    """A call as it may be sent back, under `made_id`."""
    extra = {
        key: clean(value, f"content.{key}")
        for key, value in block.items()
        if key not in ("id", "name", "input", "type", "partial_json")
    }
    return {
        "type": "tool_use",
        "id": made_id,
        "name": stored_name(block.get("name")),
        "input": stored_object(block.get("input")),
        **extra,
    }


def answer(wanted: tuple[Wanted, ...], observed: list[Observed]) -> list[Message]:
    """One user message with all results, in request order; none where nothing was called."""
    if not wanted:
        return []
    pairs = zip(wanted, observed, strict=True)
    return [{"role": "user", "content": [result(one.id, s.text, s.is_error) for one, s in pairs]}]


def result(made_id: str, text: str, is_error: bool) -> Message:
    """The block that answers one call."""
    block: Message = {"type": "tool_result", "tool_use_id": made_id, "content": scrub(text)}
    if is_error:
        block["is_error"] = True
    return block
