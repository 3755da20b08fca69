"""The JSON-RPC endpoint: parses a request once, with bounds, and has it answered.

The everyday requests are answered by this house: `rpc_read` reads them, `rpc_answer` answers them,
`rpc_stream` streams. Every other, and the whole of version 0.3, goes to the SDK's dispatcher; a
client cannot tell which it was. What is no JSON never gets further than this file.
"""

from __future__ import annotations

import json
import re
from typing import Any

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from endstop.server.limits import Slots, holds_too_much, is_no_text
from endstop.server.rpc_answer import answer, frames, send_json
from endstop.server.rpc_read import Asked, context_of, headers_of, read
from endstop.server.rpc_stream import send_stream
from endstop.server.seen import Seen, shown, task_id

RPC_PATH = "/"
STREAMING = frozenset(
    {"SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe"}
)

_ERROR = re.compile(rb'"error": ?\{"code": ?(-?\d+)')


class _Parsed(Request):
    """A request whose body was parsed already."""

    content: Any

    async def json(self) -> Any:
        return self.content


class _NoRequest(Exception):
    """A body is no request: the code of JSON-RPC, and words for the client."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class Rpc:
    """An ASGI app that serves JSON-RPC in both versions of the protocol, behind the front."""

    def __init__(
        self,
        handler: RequestHandler,
        builder: ServerCallContextBuilder,
        streams: Slots,
        values: int,
    ) -> None:
        self._handler = handler
        self._dispatcher = JsonRpcDispatcher(handler, builder, enable_v0_3_compat=True)
        self._streams = streams
        self._values = values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        assert not message.get("more_body"), "the front hands over a body as a whole"
        await self.serve(scope, message["body"], receive, send)

    async def serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer a request whose body this is."""
        seen: Seen = scope["endstop"]
        try:
            content = _parse(body, self._values)
        except _NoRequest as error:
            seen.error = error.code
            words = {"code": error.code, "message": str(error)}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": words})(scope, receive, send)
            return
        self._look(content, seen)
        headers = headers_of(scope)
        asked = read(content, headers)
        if asked is not None:
            await self._everyday(asked, scope, headers, receive, send)
            return
        parsed = _Parsed(scope, receive)
        parsed.content = content
        response = await self._dispatcher.handle_requests(parsed)
        if isinstance(response, JSONResponse):
            found = _ERROR.search(bytes(response.body[:400]))
            if found is not None:
                seen.error = int(found.group(1))
        await response(scope, receive, send)

    async def _everyday(
        self,
        asked: Asked,
        scope: Scope,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        context = context_of(scope, headers, asked)
        if asked.method in STREAMING:
            found = await frames(self._handler, asked, context)
            if not isinstance(found, dict):
                await send_stream(found, receive, send)
                return
        else:
            found = await answer(self._handler, asked, context)
        if "error" in found:
            scope["endstop"].error = found["error"]["code"]
        await send_json(found, send)

    def _look(self, content: Any, seen: Seen) -> None:
        """See what is asked, for the log; a stream that there is no room for is refused."""
        method = content.get("method") if isinstance(content, dict) else None
        if not isinstance(method, str):
            return
        seen.operation = shown(method)
        params = content.get("params")
        if isinstance(params, dict):
            seen.task = task_id(params.get("id")) or task_id(params.get("taskId"))
        if method in STREAMING:
            self._streams.check()


def _parse(body: bytes, values: int) -> Any:
    """The JSON of a body. Raises _NoRequest for a body that has none."""
    try:
        # What begins so is text in UTF-8; of the rest it is guessed.
        plain = body[:1] == b"{" and body[1:2] != b"\0"
        content = _decode(body.decode()) if plain else json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise _NoRequest(-32700, "the request is nested too deeply") from None
    except ValueError as problem:
        words = problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem)
        raise _NoRequest(-32700, f"the request is not valid JSON: {words}") from None
    if is_no_text(body, content):
        raise _NoRequest(-32602, "the request holds text that is not Unicode")
    if holds_too_much(body, content, values):
        raise _NoRequest(-32600, f"the request holds more than {values} values")
    return content


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_decode = json.JSONDecoder(parse_constant=_no_number).decode
