"""HTTP+JSON in the words of 0.3: the SDK's adapter, with streams whose errors a client can read.

The SDK's own begins its answer before it asks the handler, so that a refusal breaks the connection
after a head that says 200. Nothing here knows a task.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from a2a.compat.v0_3.rest_adapter import REST03Adapter
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.error_handlers import build_rest_error_payload, rest_stream_error_handler
from a2a.utils.errors import A2AError
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.routing import Route

_NOTHING: Any = object()


class OldRest(REST03Adapter):
    """The adapter of 0.3 whose streams ask the handler first, and end in words."""

    @rest_stream_error_handler
    async def _handle_streaming_request(
        self, method: Callable[..., AsyncIterable[Any]], request: Request
    ) -> EventSourceResponse:
        await request.body()
        updates = aiter(method(request, self._context_builder.build(request)))
        # What the handler refuses is raised here, and answered with the status that it has.
        first = await anext(updates, _NOTHING)
        return EventSourceResponse(_frames(first, updates))


async def _frames(first: Any, updates: Any) -> AsyncIterator[ServerSentEvent]:
    """The updates as they come; an error on the way is the last of them (law 18 audience-free)."""
    async with aclosing(updates):
        if first is not _NOTHING:
            yield _frame(first)
        try:
            async for update in updates:
                yield _frame(update)
        except A2AError as error:
            yield ServerSentEvent(data=json.dumps(build_rest_error_payload(error)), event="error")


def _frame(update: Any) -> ServerSentEvent:
    return ServerSentEvent(data=json.dumps(update))


def old_rest_routes(handler: RequestHandler, builder: ServerCallContextBuilder) -> list[Route]:
    """The routes of 0.3 over HTTP+JSON."""
    adapter = OldRest(handler, builder)
    return [
        Route(path, endpoint, methods=[method])
        for (path, method), endpoint in adapter.routes().items()
    ]
