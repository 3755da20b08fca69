"""The HTTP protocol on one connection, with bounds for what comes before a request.

uvicorn bounds neither how long the head of a request may take nor, with httptools, how large it may
be; a client that says nothing would hold its connection for ever. And it sends the head of an
answer by itself: a packet, and a client woken, for nothing. Nothing here reads a body.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from endstop.server.limits import ServerLimits

_TOO_LARGE = b"431 Request Header Fields Too Large"
_TOO_SLOW = b"408 Request Timeout"
_TOO_MANY = b"503 Service Unavailable"

_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class Together:
    """A transport that sends the head of an answer with what follows at once, in one packet.

    It holds a head and nothing else, and no longer than until the loop comes round.
    """

    __slots__ = (
        "_head",
        "_loop",
        "_transport",
        "abort",
        "get_extra_info",
        "is_closing",
        "pause_reading",
        "resume_reading",
    )

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def write(self, data: bytes) -> None:
        """Send this, or hold it for a moment; nobody is there any more once it is closing."""
        if self._transport.is_closing():
            return
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close when everything is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            head, self._head = self._head, b""
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Make a class of it with `bounded`, so that it knows its bounds."""

    limits = ServerLimits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = True
        # A request ended in what came last: the rest of that is a head, and short.
        self._whole = False
        # Requests that others came after, before they were answered.
        self._earlier: list[RequestResponseCycle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(Together(transport, self.loop))  # type: ignore[arg-type]
        self._expect_head()
        # uvicorn counts requests: connections that bring none would be without bound.
        if len(self.connections) > self.limits.connections:
            self._refuse(_TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)
        # uvicorn tells only the last of them, and the first is the one that is being answered.
        for asked in self._earlier:
            asked.disconnected = not asked.response_complete
            asked.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._in_head and (b"pgrade:" in data or b"PGRADE:" in data):
            data = _stays(data)
        self._whole = False
        super().data_received(data)
        if self._in_head and not self._whole:
            if self._head is None:
                self._expect_head()
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_is_there()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.header_bytes:
            self._refuse(_TOO_LARGE)
            return
        before = self.cycle
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            unanswered = [one for one in self._earlier if not one.response_complete]
            self._earlier = [*unanswered, before]

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._whole, self._head_bytes = True, True, 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def _expect_head(self) -> None:
        self._head = self.loop.call_later(self.limits.header_s, self._refuse, _TOO_SLOW)

    def _head_is_there(self) -> None:
        self._in_head = False
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _refuse(self, status: bytes) -> None:
        self._head_is_there()
        if self.transport.is_closing():
            return
        if self._head_bytes or status is not _TOO_SLOW:
            head = b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head % status)
        self.transport.close()


def _stays(data: bytes) -> bytes:
    """A head without its wish for another protocol, such as the HTTP/2 that clients in Java ask for
    with every first request: nobody has to heed it, and the parser gives up the body for it."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nx-not-here:", head) + end + rest


def bounded(limits: ServerLimits) -> type[BoundedProtocol]:
    """The protocol class with these bounds."""
    return type("Bounded", (BoundedProtocol,), {"limits": limits})
