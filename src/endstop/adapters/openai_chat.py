"""The adapters: OpenAI chat completions, and the many servers that speak it.

Calls stand in the assistant's message as `tool_calls`; each is answered by one message of role
`tool`. The older `function_call` is answered by role `function`. No SDK, no I/O.
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
    stored_text,
    text_of,
    unique_ids,
)
from endstop.core.payload import ARGUMENTS_LIMIT
from endstop.core.text import scrub
from endstop.errors import CallerError

CUT = frozenset(
    {
        "content_filter",
        "error",
        "insufficient_system_resource",
        "length",
        "max_tokens",
        "model_length",
        "network_error",
    }
)
"""The finish reasons of replies that are not whole. Unknown ones count as whole."""


def read(body: Mapping[str, Any]) -> Parsed:
    """Read a response body, one choice of it, or a bare assistant message."""
    notes: list[str] = []
    choice: Mapping[str, Any] = body
    if "choices" in body:
        choices = [mapping_of(item) for item in listed(body["choices"], "`choices`")]
        if not choices:
            raise CallerError("The reply has an empty list of `choices`: there is no answer in it")
        choice = next((item for item in choices if _has_calls(item)), choices[0])
        if len(choices) > 1:
            others = sum(_has_calls(item) for item in choices) - _has_calls(choice)
            notes.append(
                f"the reply has {len(choices)} choices: choice {choices.index(choice)} is used,"
                f" the calls of {others} others are not"
            )
    message = mapping_of(choice.get("message", choice if "role" in choice else None))
    if not message:
        raise CallerError("The reply's choice has no `message` with a `role`")
    reason = text_of(choice.get("finish_reason")).lower()
    return _read_message(message, reason if reason in CUT else None, notes)


def _has_calls(choice: Mapping[str, Any]) -> bool:
    message = mapping_of(choice.get("message"))
    return bool(message.get("tool_calls") or message.get("function_call"))


def _read_message(
    message: Mapping[str, Any], cut: str | None, notes: list[str], limit: int = ARGUMENTS_LIMIT
) -> Parsed:
    entries = call_entries(message)
    ids = unique_ids([text_of(entry.get("id")) for entry in entries])
    wanted: list[Wanted] = []
    for entry, made_id in zip(entries, ids, strict=True):
        kind, name, raw = call_parts(entry)
        call = read_call(text_of(entry.get("id")), name, raw, cut, limit)
        wanted.append(Wanted(call=call, id=made_id, kind=kind))
    legacy = message.get("function_call")
    if legacy and not entries:
        legacy = mapping_of(legacy)
        call = read_call("", legacy.get("name"), legacy.get("arguments"), cut, limit)
        wanted.append(Wanted(call=call, id="", kind="legacy"))
    elif legacy:
        notes.append("`function_call` beside `tool_calls` repeats one of them and is left out")
    text = joined_text(message.get("content")) or joined_text(message.get("refusal"))
    return Parsed(
        wanted=tuple(wanted),
        message=stored_message(message, ids, limit),
        text=text,
        cut=cut,
        notes=tuple(notes),
    )


def call_entries(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of `tool_calls`; one that is no object counts, as an empty object."""
    return [mapping_of(entry) for entry in listed(message.get("tool_calls"), "`tool_calls`")]


def call_parts(entry: Mapping[str, Any]) -> tuple[str, object, object]:
    """The kind, tool name and raw arguments of one entry of `tool_calls`."""
    custom = entry.get("custom")
    if isinstance(custom, Mapping) and not entry.get("function"):
        return "custom", custom.get("name"), {"input": text_of(custom.get("input"))}
    function = mapping_of(entry.get("function"))
    return "function", function.get("name"), function.get("arguments")


def stored_message(message: Mapping[str, Any], ids: list[str], limit: int) -> Message:
    """The assistant's message as it may be sent back, its calls under `ids`."""
    # Some servers fill in null for what is not there, and refuse it when it comes back.
    kept = {
        key: clean(value, f"message.{key}")
        for key, value in message.items()
        if key not in ("tool_calls", "function_call") and (value is not None or key == "content")
    }
    stored: Message = {"role": "assistant", **kept}
    entries = call_entries(message)
    legacy = message.get("function_call")
    if entries:
        pairs = zip(entries, ids, strict=True)
        stored["tool_calls"] = [_stored_call(entry, made_id, limit) for entry, made_id in pairs]
    elif legacy:
        stored["function_call"] = _stored_function(mapping_of(legacy), limit)
    if "content" not in stored or (stored["content"] is None and not (entries or legacy)):
        stored["content"] = None if entries or legacy else ""
    return stored


def _stored_call(entry: Mapping[str, Any], made_id: str, limit: int) -> Message:
    kind, name, raw = call_parts(entry)
    extra = {
        key: clean(value, f"tool_calls.{key}")
        for key, value in entry.items()
        if key not in ("id", "type", "function", "custom") and value is not None
    }
    if kind == "custom":
        body: Message = {"name": stored_name(name, dots=True), "input": mapping_of(raw)["input"]}
    else:
        body = _stored_function(mapping_of(entry.get("function")), limit)
    return {"id": made_id, "type": kind, kind: body, **extra}


def _stored_function(function: Mapping[str, Any], limit: int) -> Message:
    extra = {
        key: clean(value, f"function.{key}")
        for key, value in function.items()
        if key not in ("name", "arguments")
    }
    return {
        "name": stored_name(function.get("name"), dots=True),
        "arguments": stored_text(function.get("arguments"), limit),
        **extra,
    }


def answer(wanted: tuple[Wanted, ...], observed: list[Observed]) -> list[Message]:
    """One message per call, in request order."""
    return [result(one, seen.text) for one, seen in zip(wanted, observed, strict=True)]


def result(one: Wanted, text: str) -> Message:
    """The message that answers one call."""
    if one.kind == "legacy":
        name = stored_name(one.call.tool, dots=True)
        return {"role": "function", "name": name, "content": scrub(text)}
    return {"role": "tool", "tool_call_id": one.id, "content": scrub(text)}


def mend(messages: list[Message], ledger: Ledger) -> list[Message]:
    """A transcript in which each message with calls is followed by their results, in order."""
    opened: dict[int, list[Slot]] = {}
    for index, message in enumerate(messages):
        match message.get("role"):
            case "tool":
                key = text_of(message.get("tool_call_id"))
                ledger.take(Found(place=(index, 0), key=key, body=message))
            case "function":
                key = text_of(message.get("name"))
                ledger.take(Found(place=(index, 0), key=key, body=message, by_name=True))
            case "assistant" if message.get("tool_calls") or message.get("function_call"):
                wanted = _read_message(message, None, [], ANY_SIZE).wanted
                opened[index] = ledger.open(index, wanted)
            case _:
                pass
    ledger.close()
    mended: list[Message] = []
    for index, message in enumerate(messages):
        if index in opened:
            slots = opened[index]
            ledger.note_moves(index, slots, (index + 1, 0), (1, 0))
            mended.append(_mended_calls(index, message, slots, ledger))
            mended += [_mended_result(index, slot, ledger) for slot in slots]
        elif message.get("role") == "assistant" and message.get("tool_calls") == []:
            ledger.note(index, "empty list of calls dropped")
            mended.append({key: value for key, value in message.items() if key != "tool_calls"})
        elif message.get("role") not in ("tool", "function"):
            mended.append(message)
    return mended


def _mended_calls(index: int, message: Message, slots: list[Slot], ledger: Ledger) -> Message:
    entries = call_entries(message)
    if not entries:
        function = mapping_of(message["function_call"])
        if _is_storable(function):
            return message
        ledger.note(index, "half-formed call stored in a valid form")
        return {**message, "function_call": _stored_function(function, ANY_SIZE)}
    calls: list[Mapping[str, Any]] = []
    for entry, slot in zip(entries, slots, strict=True):
        kind, name, _ = call_parts(entry)
        good = stored_name(name, dots=True) == name
        good = good and (kind == "custom" or _is_storable(mapping_of(entry.get("function"))))
        if not good:
            ledger.note(index, f"half-formed call {slot.wanted.id!r} stored in a valid form")
        same = good and entry.get("id") == slot.wanted.id
        calls.append(entry if same else _stored_call(entry, slot.wanted.id, ANY_SIZE))
    mended = changed(message, tool_calls=calls)
    if mended.get("function_call"):
        ledger.note(index, "`function_call` beside `tool_calls` dropped")
        mended = {key: value for key, value in mended.items() if key != "function_call"}
    return mended


def _is_storable(function: Mapping[str, Any]) -> bool:
    name, raw = function.get("name"), function.get("arguments")
    return stored_name(name, dots=True) == name and stored_text(raw, ANY_SIZE) == raw


def _mended_result(index: int, slot: Slot, ledger: Ledger) -> Message:
    if slot.found is None:
        return result(slot.wanted, ledger.closing(index, slot))
    if slot.wanted.kind == "legacy":
        name = stored_name(slot.wanted.call.tool, dots=True)
        mended = changed(slot.found.body, role="function", name=name)
    else:
        mended = changed(slot.found.body, role="tool", tool_call_id=slot.wanted.id)
    if mended is not slot.found.body:
        ledger.note(slot.found.place[0], f"result addressed to call {slot.wanted.id!r}")
    return mended
