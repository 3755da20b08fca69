"""What the providers demand of calls and results in a transcript, written down independently.

Each check returns the rules that a transcript breaks, as sentences; an empty list is valid.
"""

from __future__ import annotations

import json
from typing import Any

Messages = list[dict[str, Any]]


def problems(format: str, messages: Messages) -> list[str]:
    """What is wrong with a transcript in `format`."""
    found = {
        "openai-chat": chat_problems,
        "openai-responses": responses_problems,
        "anthropic-messages": anthropic_problems,
    }[format](messages)
    try:
        json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        found.append(f"not valid JSON in UTF-8: {error}")
    return found


def is_object_text(text: object) -> bool:
    """Whether `text` is the JSON text of an object."""
    if not isinstance(text, str):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def chat_problems(messages: Messages) -> list[str]:
    """A message with calls is followed directly by one result per call, in call order."""
    found: list[str] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message.get("role") in ("tool", "function"):
            found.append(f"message {position - 1}: a result that follows no call")
        if message.get("role") != "assistant":
            continue
        calls = message.get("tool_calls")
        legacy = message.get("function_call")
        if calls == []:
            found.append(f"message {position - 1}: empty list of calls")
        if calls and legacy:
            found.append(f"message {position - 1}: two kinds of calls")
        found += [p for call in calls or [] for p in _chat_call_problems(call)]
        if legacy and not is_object_text(legacy.get("arguments")):
            found.append(f"message {position - 1}: legacy arguments are not a JSON object")
        want = [("tool", call.get("id")) for call in calls or []]
        if legacy:
            want.append(("function", legacy.get("name")))
        ids = [key for _, key in want]
        if len(set(ids)) != len(ids):
            found.append(f"message {position - 1}: ids repeat: {ids}")
        for role, key in want:
            got = messages[position] if position < len(messages) else {}
            if (got.get("role"), got.get("tool_call_id", got.get("name"))) != (role, key):
                found.append(f"message {position}: expected the result of {key!r}, found {got}")
                break
            if not isinstance(got.get("content"), str | list):
                found.append(f"message {position}: a result without content")
            position += 1
    return found


def _chat_call_problems(call: dict[str, Any]) -> list[str]:
    found = [] if call.get("id") and isinstance(call["id"], str) else [f"call without id: {call}"]
    if "custom" in call:
        if not isinstance(call["custom"].get("input"), str):
            found.append(f"custom call without input: {call}")
        return found
    if not call.get("function", {}).get("name"):
        found.append(f"call without name: {call}")
    if not is_object_text(call.get("function", {}).get("arguments")):
        found.append(f"arguments are not a JSON object: {call}")
    return found


def responses_problems(items: Messages) -> list[str]:
    """Each call has one output of its kind, after it, in call order, before the user speaks."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = []
    answered: set[Any] = set()
    for position, item in enumerate(items):
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            key = item.get("call_id")
            if not key or key in answered or key in [k for _, k in waiting]:
                found.append(f"item {position}: call_id {key!r} is missing or repeats")
            if not item.get("name"):
                found.append(f"item {position}: call without name")
            if kind == "function_call" and not is_object_text(item.get("arguments")):
                found.append(f"item {position}: arguments are not a JSON object")
            waiting.append((f"{kind}_output", key))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if not waiting or waiting[0] != (kind, item.get("call_id")):
                found.append(f"item {position}: output {item} but waiting for {waiting}")
            else:
                answered.add(waiting.pop(0)[1])
        elif item.get("role") in ("user", "system", "developer") and waiting:
            found.append(f"item {position}: the user speaks while {waiting} wait")
    if waiting:
        found.append(f"no output of {waiting}")
    return found


def anthropic_problems(messages: Messages) -> list[str]:
    """The message after one with calls is the user's and begins with their results, in order."""
    found: list[str] = []
    want: list[Any] = []
    seen: set[Any] = set()
    for position, message in enumerate(messages):
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        if content in ([], None):
            found.append(f"message {position}: no content")
        results = [b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result"]
        leading = [b.get("type") for b in blocks[: len(want)]]
        if results != want or (want and message.get("role") != "user"):
            found.append(f"message {position}: results {results} where {want} are due")
        elif leading != ["tool_result"] * len(want):
            found.append(f"message {position}: the results do not come first")
        want = []
        for block in blocks:
            if block.get("type") != "tool_use":
                continue
            key = block.get("id")
            if not key or key in seen:
                found.append(f"message {position}: id {key!r} is missing or repeats")
            if not block.get("name") or not isinstance(block.get("input"), dict):
                found.append(f"message {position}: call without name or input object: {block}")
            seen.add(key)
            want.append(key)
    if want:
        found.append(f"no results of {want}")
    return found
