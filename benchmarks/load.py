"""Clients for the serving benchmark: bare HTTP over sockets, so that the server is measured."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
from dataclasses import dataclass, field
from time import perf_counter

_numbers = itertools.count()


@dataclass(slots=True)
class Load:
    """What a number of clients saw."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Answers per second, over all clients."""
        return len(self.latencies) / self.seconds

    def at(self, share: float) -> float:
        """The latency below which that share of the answers came, in milliseconds."""
        if len(self.latencies) < 2:
            return self.latencies[0] * 1e3
        return statistics.quantiles(self.latencies, n=100)[round(share * 100) - 1] * 1e3


def request(method: str, text: str, *, at_once: bool = False) -> bytes:
    """One JSON-RPC request as it goes over the wire."""
    number = next(_numbers)
    message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
    params: dict[str, object] = {"message": message}
    if at_once:
        params["configuration"] = {"returnImmediately": True}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    return (
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"A2A-Version: 1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return await reader.readexactly(int(value))
    raise AssertionError(f"an answer without a length: {head!r}")


async def sends(
    port: int, clients: int, total: int, *, text: str = "go", wait: bool = True
) -> Load:
    """Send `total` messages from so many connections, each waiting for its answer."""
    load, left = Load(), iter(range(total))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in left:
                began = perf_counter()
                writer.write(request("SendMessage", text, at_once=not wait))
                answer = await _answer(reader)
                load.latencies.append(perf_counter() - began)
                wanted = b"TASK_STATE_COMPLETED" if wait else b'"task"'
                if wanted not in answer:
                    raise AssertionError(f"not the answer that was expected: {answer[:500]!r}")
        finally:
            writer.close()

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    load.seconds = perf_counter() - began
    return load


async def streams(port: int, clients: int, total: int) -> Load:
    """Open `total` streams, so many at a time; a latency is the time to the first event."""
    load, left = Load(), iter(range(total))

    async def client() -> None:
        for _ in left:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                began = perf_counter()
                writer.write(request("SendStreamingMessage", "go"))
                seen = await reader.readuntil(b"data:")
                load.latencies.append(perf_counter() - began)
                while b"TASK_STATE_COMPLETED" not in seen:
                    more = await reader.read(65536)
                    if not more:
                        raise AssertionError(f"a stream without its end: {seen[-500:]!r}")
                    seen += more
            finally:
                writer.close()

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    load.seconds = perf_counter() - began
    return load
