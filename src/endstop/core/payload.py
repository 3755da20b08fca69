"""The pure core: what crosses the boundary as data (law 19 any-payload).

Arguments, results and text come from models and from tools: they may be cyclic, huge, nested
without end, not JSON and not even UTF-8. Here they are bounded and made JSON- and UTF-8-safe,
once; everything behind this file may trust them. Nothing here may wait, log, do I/O or let a
hostile value raise anything but `Unserialisable` (or return a problem in words).

Decisions a reader may look for:

* NaN and the infinities of a result become null: JSON has no word for them, the string "NaN"
  would break the result's schema, and failing a call whose effect is done would be worse. In
  arguments they are a problem instead, because a body must not run on a guess.
* Lone surrogates and invalid UTF-8 become U+FFFD. NUL is valid in JSON and stays in data, so
  that a tool gets what it was sent; in text for reading it becomes the visible U+2400.
* Decimal becomes text (a float would lose digits), timedelta becomes seconds, bytes are read as
  UTF-8, sets become lists in a stable order.
* Integers above `INT_BITS` are refused: Python itself will not print them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any, TypeAlias

from endstop.core.text import Doubled, InvalidJson, describe_error, loads, safe_text, scrub

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

__all__ = [
    "ARGUMENTS_LIMIT",
    "RAW_LIMIT",
    "JsonValue",
    "PayloadLimits",
    "Unserialisable",
    "canonical",
    "dumps",
    "read_arguments",
    "safe_text",
    "to_data",
]

ARGUMENTS_LIMIT = 1_000_000
"""Characters of the arguments of one call, unless the caller says otherwise."""

RAW_LIMIT = 2_000
"""Characters of unreadable arguments that are kept to be shown."""

INT_BITS = 14_000
"""Largest integer, in bits: about 4,200 digits, under the 4,300 that Python will print."""

_SAY_JSON = "Send one JSON object with the arguments by name."


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLimits:
    """Bounds of one payload: levels of nesting, values in all, characters in all."""

    depth: int = 100
    items: int = 200_000
    chars: int = 10_000_000


_LIMITS = PayloadLimits()


class Unserialisable(ValueError):
    """A value has no JSON form: `path` says where, `problem` what is wrong and what to do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[Unserialisable], tuple[str, str]]:
        return type(self), (self.path, self.problem)


def to_data(
    value: object,
    *,
    limits: PayloadLimits = _LIMITS,
    where: str = "result",
    strict: bool = False,
) -> Any:
    """A copy of `value` made of None, bool, int, float, str, list and dict with text keys.

    `where` names the value in error paths such as `result.handle[3]`. With `strict`, numbers
    that are not finite and objects that named a key twice are refused instead of repaired.

    Raises `Unserialisable` for cycles, for more than `limits`, and for what has no JSON form;
    nothing else, whatever the value does when it is read (law 19 any-payload).
    """
    walk = _Walk(limits, where, strict)
    try:
        return walk.any(value, 0)
    except Unserialisable:
        raise
    except RecursionError:
        raise walk.refuse("is nested too deeply here: use a flatter value") from None
    except Exception as error:
        raise walk.refuse(f"could not be read: {describe_error(error)}") from error


class _Walk:
    """One pass over one value. `path` is a stack, joined only when something is wrong."""

    def __init__(self, limits: PayloadLimits, where: str, strict: bool) -> None:
        self.limits = limits
        self.where = where
        self.strict = strict
        self.items = limits.items
        self.chars = limits.chars
        self.path: list[str | int] = []
        self.open: set[int] = set()

    def refuse(self, problem: str) -> Unserialisable:
        return Unserialisable(self.where + _joined(self.path), problem)

    def too_much(self) -> Unserialisable:
        return self.refuse(
            f"brings the text to more than {self.limits.chars} characters in all: use less"
        )

    def any(self, value: object, depth: int) -> Any:
        self.items -= 1
        if self.items < 0:
            raise self.refuse(f"holds more than {self.limits.items} values in all: use fewer")
        # Exact types first: they are nearly everything, and cost nothing to tell apart.
        kind = type(value)
        if kind is str:
            return self.text(value)  # type: ignore[arg-type]
        if value is None or kind is bool:
            return value
        if kind is int:
            return self.integer(value)  # type: ignore[arg-type]
        if kind is float:
            return self.number(value)  # type: ignore[arg-type]
        if depth >= self.limits.depth:
            raise self.refuse(
                f"is nested more than {self.limits.depth} levels deep: use a flatter value"
            )
        mark = id(value)
        if mark in self.open:
            raise self.refuse("contains itself: use a value without cycles")
        self.open.add(mark)
        if kind is dict:
            made: Any = self.mapping(value, depth)  # type: ignore[arg-type]
        elif kind is list or kind is tuple:
            made = self.sequence(value, depth)  # type: ignore[arg-type]
        else:
            made = self.other(value, depth)
        self.open.discard(mark)
        return made

    def text(self, value: str) -> str:
        self.chars -= len(value)
        if self.chars < 0:
            raise self.too_much()
        return value if value.isascii() else scrub(value)

    def integer(self, value: int) -> int:
        if value.bit_length() > INT_BITS:
            raise self.refuse(
                f"is an integer of {value.bit_length()} bits, too large for JSON:"
                " write it as text, for example in hex"
            )
        return value

    def number(self, value: float) -> float | None:
        if isfinite(value):
            return value
        if self.strict:
            raise self.refuse(
                "is NaN, infinite or too large, which JSON cannot express: use a number or null"
            )
        return None

    def mapping(self, value: Mapping[Any, object], depth: int) -> dict[str, Any]:
        if self.strict and type(value) is Doubled:
            raise self.refuse(f"has the key {value.key!r} twice: name each key once")
        made: dict[str, Any] = {}
        path = self.path
        for key, item in value.items():
            name = self.text(key) if type(key) is str else self.key(key)
            path.append(name)
            if name in made:
                raise self.refuse("appears twice once keys are written as text: use distinct keys")
            made[name] = self.any(item, depth + 1)
            path.pop()
        return made

    def key(self, key: object) -> str:
        match key:
            case Enum():
                return self.key(key.value)
            case str():
                return self.text(str.__str__(key))
            case bool():
                return "true" if key else "false"
            case None:
                return "null"
            case int():
                return str(self.integer(int.__int__(key)))
            case float() if isfinite(key):
                return repr(float.__float__(key))
            case _ if _is_text_like(key):
                return self.text(_as_text(key))
            case _:
                raise self.refuse(
                    f"has a key of type {_name(key)}, which JSON cannot express: use text keys"
                )

    def sequence(self, value: Iterable[object], depth: int) -> list[Any]:
        path = self.path
        made: list[Any] = []
        path.append(0)
        for index, item in enumerate(value):
            path[-1] = index
            made.append(self.any(item, depth + 1))
        path.pop()
        return made

    def other(self, value: object, depth: int) -> Any:
        match value:
            case Enum():
                return self.any(value.value, depth + 1)
            case str():
                return self.text(str.__str__(value))
            case int():
                return self.integer(int.__int__(value))
            case float():
                return self.number(float.__float__(value))
            case bytes() | bytearray() | memoryview():
                # No character has more than four bytes: refuse before decoding what is too large.
                if len(value) > 4 * self.chars:
                    raise self.too_much()
                return self.text(bytes(value).decode(errors="replace"))
            case Decimal():
                return self.text(str(value)) if value.is_finite() else self.number(float("nan"))
            case timedelta():
                return value.total_seconds()
            case Mapping():
                return self.mapping(value, depth)
            case Set():
                return sorted(self.sequence(value, depth), key=_sort_key)
            case Sequence():
                return self.sequence(value, depth)
            case _ if _is_text_like(value):
                return self.text(_as_text(value))
            case _:
                return self.object(value, depth)

    def object(self, value: object, depth: int) -> Any:
        if not isinstance(value, type):
            dump = getattr(value, "model_dump", None)
            if callable(dump):
                return self.any(dump(mode="json"), depth + 1)
            if is_dataclass(value):
                return self.mapping({f.name: getattr(value, f.name) for f in fields(value)}, depth)
            plain = getattr(value, "tolist", None)
            if callable(plain):
                return self.any(plain(), depth + 1)
        raise self.refuse(
            f"is of type {_name(value)}, which has no JSON form:"
            " use plain data (text, numbers, lists, dicts), a dataclass or a model"
        )


def _is_text_like(value: object) -> bool:
    # uuid may not be imported in this room, and need not be.
    return isinstance(value, (date, time, PurePath)) or (
        type(value).__name__ == "UUID" and type(value).__module__ == "uuid"
    )


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def _name(value: object) -> str:
    return safe_text(type(value).__qualname__, 100)


def _sort_key(value: object) -> str:
    return type(value).__name__ + canonical(value)


def _joined(path: list[str | int]) -> str:
    shown = path if len(path) <= 20 else [*path[:10], "…", *path[-10:]]
    return "".join(map(_step, shown))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    plain = step == "…" or (len(step) <= 60 and step.isidentifier())
    return f".{step}" if plain else f"[{step[:60]!r}]"


def read_arguments(
    raw: str | bytes | Mapping[str, Any] | None, *, limit: int = ARGUMENTS_LIMIT
) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments of one call as `(arguments, problem)`; exactly one of them is None.

    None, an empty text and the JSON null mean `{}`: providers send all three for a tool that
    takes no arguments. `limit` is in characters. A problem is worded for the model that made
    the call. Never raises (law 19 any-payload: invalid calls run nothing and stay visible).
    """
    value: object = raw
    if isinstance(raw, (str, bytes, bytearray)):
        if len(raw) > limit:
            return None, _too_large(len(raw), limit)
        text = raw if isinstance(raw, str) else raw.decode(errors="replace")
        try:
            value = loads(text) if text.strip() else None
        except InvalidJson as error:
            return None, f"The arguments are not valid JSON: {error}. {_SAY_JSON}"
    if value is None:
        return {}, None
    if not isinstance(value, Mapping):
        return None, f"The arguments are {_spoken(value)}, not an object. {_SAY_JSON}"
    try:
        data = to_data(value, limits=PayloadLimits(chars=limit), where="arguments", strict=True)
    except Unserialisable as error:
        return None, f"The arguments cannot be used. {error}. {_SAY_JSON}"
    assert isinstance(data, dict), "a mapping becomes a dict"
    return data, None


def _too_large(size: int, limit: int) -> str:
    return (
        f"The arguments are too large: {size} characters, where at most {limit} are accepted."
        " Send less, in several calls if need be."
    )


def _spoken(value: object) -> str:
    match value:
        case list():
            return "a list"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text (an object must not be wrapped in quotes)"
        case _:
            return f"a value of type {_name(value)}"


_Encode = Callable[[object], str]
_ENCODE: _Encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
_ENCODE_SORTED: _Encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode


def dumps(value: object) -> str:
    """Compact JSON that is valid and encodes as UTF-8. Meant for data that `to_data` made.

    What the encoder refuses is taken through `to_data`; `Unserialisable` if that refuses too.
    """
    return _written(_ENCODE, value)


def canonical(value: object) -> str:
    """The one JSON text of `value`, keys sorted: what digests are made of.

    Equal data gives equal text; 1 and 1.0 are different data. Raises `Unserialisable`.
    """
    return _written(_ENCODE_SORTED, value)


def _written(encode: _Encode, value: object) -> str:
    try:
        text = encode(value)
        if not text.isascii():
            text.encode()
    except Exception:  # noqa: BLE001 - what a value does when it is read decides what comes
        return encode(to_data(value, where="value"))
    return text
