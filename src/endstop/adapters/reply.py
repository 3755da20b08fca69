"""The adapters: one model reply in, tool calls out; observations in, tool messages out.

The only file that knows which formats exist. It runs nothing and imports no SDK. What is not
a reply at all is refused with `CallerError`; a bad call inside a reply is not: it becomes a call
with a `problem`, so that it stays visible and is answered (law 4 one-answer, law 19 any-payload).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from endstop.adapters import anthropic, openai_chat, openai_responses
from endstop.adapters.parts import (
    ANTHROPIC,
    CHAT,
    FORMATS,
    RESPONSES,
    Message,
    Observed,
    Parsed,
    Wanted,
    clean,
    mapping_of,
    text_of,
)
from endstop.core.terms import ToolCall
from endstop.core.text import InvalidJson, loads, safe_text
from endstop.errors import CallerError

_RESPONSES_ITEMS = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One model reply.

    `calls` are in request order. `assistant_message` is what to store of the reply: a message,
    or for `openai-responses` a list of items; its ids are unique and its arguments valid JSON,
    whatever the model sent. Where `truncated`, `reason` says why and no call may run: each
    carries a `problem`. `notes` say what of the reply was left aside.
    """

    format: str
    calls: tuple[ToolCall, ...]
    assistant_message: Message | list[Message]
    text: str = ""
    truncated: bool = False
    reason: str | None = None
    notes: tuple[str, ...] = ()
    _wanted: tuple[Wanted, ...] = field(default=(), repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its calls in `assistant_message`, in order; empty for a call without one."""
        return tuple(one.id for one in self._wanted)

    def stored(self) -> list[Message]:
        """`assistant_message` as a list to extend a transcript with; empty if nothing is in it."""
        if isinstance(self.assistant_message, list):
            return list(self.assistant_message)
        if self.format == ANTHROPIC and not self.assistant_message["content"]:
            return []
        return [self.assistant_message]

    def answer(self, observations: Sequence[Observed]) -> list[Message]:
        """The tool messages to send after `assistant_message`: one result per call, in order.

        `observations` are in request order, one per call (law 4 one-answer). Raises
        `CallerError` when there are more or fewer.
        """
        observed = list(observations)
        if len(observed) != len(self._wanted):
            raise CallerError(
                f"The reply has {len(self._wanted)} calls and {len(observed)} observations were"
                " given: give exactly one per call, in the order of `calls`"
            )
        match self.format:
            case "openai-chat":
                return openai_chat.answer(self._wanted, observed)
            case "openai-responses":
                return openai_responses.answer(self._wanted, observed)
            case _:
                return anthropic.answer(self._wanted, observed)


def read_reply(
    reply: str | bytes | Mapping[str, Any] | list[Any], format: str | None = None
) -> Reply:
    """Read a model's reply as it was received: JSON text or parsed, whole body or bare message.

    `format` is "openai-chat", "openai-responses" or "anthropic-messages"; None finds out.
    Raises `CallerError` when the JSON is broken, or the format unknown or not to be told.
    """
    if format is not None and format not in FORMATS:
        raise CallerError(f"Unknown format {format!r}: use {_accepted()}, or none to find out")
    body = _parsed(reply)
    found = format or _detect(body)
    match found:
        case "openai-chat":
            parsed = openai_chat.read(_object(body, found))
        case "openai-responses":
            parsed = openai_responses.read(body)
        case _:
            parsed = anthropic.read(body)
    return _made(found, parsed)


def _made(format: str, parsed: Parsed) -> Reply:
    assert parsed.cut is None or all(one.call.problem for one in parsed.wanted), "cut runs nothing"
    return Reply(
        format=format,
        calls=tuple(one.call for one in parsed.wanted),
        assistant_message=parsed.message,
        text=parsed.text,
        truncated=parsed.cut is not None,
        reason=parsed.cut,
        notes=parsed.notes,
        _wanted=parsed.wanted,
    )


def _accepted() -> str:
    return ", ".join(f"{name!r}" for name in FORMATS)


def _parsed(reply: object) -> Mapping[str, Any] | list[Any]:
    body = reply
    if isinstance(reply, (str, bytes, bytearray)):
        text = reply if isinstance(reply, str) else reply.decode(errors="replace")
        if not text.strip():
            raise CallerError("The reply is empty: give the response body as the provider sent it")
        try:
            body = loads(text.lstrip("\ufeff"))
        except InvalidJson as error:
            raise CallerError(f"The reply is not valid JSON: {error}") from error
    elif callable(getattr(reply, "model_dump", None)):
        body = clean(reply, "reply")
    if isinstance(body, (Mapping, list)):
        return body
    raise CallerError(
        f"The reply is a {type(body).__name__}, where a response body is expected: JSON text,"
        " or the object or list parsed from it"
    )


def _object(body: Mapping[str, Any] | list[Any], format: str) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        return body
    raise CallerError(f"The reply is a list, where format {format!r} has an object")


def _detect(body: Mapping[str, Any] | list[Any]) -> str:
    if isinstance(body, list):
        found = _detect_items(body)
    elif "choices" in body or "message" in body:
        found = CHAT
    elif isinstance(body.get("output"), list) or body.get("object") == "response":
        found = RESPONSES
    elif "tool_calls" in body or "function_call" in body:
        found = CHAT
    elif "stop_reason" in body:
        found = ANTHROPIC
    else:
        found = _detect_message(body)
    if found is None:
        raise CallerError(_cannot_tell(body))
    return found


def _detect_message(body: Mapping[str, Any]) -> str | None:
    if text_of(body.get("type")) in openai_responses.OUTPUT_OF:
        return RESPONSES
    content = body.get("content")
    if isinstance(content, list):
        found = _detect_items(content)
        # Nothing but text: the formats agree on it, except for what they call themselves.
        if found is None and _only_text(content):
            found = ANTHROPIC if body.get("type") == "message" else CHAT
        return found if body.get("role") == "assistant" or body.get("type") == "message" else None
    return CHAT if body.get("role") == "assistant" else None


def _detect_items(items: list[Any]) -> str | None:
    for item in items:
        kind = text_of(mapping_of(item).get("type"))
        if kind in _ANTHROPIC_BLOCKS:
            return ANTHROPIC
        if kind in _RESPONSES_ITEMS or kind == "output_text" or kind.endswith("_call"):
            return RESPONSES
    return None


def _only_text(items: list[Any]) -> bool:
    return all(isinstance(item, str) or mapping_of(item).get("type") == "text" for item in items)


def _cannot_tell(body: Mapping[str, Any] | list[Any]) -> str:
    if isinstance(body, list):
        kinds = [text_of(mapping_of(item).get("type")) or "no type" for item in body[:5]]
        found = f"a list of {len(body)} items ({', '.join(kinds)})"
    elif "error" in body:
        error = body["error"]
        words = text_of(mapping_of(error).get("message")) or text_of(error)
        found = f"an error of the provider: {safe_text(words, 300)}"
    else:
        found = f"an object with the keys {[text_of(key) for key in list(body)[:10]]}"
    return (
        f"The format of the reply cannot be told: it is {found}."
        f" Give a response body or assistant message in one of {_accepted()}, or name the format"
    )
