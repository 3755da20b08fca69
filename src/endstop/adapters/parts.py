"""The adapters: what the message formats share.

No SDK is imported in this room, nothing here runs a tool and nothing changes what it was given:
messages are copied as far as they change. The formats differ in where calls and results stand;
what makes ids unique, arguments storable and text readable is decided here, once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from endstop.core.payload import (
    ARGUMENTS_LIMIT,
    RAW_LIMIT,
    PayloadLimits,
    Unserialisable,
    dumps,
    read_arguments,
    safe_text,
    to_data,
)
from endstop.core.terms import ToolCall
from endstop.core.text import scrub
from endstop.errors import CallerError

Message = dict[str, Any]

CHAT = "openai-chat"
RESPONSES = "openai-responses"
ANTHROPIC = "anthropic-messages"
FORMATS = (CHAT, RESPONSES, ANTHROPIC)

UNREADABLE = "unreadable_arguments"
"""The one key of stored arguments that stand for arguments which could not be read."""

ANY_SIZE = 200_000_000
"""Characters of arguments in a transcript: they were accepted once, however large they are."""

_MESSAGE_LIMITS = PayloadLimits(depth=200, items=2_000_000, chars=ANY_SIZE)
_BAD_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_BAD_IN_DOTTED_NAME = re.compile(r"[^A-Za-z0-9_.:/-]")
_NAME_LIMIT = 64
_LONGEST_NAME = 128


class Observed(Protocol):
    """What a format needs of an observation: its words, and whether they report a failure."""

    @property
    def text(self) -> str: ...

    @property
    def is_error(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One call as it stands in a reply: the call, its stored form's id and how it is answered.

    `kind` is the format's own word for the form of the call ("function", "custom", "legacy").
    """

    call: ToolCall
    id: str
    kind: str = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A reply, read by one format: `cut` says why the reply is not whole, None that it is."""

    wanted: tuple[Wanted, ...]
    message: Message | list[Message]
    text: str = ""
    cut: str | None = None
    notes: tuple[str, ...] = ()


def clean(value: object, where: str) -> Any:
    """A JSON- and UTF-8-safe copy of a part of a message. Raises `CallerError`."""
    try:
        return to_data(value, limits=_MESSAGE_LIMITS, where=where)
    except Unserialisable as error:
        raise CallerError(f"A message cannot be read. {error}") from error


def text_of(value: object) -> str:
    """An id or name as text, whatever it came as; None is empty."""
    if isinstance(value, str):
        return scrub(value)
    return "" if value is None or isinstance(value, (Mapping, list)) else safe_text(str(value), 200)


def _arguments(raw: object, limit: int) -> tuple[Message | None, str | None]:
    if raw is None or isinstance(raw, (str, bytes, Mapping)):
        return read_arguments(raw, limit=limit)
    # Neither text nor an object: written as JSON, it is refused in the same words as JSON text.
    return read_arguments(raw_text(raw), limit=limit)


def read_call(
    model_id: str, name: object, raw: object, cut: str | None = None, limit: int = ARGUMENTS_LIMIT
) -> ToolCall:
    """One call with its arguments read; unusable ones keep what was received, bounded."""
    tool = text_of(name)
    arguments, problem = _arguments(raw, limit)
    if not tool:
        problem = "The call names no tool. Name one of the tools that were offered."
    if cut is not None:
        problem = cut_off(cut)
    if problem is None:
        return ToolCall(model_id=model_id, tool=tool, arguments=arguments)
    return ToolCall(
        model_id=model_id, tool=tool, arguments=None, raw=raw_text(raw), problem=problem
    )


def cut_off(reason: str) -> str:
    """What the model reads of a call in a reply that is not whole."""
    return (
        f"The reply was cut off ({reason}), so none of its calls was started."
        " Make the call again, in a shorter reply if need be."
    )


def raw_text(raw: object) -> str:
    """Arguments as they were received, as bounded text."""
    if isinstance(raw, (str, bytes)):
        return safe_text(raw, RAW_LIMIT)
    try:
        return safe_text(dumps(to_data(raw, where="arguments")), RAW_LIMIT)
    except Unserialisable as error:
        return f"(arguments that cannot be shown: {error.problem})"


def stored_object(raw: object, limit: int = ARGUMENTS_LIMIT) -> Message:
    """The arguments as an object that every provider takes back; see `UNREADABLE`."""
    arguments, problem = _arguments(raw, limit)
    if problem is None:
        assert arguments is not None, "no problem means arguments"
        return arguments
    return {UNREADABLE: raw_text(raw)}


def stored_text(raw: object, limit: int = ARGUMENTS_LIMIT) -> str:
    """The arguments as JSON text that every provider takes back; good text stays as it is."""
    if isinstance(raw, str) and raw and not raw.isspace():
        arguments, problem = read_arguments(raw, limit=limit)
        if problem is None and raw.strip() != "null" and scrub(raw) == raw:
            assert arguments is not None, "no problem means arguments"
            return raw
    return dumps(stored_object(raw, limit))


def stored_name(name: object, *, dots: bool = False) -> str:
    """A tool name that providers take back in a transcript; a good one stays as it is.

    Some servers behind the chat format allow dots and the like, so there they stay.
    """
    tool = text_of(name)
    fixed = (_BAD_IN_DOTTED_NAME if dots else _BAD_IN_NAME).sub("_", tool)
    if len(fixed) > _LONGEST_NAME:
        fixed = fixed[:_NAME_LIMIT]
    return fixed or "unnamed_tool"


def unique_ids(ids: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """`ids` made non-empty and unique, deterministically; good ones stay as they are.

    The first holder of an id keeps it. Made ids keep the length and alphabet of a repeated id
    where they can, because providers check both.
    """
    used = {*taken, *ids}
    seen = set(taken)
    made: list[str] = []
    for position, old in enumerate(ids):
        new = old
        if not old or old in seen:
            new = _fresh(old, position + 1, used)
            used.add(new)
        seen.add(new)
        made.append(new)
    assert len({*made, *taken}) == len(made) + len(set(taken)), "made ids are new and unique"
    return made


def _fresh(old: str, number: int, used: Collection[str]) -> str:
    while True:
        if not old:
            new = f"call{number:05d}"
        elif len(old) >= 9:
            new = f"{old[: -len(str(number))]}{number}"
        else:
            new = f"{old}_{number}"
        if new not in used:
            return new
        number += 1


def joined_text(content: object) -> str:
    """The readable text of a message's content: a text, or parts with `text` or `refusal`."""
    if isinstance(content, str):
        return scrub(content)
    if not isinstance(content, (list, tuple)):
        return ""
    return scrub("".join(_part_texts(content)))


def _part_texts(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping) and part.get("type") in (
            "text",
            "output_text",
            "refusal",
            None,
        ):
            text = part.get("text", part.get("refusal"))
            if isinstance(text, str):
                yield text


def listed(value: object, what: str) -> list[Any]:
    """`value` as a list: None is empty, a lone object is a list of one. Raises `CallerError`."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, (list, tuple)):
        return list(value)
    raise CallerError(f"{what} is {type(value).__name__}, where a list is expected")


def mapping_of(value: object) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one: a call that is no object stays visible."""
    return value if isinstance(value, Mapping) else {}
