"""A webhook that remembers what it was told, and can be slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.wire.harness import TERMINAL


@dataclass(slots=True)
class Hook:
    """What arrived, in order: the headers and the body of every request."""

    delay_s: float = 0.0
    url: str = ""
    told: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def states(self, task: str) -> list[str]:
        """The states told of a task, in the order in which they were told."""
        found = []
        for _, body in self.told:
            event = body.get("task") or body.get("statusUpdate")
            if event and task in (event.get("id"), event.get("taskId")):
                found.append(str(event["status"]["state"]).removeprefix("TASK_STATE_"))
        return found

    def endings(self, task: str) -> list[str]:
        return [state for state in self.states(task) if state in TERMINAL]

    async def ended(self, task: str, limit_s: float) -> list[str]:
        """The endings that were told of a task; waits for the first one, at most so long."""
        try:
            async with asyncio.timeout(limit_s), self.changed:
                await self.changed.wait_for(lambda: self.endings(task))
        except TimeoutError:
            pass
        return self.endings(task)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                pairs = [line.split(": ", 1) for line in lines[1:] if line]
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await asyncio.sleep(self.delay_s)
                self.told.append((headers, json.loads(body)))
                async with self.changed:
                    self.changed.notify_all()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def close(self) -> None:
        """Hangs up on everybody, and lets their handlers end."""
        for writer in self.open:
            writer.close()
        while self.open:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def hook(delay_s: float = 0.0) -> AsyncIterator[Hook]:
    """A webhook on a loopback port that the system picks."""
    made = Hook(delay_s)
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/told"
    try:
        yield made
    finally:
        server.close()
        await made.close()
