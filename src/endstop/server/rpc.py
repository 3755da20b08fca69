"""The JSON-RPC endpoint: parses a request once, with bounds, and hands it to the SDK's dispatcher.

What is no JSON-RPC request never gets further than this file.
"""

from __future__ import annotations

import json
import re
from typing import Any

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from endstop.server.front import RPC_PATH, Door
from endstop.server.limits import holds_too_much, is_no_text
from endstop.server.seen import Seen, shown, task_id

STREAMING = frozenset(
    {"SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe"}
)

_ERROR = re.compile(rb'"error": ?\{"code": ?(-?\d+)')


class _Parsed(Request):
    """A request whose body was parsed already."""

    content: Any

    async def json(self) -> Any:
        return self.content


def rpc_route(handler: RequestHandler, builder: ServerCallContextBuilder, door: Door) -> Route:
    """Serves JSON-RPC at the root, in both versions of the protocol."""
    dispatcher = JsonRpcDispatcher(handler, builder, enable_v0_3_compat=True)

    async def answer(request: Request) -> Response:
        seen: Seen = request.scope["endstop"]
        content = _parse(await request.body(), door.limits.values)
        if isinstance(content, Response):
            return _note(seen, content)
        method = content.get("method") if isinstance(content, dict) else None
        if isinstance(method, str):
            seen.operation = shown(method)
            params = content.get("params")
            if isinstance(params, dict):
                seen.task = task_id(params.get("id")) or task_id(params.get("taskId"))
            if method in STREAMING:
                door.streams.check()
        parsed = _Parsed(request.scope, request.receive)
        parsed.content = content
        return _note(seen, await dispatcher.handle_requests(parsed))

    return Route(RPC_PATH, answer, methods=["POST"])


def _parse(body: bytes, values: int) -> Any:
    """The JSON of a body, or the answer to a body that has none."""
    try:
        content = json.loads(body, parse_constant=_no_number)
    except RecursionError:
        return _error(-32700, "the request is nested too deeply")
    except ValueError as problem:
        words = problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem)
        return _error(-32700, f"the request is not valid JSON: {words}")
    if is_no_text(body, content):
        return _error(-32602, "the request holds text that is not Unicode")
    if holds_too_much(body, content, values):
        return _error(-32600, f"the request holds more than {values} values")
    return content


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _error(code: int, words: str) -> JSONResponse:
    error = {"code": code, "message": words}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error})


def _note(seen: Seen, response: Response) -> Response:
    if isinstance(response, JSONResponse):
        found = _ERROR.search(bytes(response.body[:400]))
        if found is not None:
            seen.error = int(found.group(1))
    return response
