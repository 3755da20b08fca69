"""The answer to an everyday request: a handler's result, or its error, in JSON-RPC.

The same as the SDK's dispatcher says, to the last byte. A stream's answer is its frames, which are
put on the wire by `rpc_stream`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import InternalError
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.types.a2a_pb2 import SendMessageResponse, Task
from a2a.utils.errors import A2AError, TaskNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import Error as CannotWrite
from starlette.types import Send

from endstop.a2a.encoding import to_dict
from endstop.server.rpc_read import Asked

Json = dict[str, Any]

_NOT_JSON = (CannotWrite, TypeError, ValueError, RecursionError)
"""What a result is that a handler should not have given."""
_END: Any = object()

# As it is written in a whole answer, and in a frame.
_dense = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_wide = json.JSONEncoder(ensure_ascii=False).encode


async def answer(handler: RequestHandler, asked: Asked, context: ServerCallContext) -> Json:
    """The answer to a request that has one."""
    try:
        return _result(asked, await _ask(handler, asked, context))
    except A2AError as error:
        return build_error_response(asked.id, error)
    except _NOT_JSON as error:
        return build_error_response(asked.id, InternalError(message=str(error)))


async def _ask(handler: RequestHandler, asked: Asked, context: ServerCallContext) -> Json:
    task: Any
    match asked.method:
        case "SendMessage":
            found = await handler.on_message_send(asked.params, context)
            if isinstance(found, Task):
                return {"task": to_dict(found)}
            return to_dict(SendMessageResponse(message=found))
        case "GetTask":
            task = await handler.on_get_task(asked.params, context)
        case _:
            assert asked.method == "CancelTask", "of a stream there is more than one answer"
            task = await handler.on_cancel_task(asked.params, context)
    if task is None:
        raise TaskNotFoundError
    return to_dict(task)


async def frames(
    handler: RequestHandler, asked: Asked, context: ServerCallContext
) -> AsyncGenerator[bytes] | Json:
    """The frames of a stream, the first of which is there; or the error that is there instead."""
    if asked.method == "SendStreamingMessage":
        updates = handler.on_message_send_stream(asked.params, context)
    else:
        updates = handler.on_subscribe_to_task(asked.params, context)
    try:
        first = await anext(updates, _END)
    except A2AError as error:
        return build_error_response(asked.id, error)
    return _frames(asked, first, updates)


async def _frames(asked: Asked, update: Any, updates: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
    try:
        # Closed with the stream, and not when the collector comes by (law 18 audience-free).
        async with aclosing(updates):
            while update is not _END:
                found = _result(asked, to_dict(to_stream_response(update)))
                yield f"data: {_wide(found)}\r\n\r\n".encode()
                update = await anext(updates, _END)
    except A2AError as error:
        yield _error_frame(build_error_response(asked.id, error))
    except _NOT_JSON as error:
        yield _error_frame(build_error_response(asked.id, InternalError(message=str(error))))


def _result(asked: Asked, result: Json) -> Json:
    return {"result": result, "id": asked.id, "jsonrpc": "2.0"}


def _error_frame(content: Json) -> bytes:
    return f"event: error\r\ndata: {_wide(content)}\r\n\r\n".encode()


async def send_json(content: Json, send: Send) -> None:
    """Send an answer as the whole of a response."""
    body = _dense(content).encode()
    length = b"%d" % len(body)
    headers = [(b"content-length", length), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
