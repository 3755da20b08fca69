"""One tool call on the wire: sent, listened for, stopped, and listened for after the stop.

A stop sends `notifications/cancelled` with the request's id and goes on listening. Only three
things prove that the work has ended: the server's own answer to that request (or the proper end of
its stream), the death of the server's whole process tree, and that nothing was ever sent. Without
any of them the body does not end before the ladder abandons it (law 5 honest-effect).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import TypeAdapter, ValidationError

from endstop.adapters.mcp.errors import UNREACHABLE, McpError, McpLost, quoted
from endstop.adapters.mcp.live import Live, explained
from endstop.adapters.mcp.results import read_result
from endstop.adapters.mcp.wire import exchanging
from endstop.errors import Stopped
from endstop.tools.context import AsyncContext

if TYPE_CHECKING:
    from endstop.adapters.mcp.link import Link

PROGRESS_S = 0.05
"""Progress that comes faster than this is left out: it would flood the journal."""

NOTICE_S = 1.0
ROUNDS_MAX = 10
STOP_REASON = "the caller has stopped the call"

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class Exchange:
    """One call. Made and waited for on the body's loop; it runs on the connection's."""

    def __init__(self, link: Link, tool: str, arguments: dict[str, Any], ctx: AsyncContext) -> None:
        self.link = link
        self.tool = tool
        self.ctx = ctx
        self.request_id: int | str | None = None
        self.stopping = False
        self.asks: set[asyncio.Task[Any]] = set()
        self._arguments = arguments
        self._live: Live | None = None
        self._task: asyncio.Task[Any] | None = None
        self._reported = 0.0
        self._told_stop = False

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """What runs it, on the connection's loop."""
        return self._task

    # -- on the body's loop

    def begin(self) -> asyncio.Future[Any]:
        """Send it; the future is done when it is over, and is not stopped by being cancelled."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Any] = loop.create_future()

        def tell(done: concurrent.futures.Future[Any]) -> None:
            # The runtime may be closed, and its loop with it, before an abandoned call ends.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, over, done)

        self.link.submit(self._run()).add_done_callback(tell)
        return over

    def ask_to_stop(self) -> None:
        """Pass a stop on to the server; what was not sent yet never is."""
        self.stopping = True
        self.link.submit(self._stop())

    def kill_server(self) -> None:
        """End the server's whole tree, if it works for nobody but calls that are to stop."""
        self.link.submit(self._kill())

    def drop(self) -> None:
        """Nobody waits for it any more: the server is told, if it was not yet, and it is over."""
        self.stopping = True
        self.link.submit(self._drop())

    # -- on the connection's loop

    async def _drop(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTICE_S):
                await self._stop()
        if self._task is not None:
            self._task.cancel()

    async def _stop(self) -> None:
        if self.request_id is None or self._live is None:
            if self._task is not None:
                self._task.cancel()
            return
        session = self._live.session
        if self._told_stop or session is None:
            return
        self._told_stop = True
        await session.send_notification(
            types.CancelledNotification(
                params=types.CancelledNotificationParams(
                    request_id=self.request_id, reason=STOP_REASON
                )
            )
        )

    async def _kill(self) -> None:
        live = self._live
        if live is None or live.over.is_set():
            return
        if all(other.stopping for other in live.exchanges):
            live.hurry = True
            live.lose("it did not confirm the stop and was killed with all its processes")

    async def _run(self) -> Any:
        self._task = asyncio.current_task()
        exchanging.set(self)
        live = await self._reach()
        try:
            answer = await self._converse(live)
        except MCPError as error:
            if self.request_id not in live.refused:
                raise await self._failure(live, error) from None
            # The server knew nothing of the session and took nothing in: this is no second attempt.
            self._live = self.request_id = None
            live = await self._reach()
            try:
                answer = await self._converse(live)
            except MCPError as again:
                raise await self._failure(live, again) from None
        self.link.worked()
        return read_result(answer, self.link.terms.result_bytes)

    async def _reach(self) -> Live:
        """The connection, unless a stop comes first."""
        if self.stopping or self.ctx.cancelled:
            raise Stopped("nothing was sent")
        try:
            live = await self.link.connected()
        except asyncio.CancelledError:
            raise Stopped("nothing was sent") from None
        if self.stopping or self.ctx.cancelled:
            raise Stopped("nothing was sent")
        return live

    async def _converse(self, live: Live) -> types.CallToolResult:
        """Send it and wait for its answer, with all that the server asks meanwhile."""
        self._live = live
        live.exchanges.add(self)
        try:
            return await self._answer(live)
        except ValidationError as error:
            raise live.problem(f"tool {quoted(self.tool, 80)}: {explained(error)}") from None
        finally:
            live.leave(self)
            for asking in tuple(self.asks):
                # What the server asked for this call is nobody's question any more.
                asking.cancel()

    async def _answer(self, live: Live) -> types.CallToolResult:
        session = live.session
        assert session is not None, "a connection that is ready has a session"
        given: dict[str, Any] = {}
        for _ in range(ROUNDS_MAX):
            if self.stopping or self.ctx.cancelled:
                raise Stopped("the server asked for input, and nothing more was sent")
            params = types.CallToolRequestParams(name=self.tool, arguments=self._arguments, **given)
            answer = await session.send_request(
                types.CallToolRequest(params=params), _ANSWER, progress_callback=self._progress
            )
            if isinstance(answer, types.CallToolResult):
                return answer
            context = ClientRequestContext(session=session, request_id=self.request_id or 0)
            responses: dict[str, Any] = {}
            for key, request in (answer.input_requests or {}).items():
                response = await session.dispatch_input_request(context, request)
                if isinstance(response, types.ErrorData):
                    raise live.problem(
                        f"it needs input that it does not get: {quoted(response.message)}"
                    )
                responses[key] = response
            if not responses:
                await asyncio.sleep(PROGRESS_S)
            given = {"input_responses": responses or None, "request_state": answer.request_state}
        raise live.problem(f"it asked for input more than {ROUNDS_MAX} times in one call")

    async def _failure(self, live: Live, error: MCPError) -> Exception:
        """What an error in place of an answer means."""
        said = quoted(error.error.message) or "no reason given"
        if live.gone.is_set() and not self.link.way.separate:
            # Its death is proved before it is told.
            await live.over.wait()
            words = live.ending()
            if not live.hurry:
                words = f"it was lost while the call ran: {words}"
            return live.problem(words) if live.proved_dead else McpLost(str(live.problem(words)))
        words = f"tool {quoted(self.tool, 80)}: {said}"
        code = error.error.code
        broken = code == CONNECTION_CLOSED and said.startswith("SSE stream")
        if code == CONNECTION_CLOSED and not broken and live.gone.is_set():
            # Only a close ends a connection that calls are on.
            return McpLost(str(live.problem(f"it was closed while tool {self.tool} ran")))
        if code == UNREACHABLE or broken:
            if self.stopping and self.request_id in live.clean:
                return Stopped("the server has ended the call")
            return McpLost(str(live.problem(words)))
        # After a stop, the error that the stop has caused is no failure of the tool's.
        return Stopped(words) if self.stopping else live.problem(words)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        now = monotonic()
        if now - self._reported < PROGRESS_S:
            return
        self._reported = now
        share = progress / total if total is not None and total > 0 else None
        self.ctx.progress(message or "", share)


def _settle(over: asyncio.Future[Any], done: concurrent.futures.Future[Any]) -> None:
    if over.done():
        return
    failure = McpError("the connection was closed") if done.cancelled() else done.exception()
    if failure is None:
        over.set_result(done.result())
    else:
        over.set_exception(failure)
        # Nobody may be left to look at it.
        over.exception()


async def converse(exchange: Exchange) -> Any:
    """Have a call made, and on a stop see it to its proved end. The body of every MCP tool."""
    ctx = exchange.ctx
    over = exchange.begin()
    try:
        try:
            await asyncio.wait({over})
        except asyncio.CancelledError:
            # Only the ladder stops a call. Any other cancel is the end of the loop itself.
            if not ctx.cancelled:
                raise
        else:
            return over.result()
        exchange.ask_to_stop()
        return await _after_stop(exchange, over)
    finally:
        # Also where an abandoned body is only collected, once its loop is gone.
        if not over.done():
            exchange.drop()


async def _after_stop(exchange: Exchange, over: asyncio.Future[Any]) -> Any:
    """Wait for proof that it ended; raises what it ended with, or that there is none."""
    terms = exchange.link.terms
    until = monotonic() + terms.linger_s
    if exchange.link.way.can_kill and terms.unconfirmed == "kill":
        await asyncio.wait({over}, timeout=terms.confirm_s)
        if not over.done():
            exchange.kill_server()
    await asyncio.wait({over}, timeout=max(0.0, until - monotonic()))
    if not over.done():
        raise McpError(f"MCP server {exchange.link.name} never said that the call has ended")
    failure = over.exception()
    if isinstance(failure, McpLost):
        await asyncio.sleep(max(0.0, until - monotonic()))
    return over.result()
