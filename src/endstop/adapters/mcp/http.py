"""A server at a URL, over streamable HTTP, with a wary layer between the SDK and the network.

The SDK ends the whole connection when one request fails on its way, waits for the answer to every
notification before it sends the next message, and reads any body to its end. Here a failed request
becomes the answer to itself, so that others are not touched (law 14 isolated-siblings), what needs
no answer is sent on the side, and bodies are bounded (law 19 any-payload). Times out: connecting
only. How long a call may take is the call's own business.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import PARSE_ERROR, JSONRPCError, JSONRPCResponse

from endstop.adapters.mcp.errors import UNREACHABLE, quoted
from endstop.adapters.mcp.live import Live
from endstop.adapters.mcp.stdio import MESSAGE_BYTES, read_line
from endstop.core.text import safe_text

CONNECT_S = 10.0
ASIDE_S = 10.0
"""How long a message that needs no answer may be on its way."""

ASIDE_MAX = 100
GOODBYE_S = 1.0
_ERROR_BYTES = 64 << 10
_FRAMING = frozenset({"content-length", "transfer-encoding", "content-encoding"})


@dataclass(frozen=True, kw_only=True)
class Http:
    """Where a server is, and the headers that it wants with every request."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    message_bytes: int = MESSAGE_BYTES

    separate = True
    """Each request has a connection of its own."""
    can_kill = False

    @asynccontextmanager
    async def open(self, live: Live) -> AsyncIterator[tuple[Any, Any]]:
        """The streams of the SDK's transport, over the wary layer."""
        wary = _Wary(live, self.message_bytes, urlsplit(self.url).hostname or "the server")
        client = httpx2.AsyncClient(
            headers={**self.headers, "accept-encoding": "identity"},
            transport=wary,
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
        )
        async with client:
            streams = streamable_http_client(
                self.url, http_client=client, max_sse_event_size=self.message_bytes
            )
            async with streams as (read, write):
                yield read, write


class _TooLong(httpx2.StreamError):
    """A body is longer than is taken; of a kind that the SDK expects of a stream."""


class _Wary(httpx2.AsyncBaseTransport):
    """Sends requests; whatever happens to one is the answer to that one."""

    def __init__(self, live: Live, limit: int, host: str) -> None:
        self._live = live
        self._limit = limit
        self._host = host
        self._aside: set[asyncio.Task[None]] = set()
        none = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self._inner = httpx2.AsyncHTTPTransport(limits=none)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            # The goodbye: a courtesy that must not hold up the end.
            try:
                async with asyncio.timeout(GOODBYE_S):
                    return await self._inner.handle_async_request(request)
            except (httpx2.TransportError, OSError, TimeoutError):
                return httpx2.Response(204, request=request)
        if request.method != "POST":
            return self._bounded(await self._inner.handle_async_request(request), None)
        asks, number = _asks(request.content)
        if not asks:
            if len(self._aside) < ASIDE_MAX:
                task = asyncio.get_running_loop().create_task(self._send_aside(request))
                self._aside.add(task)
                task.add_done_callback(self._aside.discard)
            return httpx2.Response(202, request=request)
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.TransportError, OSError) as error:
            words = f"{self._host} could not be reached: {_words(error)}"
            # The next call begins with a new handshake: this server may be another one by then.
            self._live.stale = words
            return _answer(request, words)
        if response.status_code >= 400:
            return await self._refused(request, response, number)
        if encoding := response.headers.get("content-encoding"):
            await response.aclose()
            return _answer(request, f"its answer is packed ({quoted(encoding, 40)}), unasked")
        kind = response.headers.get("content-type", "").lower()
        if response.status_code != 200 or kind.startswith("text/event-stream"):
            return self._bounded(response, number)
        if not kind.startswith("application/json"):
            await response.aclose()
            return _answer(request, f"its answer is {quoted(kind, 60) or 'nothing'}, not MCP")
        return await self._whole(request, response, number)

    async def aclose(self) -> None:
        for task in tuple(self._aside):
            task.cancel()
        await self._inner.aclose()

    async def _send_aside(self, request: httpx2.Request) -> None:
        try:
            async with asyncio.timeout(ASIDE_S):
                response = await self._inner.handle_async_request(request)
                await response.aclose()
        except (httpx2.TransportError, OSError, TimeoutError):
            # Nobody waits for it; what it was about shows in the call itself.
            return

    async def _refused(
        self, request: httpx2.Request, response: httpx2.Response, number: int | str | None
    ) -> httpx2.Response:
        """An HTTP error as a JSON-RPC error; the server's own is passed on."""
        body = bytearray()
        try:
            async with asyncio.timeout(ASIDE_S), aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > _ERROR_BYTES:
                        break
        except (httpx2.TransportError, OSError, TimeoutError):
            pass
        finally:
            await response.aclose()
        status = response.status_code
        if status == 404 and "mcp-session-id" in request.headers:
            self._live.stale = "the server has ended the session"
            self._live.refused.add(number)
        if _is_error(bytes(body)):
            headers = {"content-type": "application/json"}
            return httpx2.Response(status, headers=headers, content=bytes(body), request=request)
        words = f"the server answered with HTTP status {status}"
        if status in (401, 403):
            words += "; it wants an authorization that it accepts, as a header"
        if status == 404 and "mcp-session-id" not in request.headers:
            # The SDK takes it for "method not found" and goes on from there.
            return httpx2.Response(status, request=request)
        return _answer(request, words)

    async def _whole(
        self, request: httpx2.Request, response: httpx2.Response, number: int | str | None
    ) -> httpx2.Response:
        """An answer in one piece, read to its end and checked before the SDK sees it."""
        body = bytearray()
        try:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > self._limit:
                        words = f"its answer is longer than {self._limit} bytes"
                        return _answer(request, words, PARSE_ERROR)
        except (httpx2.TransportError, OSError) as error:
            return _answer(request, f"its answer broke off: {_words(error)}")
        finally:
            await response.aclose()
        message = read_line(bytes(body))
        if message is None:
            return _answer(request, "its answer is not valid JSON-RPC", PARSE_ERROR)
        if isinstance(message, JSONRPCResponse | JSONRPCError) and number is not None:
            message.id = number
        headers = {name: value for name, value in response.headers.items() if name not in _FRAMING}
        content = message.model_dump_json(by_alias=True, exclude_unset=True)
        return httpx2.Response(200, headers=headers, content=content, request=request)

    def _bounded(self, response: httpx2.Response, number: int | str | None) -> httpx2.Response:
        kind = response.headers.get("content-type", "").lower()
        endless = kind.startswith("text/event-stream")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream), "an async transport gives async streams"
        limit = None if endless else self._limit
        # Of a body that only ends with its connection nobody can tell that it ended as it should.
        framed = {"transfer-encoding", "content-length"} & set(response.headers)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(stream, limit, self._live, number if framed else None),
            extensions=response.extensions,
        )


class _Bounded(httpx2.AsyncByteStream):
    """A body up to its limit; one that ends as it should is remembered for its request."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        limit: int | None,
        live: Live,
        number: int | str | None,
    ) -> None:
        self._inner = inner
        self._limit = limit
        self._live = live
        self._number = number

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._inner:
            total += len(chunk)
            if self._limit is not None and total > self._limit:
                raise _TooLong(f"its answer is longer than {self._limit} bytes")
            yield chunk
        if self._number is not None:
            self._live.clean.add(self._number)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _asks(content: bytes) -> tuple[bool, int | str | None]:
    """Whether a message wants an answer, and under which id."""
    try:
        message = json.loads(content)
    except ValueError:
        return True, None
    number = message.get("id") if isinstance(message, dict) else None
    return isinstance(message, dict) and "method" in message and number is not None, number


def _is_error(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and isinstance(message.get("error"), dict)


def _answer(request: httpx2.Request, words: str, code: int = UNREACHABLE) -> httpx2.Response:
    """A JSON-RPC error that says what happened to this request."""
    error = {"code": code, "message": safe_text(words, 500)}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(502, json=body, request=request)


def _words(error: Exception) -> str:
    match error:
        case httpx2.ConnectError():
            return "nothing listens there, or the connection was refused"
        case httpx2.ConnectTimeout():
            return f"it did not answer within {CONNECT_S:g} s"
        case _:
            return quoted(error, 160) or type(error).__name__
