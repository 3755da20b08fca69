"""The JSON-RPC side of one connection: our own request ids, what is refused, and its end.

The SDK correlates and parses; here a call learns the id that its cancel must name, and the server
is told no where it asks for what no server gets (a model, our directories). Nothing here waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import INVALID_REQUEST

if TYPE_CHECKING:
    from endstop.adapters.mcp.exchange import Exchange

exchanging: ContextVar[Exchange | None] = ContextVar("endstop_mcp_exchange", default=None)
"""The call that a task on the connection's loop is about."""

_HEARD = frozenset({"notifications/tools/list_changed"})
_REFUSED = {
    "sampling/createMessage": "no server is given access to a model here; sampling is refused",
    "roots/list": "no server is told directories here; roots are refused",
}


class Dispatch(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher with ids of ours; `over` is called when the connection has ended."""

    def __init__(self, read: Any, write: Any, over: Callable[[], None]) -> None:
        super().__init__(read, write)
        self._numbers = itertools.count(1)
        self._over = over

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: Any = None,
    ) -> dict[str, Any]:
        """Send a request; a tool call learns its id before anything is written."""
        numbered: CallOptions = {**(opts or {}), "request_id": next(self._numbers)}
        exchange = exchanging.get()
        if exchange is not None and method == "tools/call":
            exchange.request_id = numbered["request_id"]
            # A cancel is ours to send, once, and the answer is listened for after it.
            numbered["cancel_on_abandon"] = False
        return await super().send_raw_request(
            method, params, numbered, _related_request_id=_related_request_id
        )

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """See the SDK; refuses some requests before they reach a callback."""

        async def answer(
            dctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method in _REFUSED:
                raise MCPError(code=INVALID_REQUEST, message=f"endstop: {_REFUSED[method]}")
            return await on_request(dctx, method, params)

        async def hear(
            dctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> None:
            # Everything else is of no use here, and what is malformed in it would fill the log.
            if method in _HEARD:
                await on_notify(dctx, method, params)

        try:
            await super().run(answer, hear, on_notify_intercept, task_status=task_status)
        finally:
            self._over()
