"""The adapters: Anthropic messages.

Calls are `tool_use` blocks in the assistant's content; all of them are answered by one user
message whose content begins with their `tool_result` blocks. What the provider runs itself
(`server_tool_use` and its results) stays in the content and is not ours. No SDK, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endstop.adapters.ledger import Found, Ledger, Slot, changed
from endstop.adapters.parts import (
    ANY_SIZE,
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
from endstop.core.payload import ARGUMENTS_LIMIT
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


def stored_call(block: Mapping[str, Any], made_id: str, limit: int = ARGUMENTS_LIMIT) -> Message:
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
        "input": stored_object(block.get("input"), limit),
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


def mend(messages: list[Message], ledger: Ledger) -> list[Message]:
    """A transcript in which the message after one with calls begins with all their results."""
    opened: dict[int, list[Slot]] = {}
    used: set[str] = set()
    for index, message in enumerate(messages):
        blocks = _blocks(message)
        calls = [block for block in blocks if _calls(message) and is_call(block)]
        if calls:
            opened[index] = _opened(index, calls, used, ledger)
        for number, block in enumerate(blocks):
            if block.get("type") == "tool_result":
                key = text_of(block.get("tool_use_id"))
                ledger.take(Found(place=(index, number), key=key, body=block))
    ledger.close()
    mended: list[Message] = []
    for index, message in enumerate(messages):
        before = opened.get(index - 1)
        if before is not None and message.get("role") == "user":
            mended.append(_answered(index, message, before, ledger))
        else:
            if before is not None:
                mended.append(_answered(index, {"role": "user", "content": []}, before, ledger))
            mended += _kept(index, message, opened.get(index), mended, ledger)
    last = opened.get(len(messages) - 1)
    if last is not None:
        mended.append(_answered(len(messages), {"role": "user", "content": []}, last, ledger))
    return mended


def _blocks(message: Message) -> list[Message]:
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [block if isinstance(block, dict) else {} for block in content]


def _calls(message: Message) -> bool:
    return message.get("role") == "assistant"


def _opened(index: int, calls: list[Message], used: set[str], ledger: Ledger) -> list[Slot]:
    # The provider wants the ids of a whole conversation to be unique.
    ids = unique_ids([text_of(block.get("id")) for block in calls], used)
    used.update(ids)
    wanted = [
        Wanted(
            call=read_call(
                text_of(block.get("id")), block.get("name"), block.get("input"), None, ANY_SIZE
            ),
            id=made_id,
            kind="tool_use",
        )
        for block, made_id in zip(calls, ids, strict=True)
    ]
    return ledger.open(index, wanted)


def _without_results(message: Message) -> list[Any]:
    content = message["content"]
    return [b for b in content if mapping_of(b).get("type") != "tool_result"]


def _answered(index: int, message: Message, slots: list[Slot], ledger: Ledger) -> Message:
    """The user message at `index`, beginning with the results of the calls before it."""
    ledger.note_moves(index - 1, slots, (index, 0), (0, 1))
    results = [_mended_result(index - 1, slot, ledger) for slot in slots]
    content = message.get("content")
    if isinstance(content, list):
        rest = _without_results(message)
    else:
        rest = [{"type": "text", "text": content}] if text_of(content).strip() else []
    return changed(message, content=[*results, *rest])


def _kept(
    index: int, message: Message, slots: list[Slot] | None, before: list[Message], ledger: Ledger
) -> list[Message]:
    """A message without results of its own: what else it says stays."""
    if not any(block.get("type") == "tool_result" for block in _blocks(message)):
        return [_mended_calls(index, message, slots, ledger) if slots else message]
    rest = _without_results(message)
    if rest:
        kept = {**message, "content": rest}
        return [_mended_calls(index, kept, slots, ledger) if slots else kept]
    # Roles have to alternate, and a user has to speak first: the place may not stay empty.
    if message.get("role") == "user" and (not before or before[-1].get("role") == "assistant"):
        return [{**message, "content": [{"type": "text", "text": ledger.removed}]}]
    return []


def _mended_calls(index: int, message: Message, slots: list[Slot], ledger: Ledger) -> Message:
    remaining = iter(slots)
    content: list[Any] = []
    for block in message["content"]:
        if is_call(mapping_of(block)):
            block = _mended_call(index, block, next(remaining), ledger)
        content.append(block)
    return changed(message, content=content)


def _mended_call(index: int, block: Message, slot: Slot, ledger: Ledger) -> Message:
    name, raw = block.get("name"), block.get("input")
    good = stored_name(name) == name and stored_object(raw, ANY_SIZE) == raw
    if not good:
        ledger.note(index, f"half-formed call {slot.wanted.id!r} stored in a valid form")
    if good and block.get("id") == slot.wanted.id:
        return block
    return stored_call(block, slot.wanted.id, ANY_SIZE)


def _mended_result(index: int, slot: Slot, ledger: Ledger) -> Message:
    if slot.found is None:
        return result(slot.wanted.id, ledger.closing(index, slot), is_error=True)
    mended = changed(slot.found.body, tool_use_id=slot.wanted.id)
    if mended is not slot.found.body:
        ledger.note(slot.found.place[0], f"result addressed to call {slot.wanted.id!r}")
    return mended
