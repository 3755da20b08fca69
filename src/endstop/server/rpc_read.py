"""An everyday request of JSON-RPC, read: which operation, of what, in whose name.

What is not plainly one is for the SDK's dispatcher, which answers it and says what is wrong with
it: reading here may be narrower than there, and never different. Nothing is asked of a handler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from a2a.auth.user import UnauthenticatedUser
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import StarletteUser
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, VERSION_HEADER
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from starlette.types import Scope

Read = Callable[[Any], Any]
Fields = dict[str, tuple[str, Read]]

DEPTH = 16
"""Metadata that is nested deeper is not everyday."""

_ENVELOPE = frozenset({"jsonrpc", "id", "method", "params"})
_VERSION = VERSION_HEADER.lower()
_EXTENSIONS = HTTP_EXTENSION_HEADER.lower().encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An everyday request."""

    method: str
    id: str | int
    params: Any


class _Unusual(Exception):
    """It may be fine; it is not for this file."""


def read(content: Any, headers: dict[str, str]) -> Asked | None:
    """The request, if it is an everyday one: well formed, of version 1.0, of these methods."""
    if (
        type(content) is not dict
        or content.keys() != _ENVELOPE
        or content["jsonrpc"] != "2.0"
        or type(content["id"]) not in (str, int)
        or type(content["params"]) is not dict
        or headers.get(_VERSION) != PROTOCOL_VERSION_1_0
    ):
        return None
    method = content["method"]
    if type(method) is not str or method not in _EVERYDAY:
        return None
    params = _params(method, content["params"])
    return None if params is None else Asked(method=method, id=content["id"], params=params)


def _params(method: str, found: dict[str, Any]) -> Any:
    model, read_fields = _EVERYDAY[method]
    try:
        return model(**read_fields(found))
    except (_Unusual, KeyError, TypeError, ValueError, OverflowError):
        pass
    try:
        return ParseDict(found, model(), ignore_unknown_fields=True)
    except Exception:  # noqa: BLE001 - whatever it is: the dispatcher meets it too, and answers
        return None


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers by name; of those that are there twice, the first."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def context_of(scope: Scope, headers: dict[str, str], asked: Asked) -> ServerCallContext:
    """What a handler is told of who asks and how: the same as by the SDK's own routes."""
    state: dict[str, Any] = {"auth": scope["auth"]} if "auth" in scope else {}
    state |= {"headers": headers, "method": asked.method, "request_id": asked.id}
    extensions = [v.decode("latin-1") for name, v in scope["headers"] if name == _EXTENSIONS]
    return ServerCallContext(
        user=StarletteUser(scope["user"]) if "user" in scope else UnauthenticatedUser(),
        state=state,
        tenant=asked.params.tenant,
        requested_extensions=get_requested_extensions(extensions),
    )


# -- what params hold, in the words of JSON: by name, the field and how its value is read


def _text(found: Any) -> str:
    if type(found) is not str:
        raise _Unusual
    return found


def _flag(found: Any) -> bool:
    if type(found) is not bool:
        raise _Unusual
    return found


def _number(found: Any) -> int:
    if type(found) is not int:
        raise _Unusual
    return found


def _role(found: Any) -> int:
    return _ROLES[found]


def _several(read_one: Read) -> Read:
    def read_all(found: Any) -> list[Any]:
        if type(found) is not list:
            raise _Unusual
        return [read_one(one) for one in found]

    return read_all


def _object(fields: Fields) -> Read:
    def read_object(found: Any) -> dict[str, Any]:
        if type(found) is not dict:
            raise _Unusual
        made = {}
        for name, value in found.items():
            field, read_value = fields[name]
            made[field] = read_value(value)
        return made

    return read_object


def _part(found: Any) -> dict[str, Any]:
    made: dict[str, Any] = _read_part(found)
    if len(made.keys() & _CONTENTS) > 1:
        raise _Unusual
    return made


def _struct(found: Any, depth: int = 0) -> Struct:
    if type(found) is not dict or depth > DEPTH:
        raise _Unusual
    return Struct(fields={name: _value(value, depth + 1) for name, value in found.items()})


def _value(found: Any, depth: int = 0) -> Value:
    if found is None:
        return Value(null_value=0)  # type: ignore[arg-type]
    kind = type(found)
    if kind is str:
        return Value(string_value=found)
    if kind is bool:
        return Value(bool_value=found)
    if kind is dict:
        return Value(struct_value=_struct(found, depth))
    if kind is list and depth <= DEPTH:
        return Value(list_value=ListValue(values=[_value(one, depth + 1) for one in found]))
    if kind is int or kind is float:
        return Value(number_value=found)
    raise _Unusual


_ROLES: dict[str, int] = dict(Role.items())
_CONTENTS = frozenset({"text", "url", "data"})

_read_part = _object(
    {
        "text": ("text", _text),
        "url": ("url", _text),
        "data": ("data", _value),
        "filename": ("filename", _text),
        "mediaType": ("media_type", _text),
        "metadata": ("metadata", _struct),
    }
)
_message = _object(
    {
        "messageId": ("message_id", _text),
        "role": ("role", _role),
        "parts": ("parts", _several(_part)),
        "contextId": ("context_id", _text),
        "taskId": ("task_id", _text),
        "metadata": ("metadata", _struct),
        "extensions": ("extensions", _several(_text)),
        "referenceTaskIds": ("reference_task_ids", _several(_text)),
    }
)
_configuration = _object(
    {
        "returnImmediately": ("return_immediately", _flag),
        "historyLength": ("history_length", _number),
        "acceptedOutputModes": ("accepted_output_modes", _several(_text)),
    }
)
_send = _object(
    {
        "message": ("message", _message),
        "configuration": ("configuration", _configuration),
        "metadata": ("metadata", _struct),
        "tenant": ("tenant", _text),
    }
)
_by_id: Fields = {"id": ("id", _text), "tenant": ("tenant", _text)}

_EVERYDAY: dict[str, tuple[type[Any], Read]] = {
    "SendMessage": (SendMessageRequest, _send),
    "SendStreamingMessage": (SendMessageRequest, _send),
    "GetTask": (GetTaskRequest, _object({**_by_id, "historyLength": ("history_length", _number)})),
    "CancelTask": (CancelTaskRequest, _object({**_by_id, "metadata": ("metadata", _struct)})),
    "SubscribeToTask": (SubscribeToTaskRequest, _object(_by_id)),
}
