"""The codec of the stores: an event as (kind, call, body) and back, exact in both directions.

Pure translation: nothing here opens a file, knows a clock or changes an event. `run` and `call` of
an event are columns of their own; the body is compact JSON of every other field that differs from
its default. Encoders and decoders are made once, from the fields of each class, so that a new field
with a default needs no line here and old journals stay readable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from math import isfinite
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from endstop.core.events import Event
from endstop.core.terms import Contract, Money
from endstop.errors import JournalError
from endstop.store.kinds import KINDS

FORMAT = 1
"""The version of the bodies that this module writes; a store keeps it beside them."""

BLOB_CHARS = 64 * 1024
"""Longest body that stays in its row; of a longer one, the big fields move beside the journal."""

Blobs = list[tuple[str, str]]
"""Big fields of one event: (digest, JSON text)."""
Row = tuple[str, str | None, str]
"""(kind, call, body) of one event; `call` is None for events of a run or a batch."""
Encode = Callable[[Any], str]
Decode = Callable[[Any], Any]

# Marks a field whose text lies beside the journal. No field name contains it.
_BESIDE = "@"
_COLUMNS = frozenset({"run", "call"})
# ASCII with escapes: a lone surrogate in a text must not cost the journal the whole event.
_quote: Encode = json.encoder.encode_basestring_ascii


def _json_encoder() -> Encode:
    """Compact JSON, from one encoder that is kept.

    `JSONEncoder.encode` makes a new C encoder for every value, which takes longer than most values
    of a tool call; where there is no C encoder, that is how it is done.
    """

    def refuse(value: object) -> None:
        raise TypeError(f"a {type(value).__name__} is not JSON")

    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    chunks = make(None, refuse, _quote, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_json = _json_encoder()


def _number(value: Any) -> str:
    # The two exact types are most of what is ever here, and far faster than the general way.
    if type(value) is int:
        return int.__repr__(value)
    if type(value) is float and isfinite(value):
        return float.__repr__(value)
    return _json(value)


def _free(value: Any) -> str:
    return _quote(value) if type(value) is str else _json(value)


class _Unknown(Exception):
    """Something in a body that this version has no name for."""


def encode(event: Event) -> Row:
    """An event as (kind, call, body).

    Raises `JournalError` where a value in it is not JSON: what enters an event is made JSON-safe
    at the boundary (law 19 any-payload), so this is a bug in whoever made the event.
    """
    try:
        kind, write, call = _WRITERS[type(event)]
    except KeyError:
        raise JournalError(f"{type(event).__name__} is not an event that a journal knows") from None
    try:
        return kind, (None if call is None else call(event)), write(event)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise JournalError(f"a {kind} event holds a value that is not JSON: {error}") from error


def split(event: Event) -> tuple[str, Blobs]:
    """The body of an event that is longer than `BLOB_CHARS`, with its big fields taken out.

    The body then holds the digest of each (design §11); `decode` asks for the text by digest.
    """
    blobs: Blobs = []
    parts = []
    # A share per field, so that many fields just below the limit cannot add up to a huge row.
    share = BLOB_CHARS // (len(fields(event)) + 1)
    for name, default, write in _FIELDS[type(event)]:
        value = getattr(event, name)
        if value is default:
            continue
        text = write(value)
        if len(text) > share:
            digest = "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()
            blobs.append((digest, text))
            parts.append(f'"{name}{_BESIDE}":"{digest}"')
        else:
            parts.append(f'"{name}":{text}')
    return "{" + ",".join(parts) + "}", blobs


def decode(
    run: str, kind: str, call: str | None, body: str, blob: Callable[[str], str] | None = None
) -> Event:
    """The event that `encode` turned into (kind, call, body).

    `blob` gives the text of a digest. Raises `JournalError` where the journal was written by a
    newer endstop (a kind, field or word is unknown) or is damaged.
    """
    cls = KINDS.get(kind)
    if cls is None:
        raise _newer(run, f"the kind {kind!r}")
    try:
        return _READERS[cls](run, call, json.loads(body), blob)
    except _Unknown as unknown:
        raise _newer(run, f"{unknown} of a {kind} event") from None
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise JournalError(f"run {run!r}: a {kind} event is damaged: {error}") from error


def _newer(run: str, what: str) -> JournalError:
    return JournalError(
        f"run {run!r} was written by a newer endstop: {what} is unknown here "
        f"(this one reads format {FORMAT}); upgrade endstop to read it"
    )


# --- encoders -------------------------------------------------------------------------------------


def _encoder(hint: Any) -> Encode:
    """How a value of this type becomes JSON text."""
    if hint is str or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return _quote
    if hint is bool:
        return lambda value: "true" if value else "false"
    if hint is Money:
        return lambda money: f'["{money.amount}",{_quote(money.currency)}]'
    if hint is Contract:
        return _ByIdentity(_object_encoder(Contract))
    if is_dataclass(hint) and isinstance(hint, type):
        return _object_encoder(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = _encoder(_without_none(hint))
        return lambda value: "null" if value is None else inner(value)
    if origin is tuple and args[-1] is Ellipsis:
        item = _encoder(args[0])
        return lambda values: f"[{','.join([item(value) for value in values])}]"
    if origin is tuple:
        items = [_encoder(arg) for arg in args]
        return lambda values: f"[{','.join([i(v) for i, v in zip(items, values, strict=True)])}]"
    if hint in (int, float):
        return _number
    if hint is Any or origin is dict:
        return _free
    raise TypeError(f"the codec has no encoder for {hint!r}")


def _object_encoder(cls: type[Any]) -> Encode:
    """An object of the fields that differ from their defaults.

    Made as source, as dataclasses are: one expression per field and no loop, because every event
    of a journal passes here. Only names of fields enter the source; values never do.
    """
    plan = _plan(cls)
    _FIELDS[cls] = plan
    required = [(name, write) for name, default, write in plan if default is MISSING]
    optional = [field for field in plan if field[1] is not MISSING]
    scope: dict[str, Any] = {f"write_{name}": write for name, _, write in plan}
    scope |= {f"default_{name}": default for name, default, _ in optional}
    always = ",".join(f'"{name}":{{write_{name}(of.{name})}}' for name, _ in required)
    lines = ["def write(of):", f"    text = f',{always}'" if required else "    text = ''"]
    for name, _, _ in optional:
        lines += [
            f"    value = of.{name}",
            f"    if value is not default_{name} and value != default_{name}:",
            f"        text += f',\"{name}\":{{write_{name}(value)}}'",
        ]
    lines.append("    return f'{{{text[1:]}}}'")
    exec("\n".join(lines), scope)
    write: Encode = scope["write"]
    return write


class _ByIdentity:
    """Remembers the text of objects that many events share; hashing them would cost more."""

    SIZE_MAX = 256

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._texts: dict[int, tuple[Any, str]] = {}

    def __call__(self, value: Any) -> str:
        found = self._texts.get(id(value))
        if found is not None and found[0] is value:
            return found[1]
        text = self._encode(value)
        if len(self._texts) >= self.SIZE_MAX:
            self._texts.clear()
        # The object is kept with its text, so that its id cannot be given to another one.
        self._texts[id(value)] = (value, text)
        return text


# --- decoders -------------------------------------------------------------------------------------


def _decoder(hint: Any) -> Decode:
    """How the JSON value of a field of this type becomes the field."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum_decoder(hint)
    if hint is Money:
        return _money
    if is_dataclass(hint) and isinstance(hint, type):
        return _object_decoder(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = _decoder(_without_none(hint))
        return lambda value: None if value is None else inner(value)
    if origin is tuple and args[-1] is Ellipsis:
        item = _decoder(args[0])
        return lambda values: tuple([item(value) for value in values])
    if origin is tuple:
        items = [_decoder(arg) for arg in args]
        return lambda values: tuple([i(v) for i, v in zip(items, values, strict=True)])
    if hint is Any:
        return lambda value: value
    expected: Any = {float: (float, int)}.get(hint, origin or hint)

    def check(value: Any) -> Any:
        # Python counts a bool as a number; a journal does not.
        if not isinstance(value, expected) or (isinstance(value, bool) and hint is not bool):
            raise TypeError(f"expected {hint}, found {value!r:.80}")
        return value

    return check


def _enum_decoder(cls: type[StrEnum]) -> Decode:
    members = {member.value: member for member in cls}

    def read(value: Any) -> StrEnum:
        try:
            return members[value]
        except (KeyError, TypeError):
            raise _Unknown(f"the word {value!r:.80} for {cls.__name__.lower()}") from None

    return read


def _money(value: Any) -> Money:
    amount, currency = value
    try:
        return Money(amount=Decimal(amount), currency=currency)
    except InvalidOperation:
        raise ValueError(f"{amount!r:.80} is not an amount of money") from None


def _object_decoder(cls: type[Any]) -> Decode:
    readers = {name: _decoder(hint) for name, hint in _hints(cls).items()}

    def read(value: Any) -> Any:
        return cls(**{name: _known(readers, name)(item) for name, item in value.items()})

    return read


def _event_decoder(
    cls: type[Any],
) -> Callable[[str, str | None, dict[str, Any], Callable[[str], str] | None], Event]:
    readers = {name: _decoder(hint) for name, hint in _hints(cls).items()}
    has_call = "call" in readers
    # A note may belong to a call, or to its run alone.
    may_lack = has_call and _hints(cls)["call"] is not str

    def read(
        run: str, call: str | None, body: dict[str, Any], blob: Callable[[str], str] | None
    ) -> Event:
        given: dict[str, Any] = {"run": run}
        if has_call:
            if call is None and not may_lack:
                raise ValueError("it names no call")
            given["call"] = call
        for name, value in body.items():
            if name.endswith(_BESIDE):
                if blob is None:
                    raise ValueError(f"the text of its field {name[:-1]!r} is not at hand")
                plain = name.removesuffix(_BESIDE)
                given[plain] = _known(readers, plain)(json.loads(blob(value)))
            else:
                given[name] = _known(readers, name)(value)
        event: Event = cls(**given)
        return event

    return read


def _known(readers: dict[str, Decode], name: str) -> Decode:
    try:
        return readers[name]
    except KeyError:
        raise _Unknown(f"the field {name!r}") from None


# --- tables ---------------------------------------------------------------------------------------


def _without_none(hint: Any) -> Any:
    inner = [arg for arg in get_args(hint) if arg is not NoneType]
    assert len(inner) == 1, f"a field of an event has one type or None, not {hint!r}"
    return inner[0]


def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _plan(cls: type[Any]) -> list[tuple[str, Any, Encode]]:
    """Name, default and encoder of each field that goes into the body."""
    is_event = cls in KINDS.values()
    hints = get_type_hints(cls)
    plan = []
    for field in fields(cls):
        assert field.default_factory is MISSING, f"{cls.__name__}.{field.name}: no factories"
        if not (is_event and field.name in _COLUMNS):
            plan.append((field.name, field.default, _encoder(hints[field.name])))
    return plan


_FIELDS: dict[type[Any], list[tuple[str, Any, Encode]]] = {}
_WRITERS: dict[type[Any], tuple[str, Encode, Callable[[Any], str] | None]] = {
    cls: (
        kind,
        _object_encoder(cls),
        attrgetter("call") if "call" in _hints(cls) else None,
    )
    for kind, cls in KINDS.items()
}
_READERS = {cls: _event_decoder(cls) for cls in KINDS.values()}
