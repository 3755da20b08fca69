"""A client on a raw socket: one that stalls, leaves or resets where a proper one would not."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

from google.protobuf.json_format import MessageToDict

from tests.wire.executors import Order
from tests.wire.harness import Server, message

SMALL = 8192


def envelope(method: str, params: dict[str, Any]) -> bytes:
    """A whole JSON-RPC request, head and body."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"A2A-Version: 1.0\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def streaming(order: Order) -> bytes:
    return envelope("SendStreamingMessage", {"message": MessageToDict(message(order))})


class Raw:
    """One connection, with as little room in the kernel as it can be given."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.url.removeprefix("http://").partition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        self.socket.settimeout(20)
        self.socket.connect((host, int(port)))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int = 65536) -> bytes:
        return self.socket.recv(size)

    def rest(self) -> bytes:
        """Everything until the stream ends: its last chunk, or the other side's hanging up."""
        got = bytearray()
        while not got.endswith(b"0\r\n\r\n"):
            try:
                more = self.socket.recv(1 << 20)
            except (ConnectionError, TimeoutError):
                break
            if not more:
                break
            got += more
        return bytes(got)

    def reset(self) -> None:
        """Goes away without a word: the other side sees a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


async def apart(function: Any, *args: Any) -> Any:
    """A blocking call beside the loop of the test."""
    return await asyncio.to_thread(function, *args)
