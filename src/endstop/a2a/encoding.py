"""The protocol's objects as JSON: what `MessageToDict` makes of them, in a fraction of its time.

Every answer and every frame of a server is written here. How a field is written is found out once
and kept. What is uncommon goes through the general converter, and so do errors, for its words.
Nothing here may know what an object means.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

Write = Callable[[Any], Any]

_AS_IT_IS = frozenset(
    {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_INT32}
)
_MILLISECOND, _SECOND = 1_000_000, 1_000_000_000


class _Uncommon(Exception):
    """Nothing of the protocol's everyday; the general converter writes it."""


def to_dict(message: Message) -> dict[str, Any]:
    """Equal to `MessageToDict(message)` for an object of the protocol; raises what that raises."""
    try:
        return _fields(message)
    except (_Uncommon, ValueError, RecursionError):
        return MessageToDict(message)


def _fields(message: Message) -> dict[str, Any]:
    found = {}
    for field, value in message.ListFields():
        name, write = _WRITERS[field]
        found[name] = value if write is None else write(value)
    return found


class _Writers(dict[Any, tuple[str, Write | None]]):
    """How each field is written that was ever written; None: as it is."""

    def __missing__(self, field: Any) -> tuple[str, Write | None]:
        write = _write_of(field)
        if _is_repeated(field):
            write = list if write is None else _each(write)
        self[field] = found = (field.json_name, write)
        return found


_WRITERS = _Writers()


def _write_of(field: Any) -> Write | None:
    """How one value of a field is written."""
    kind = field.message_type
    if field.type in _AS_IT_IS:
        return None
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode("ascii")
    if field.enum_type is not None and not field.enum_type.is_closed:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if kind is None or kind.GetOptions().map_entry or field.is_extension:
        raise _Uncommon
    if kind.file.package != field.containing_type.file.package:
        if kind.full_name not in _OF_THEIR_OWN:
            raise _Uncommon
        return _OF_THEIR_OWN[kind.full_name]
    return _fields


def _each(write: Write) -> Write:
    return lambda values: [write(value) for value in values]


def _is_repeated(field: Any) -> bool:
    # What the older libraries that the SDK takes call it, and the newer warn of.
    known = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if known is None else bool(known)


def _struct(struct: Struct) -> dict[str, Any]:
    return {name: _value(value) for name, value in struct.fields.items()}


def _list(values: ListValue) -> list[Any]:
    return [_value(value) for value in values.values]


def _value(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            if not isfinite(value.number_value):
                raise ValueError("JSON has no word for it")
            return value.number_value
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return _list(value.list_value)
        case "bool_value":
            return value.bool_value
        case _:
            return None


def _instant(instant: Timestamp) -> str:
    nanos = instant.nanos
    if nanos % _MILLISECOND or not 0 <= nanos < _SECOND:
        return instant.ToJsonString()
    second = _second(instant.seconds)
    return f"{second}.{nanos // _MILLISECOND:03d}Z" if nanos else f"{second}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return Timestamp(seconds=seconds).ToJsonString().removesuffix("Z")


_OF_THEIR_OWN: dict[str, Write] = {
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": _value,
    "google.protobuf.ListValue": _list,
    "google.protobuf.Timestamp": _instant,
}
"""Those whose JSON is not their fields."""
