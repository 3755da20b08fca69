"""A real HTTP server on a loopback port that sends exactly the bytes that a test wants.

It speaks through raw asyncio streams, so that it can break every rule: answers are functions that
get the connection and the request. One answer per request, the last one again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import ssl
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_S = 20.0
"""A bound for what should happen at once, on a machine that is shared."""


@dataclass(frozen=True)
class Request:
    """What the client sent."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Line:
    """One connection, as the answers use it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    keep: bool = True

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def stream_head(self, kind: str = "text/event-stream", **headers: str) -> None:
        await self.head(content_type=kind, transfer_encoding="chunked", **headers)

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def hang_up(self) -> None:
        """Close, as a server does whose process ended in good order."""
        self.keep = False
        self.writer.close()

    def reset(self) -> None:
        """Close with RST, as a machine does that lost the connection."""
        self.keep = False
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed the connection; fails where it does not."""
        self.keep = False
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(WAIT_S):
                while await self.reader.read(65536):
                    pass


Answer = Callable[[Line, Request], Awaitable[None]]


@dataclass
class Server:
    """What a test knows of the server that it runs."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    failures: list[BaseException] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def emptied(self) -> None:
        """Wait until no client is connected any more."""
        async with asyncio.timeout(WAIT_S):
            while self.open:
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    *answers: Answer, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """Run a server that gives `answers`, one per request."""
    server, tasks = Server(), set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        server.open += 1
        line = Line(reader, writer)
        try:
            while line.keep and (request := await _request(reader)) is not None:
                server.requests.append(request)
                server.came.set()
                await answers[min(len(server.requests), len(answers)) - 1](line, request)
        except (ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:
            server.failures.append(error)
        finally:
            server.open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            tasks.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", port, ssl=tls)
    scheme = "http" if tls is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()
    assert not server.failures, server.failures


async def _request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.decode().split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (one.partition(":") for one in rest)
        if name
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(path=first.split(" ")[1], headers=headers, body=json.loads(body))


def answers(body: Any, status: str = "200 OK", **headers: str) -> Answer:
    """A plain answer with a length; `body` is bytes, text or JSON."""
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else None
    data = json.dumps(body).encode() if data is None else data

    async def answer(line: Line, request: Request) -> None:
        given = {"content_type": "application/json", "content_length": str(len(data)), **headers}
        await line.head(status, **given)
        await line.send(data)

    return answer


def streams(*pieces: bytes, kind: str = "text/event-stream", end: str = "whole") -> Answer:
    """A chunked answer of `pieces` that ends whole, by hanging up, or by a reset."""

    async def answer(line: Line, request: Request) -> None:
        await line.stream_head(kind)
        for piece in pieces:
            if piece:
                await line.chunk(piece)
        match end:
            case "whole":
                await line.send(b"0\r\n\r\n")
            case "hang up":
                line.hang_up()
            case "reset":
                # Let what was sent arrive first; a reset may overtake it.
                await asyncio.sleep(0.01)
                line.reset()
            case _:
                raise AssertionError(end)

    return answer


async def resets(line: Line, request: Request) -> None:
    """An answer that never begins: the connection is reset."""
    line.reset()


async def hangs_up(line: Line, request: Request) -> None:
    """An answer that never begins: the connection is closed."""
    line.hang_up()


def event(body: Any, name: str = "") -> bytes:
    """One event with JSON in it, or with text as it is."""
    data = body if isinstance(body, str) else json.dumps(body)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a chat stream, as an event."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more})


DONE = b"data: [DONE]\n\n"


def chat(text: str = "hello", finish: str = "stop") -> list[bytes]:
    """A whole chat stream that says `text`."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    words = [chunk({"content": word}) for word in text.split(" ")]
    return [
        chunk({"role": "assistant", "content": ""}),
        *words,
        chunk({}, finish, usage=usage),
        DONE,
    ]


def sockets() -> int:
    """How many sockets this process has open."""
    found = 0
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            found += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
    return found


def play(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario to its end and see that it left no task and no socket."""
    before = sockets()

    async def main() -> T:
        result = await scenario()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    result = asyncio.run(main())
    # What was left open warns when it is collected; what is young is enough, and cheap.
    gc.collect(1)
    assert sockets() <= before, "sockets are left open"
    return result


def joined(pieces: Iterable[bytes]) -> bytes:
    return b"".join(pieces)
