"""A stream on the wire: server-sent events to one client, for as long as it is there.

A client that leaves ends its stream at once, and nothing else (law 18 audience-free). One task
watches the client; the stream is sent by the task of its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

from starlette.types import Receive, Send

PING_S = 15.0
"""How often a client hears that its stream is there, by a comment that means nothing."""

_HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"cache-control", b"no-store"),
        (b"connection", b"keep-alive"),
        (b"x-accel-buffering", b"no"),
        (b"content-type", b"text/event-stream; charset=utf-8"),
    ],
}


async def send_stream(frames: AsyncGenerator[bytes], receive: Receive, send: Send) -> None:
    """Send frames until they end or the client leaves; they are closed then."""
    task = asyncio.current_task()
    assert task is not None, "a request is answered in a task"
    client = _Client(task, receive, send)
    try:
        async with aclosing(frames):
            await send(_HEAD)
            async for frame in frames:
                await send(_body(frame, more=True))
        client.look_away()
        await send(_body(b"", more=False))
    except asyncio.CancelledError:
        if not client.gone or task.cancelling() > 1:
            raise
    finally:
        client.look_away()
        if client.gone:
            # Ours, and of nobody else.
            task.uncancel()
    if client.failure is not None:
        raise client.failure


class _Client:
    """Watches one client from beside its stream, and cancels the stream when it leaves."""

    __slots__ = ("_over", "_stream", "_watch", "failure", "gone")

    def __init__(self, stream: asyncio.Task[object], receive: Receive, send: Send) -> None:
        self.gone = False
        # What telling it something failed with, such as that it reads nothing.
        self.failure: BaseException | None = None
        self._over = False
        self._stream = stream
        self._watch = asyncio.create_task(_until_it_leaves(receive, send))
        self._watch.add_done_callback(self._left)

    def _left(self, watch: asyncio.Task[None]) -> None:
        if watch.cancelled():
            return
        self.failure = watch.exception()
        if not self._over:
            self.gone = True
            self._stream.cancel()

    def look_away(self) -> None:
        """Watch no longer: nothing is said to it from here, and nothing is cancelled."""
        self._over = True
        self._watch.cancel()


async def _until_it_leaves(receive: Receive, send: Send) -> None:
    while True:
        try:
            async with asyncio.timeout(PING_S):
                message = await receive()
        except TimeoutError:
            await send(_body(f": ping - {datetime.now(UTC)}\r\n\r\n".encode(), more=True))
            continue
        if message["type"] == "http.disconnect":
            return


def _body(frame: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": frame, "more_body": more}
