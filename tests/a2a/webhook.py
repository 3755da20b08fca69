"""A real webhook on loopback that does as it is told, and a task's history to push from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from endstop.core.events import Event, Noted, RunEnded, RunOpened
from endstop.core.terms import Outcome, Reason
from endstop.store.protocol import Durability, Journal

WAIT_S = 20.0


@dataclass(slots=True)
class Got:
    """One request: where it went, what it carried."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw)
        return found

    @property
    def shown(self) -> str:
        """The change in a word or two: `task SUBMITTED`, `WORKING`, `artifact a`."""
        body = self.body
        if "task" in body:
            return f"task {short(body['task'])}"
        if "artifactUpdate" in body:
            return f"artifact {body['artifactUpdate']['artifact']['artifactId']}"
        return short(body["statusUpdate"])


def short(thing: dict[str, Any]) -> str:
    state: str = thing["status"]["state"]
    return state.removeprefix("TASK_STATE_")


Reaction = Callable[["Webhook", Got], Awaitable[bytes]]


async def takes(hook: Webhook, got: Got) -> bytes:
    """Takes everything."""
    return answer(200)


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass(slots=True)
class Webhook:
    """What arrived, in order; `reaction` says what is answered."""

    reaction: Reaction = takes
    port: int = 0
    got: list[Got] = field(default_factory=list)
    taken: list[Got] = field(default_factory=list)
    connections: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def shown(self) -> list[str]:
        return [got.shown for got in self.taken]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in lines if line)
                }
                raw = await reader.readexactly(int(headers.get("content-length", "0")))
                got = Got(first.split()[1], headers, raw)
                self.got.append(got)
                self.changed.set()
                reply = await self.reaction(self, got)
                if reply.startswith(b"HTTP/1.1 2"):
                    self.taken.append(got)
                    self.changed.set()
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def webhook(reaction: Reaction = takes) -> AsyncIterator[Webhook]:
    hook = Webhook(reaction)
    server = await asyncio.start_server(hook.serve, "127.0.0.1", 0)
    hook.port = server.sockets[0].getsockname()[1]
    try:
        yield hook
    finally:
        server.close()
        for task in hook._serving:
            task.cancel()
        await asyncio.gather(*hook._serving, return_exceptions=True)


class Story:
    """The history of one task, written straight into a journal."""

    def __init__(self, journal: Journal, run: str = "t1") -> None:
        self.journal = journal
        self.run = run
        self.seq = 0
        self.record(RunOpened(run=run, labels={"a2a": "executor", "context": "c1"}))

    def record(self, *events: Event) -> None:
        self.journal.append(self.run, self.seq, events, Durability.PROCESS)
        self.seq += len(events)

    def works(self, text: str = "") -> None:
        body: dict[str, Any] = {"state": "TASK_STATE_WORKING"}
        if text:
            body["message"] = {"messageId": text[:20], "parts": [{"text": text}]}
        self.record(Noted(run=self.run, kind="a2a.status", body=body))

    def adds(self, name: str, text: str = "x") -> None:
        body = {"artifact": {"artifactId": name, "parts": [{"text": text}]}}
        self.record(Noted(run=self.run, kind="a2a.artifact", body=body))

    def says(self, kind: str) -> None:
        """Something that no stream shows."""
        self.record(Noted(run=self.run, kind=kind, body={}))

    def ends(self, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        self.record(RunEnded(run=self.run, outcome=outcome, reason=Reason.OK))
