"""Starts the server as a process of its own, and calls it through the official client.

A `House` starts servers and ends them; a `Caller` speaks one binding. A scenario is a coroutine
that takes a `Place` and returns what was broken (`Broken`): the same one is for both servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import Client
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

import endstop
from tests.support import ROOT
from tests.wire.executors import Order
from tests.wire.ticks import Ticks

QUIET = {"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"}
"""The SDK's spans cost time and write to the log of a server that stops; nobody reads them here."""

AGENT = "tests/wire/served.py"
GRACE_S = 0.3
"""How long a body is asked to stop before it is let go: shorter than what the bad ones do."""

OPTIONS = ["--port", "0", "--grpc-port", "0", "--grace", f"{GRACE_S}", "--json", "--quiet"]
OPTIONS += ["--private-webhooks"]
"""Free ports, a short ladder, and webhooks on this machine."""

START_S = 30.0
CALL_S = 20.0
TERMINAL = {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}


def state_of(thing: Task | StreamResponse) -> str | None:
    """The state that a task or an event of a stream tells, in short: "WORKING"."""
    status = None
    if isinstance(thing, Task):
        status = thing.status
    elif thing.HasField("task"):
        status = thing.task.status
    elif thing.HasField("status_update"):
        status = thing.status_update.status
    return None if status is None else TaskState.Name(status.state).removeprefix("TASK_STATE_")


class Server:
    """One running server process."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        # The package under test, which is a copy where a bug is planted.
        paths = f"{ROOT}:{Path(endstop.__file__).parents[1]}"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths, **QUIET, **env},
                text=True,
            )
        self.said: dict[str, Any] = self._first_line()
        self.url = str(self.said["url"]).rstrip("/")

    def _first_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        alarm = threading.Timer(START_S, self.process.kill)
        alarm.start()
        try:
            line = self.process.stdout.readline()
        finally:
            alarm.cancel()
        assert line, f"the server did not start:\n{self.log.read_text(encoding='utf-8')[-3000:]}"
        said = json.loads(line)
        assert isinstance(said, dict)
        return said

    def kill(self) -> None:
        """As a machine that loses its power does."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """As a service manager does."""
        self.end(signal.SIGTERM)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


class House:
    """Where servers are started; it ends what it started."""

    def __init__(self, kind: str, folder: Path, agent: str = AGENT) -> None:
        self.kind = kind
        self.agent = agent
        self.folder = folder
        self.servers: list[Server] = []

    def start(self, store: str = "memory", *options: str, **env: str) -> Server:
        """A server over this store: "memory", "sqlite" (one file per house) or "cluster"."""
        command = [sys.executable, "-m"]
        if self.kind == "stock":
            files = {"sqlite": f"{self.folder}/tasks.db", "cluster": f"cluster:{self.folder}/c.db"}
            command += ["tests.wire.serving", files.get(store, store), *options]
        else:
            command += ["endstop", "serve", self.agent, *OPTIONS, *options]
            command += ["--journal", "memory" if store == "memory" else f"{self.folder}/tasks.db"]
        server = Server(command, env, self.folder / f"server{len(self.servers)}.log")
        self.servers.append(server)
        return server

    def close(self) -> None:
        for server in self.servers:
            server.kill()


@contextlib.contextmanager
def house(kind: str, folder: Path, agent: str = AGENT) -> Iterator[House]:
    made = House(kind, folder, agent)
    try:
        yield made
    finally:
        made.close()


@dataclass(slots=True)
class Seen:
    """What one stream showed: its events, and how it ended."""

    events: list[StreamResponse]
    at: list[float] = field(default_factory=list)
    error: str | None = None
    closed: bool = False

    @property
    def states(self) -> list[str]:
        return [state for event in self.events if (state := state_of(event))]

    @property
    def endings(self) -> list[str]:
        return [state for state in self.states if state in TERMINAL]

    @property
    def task_id(self) -> str:
        for event in self.events:
            if event.HasField("task"):
                return event.task.id
            if event.HasField("status_update"):
                return event.status_update.task_id
            if event.HasField("artifact_update"):
                return event.artifact_update.task_id
        raise AssertionError("the stream showed no task")


class Stream:
    """A stream that is read in the background, as a client with a window open does."""

    def __init__(self, events: AsyncIterator[StreamResponse]) -> None:
        self.seen = Seen([])
        self.changed = asyncio.Condition()
        self.reading = asyncio.create_task(self._read(events))

    async def _read(self, events: AsyncIterator[StreamResponse]) -> None:
        try:
            async for event in events:
                self.seen.events.append(event)
                self.seen.at.append(time.monotonic())
                async with self.changed:
                    self.changed.notify_all()
            self.seen.closed = True
        except Exception as error:
            self.seen.error = f"{type(error).__name__}: {error}"
        finally:
            async with self.changed:
                self.changed.notify_all()

    async def until(self, state: str, limit_s: float = CALL_S) -> Seen:
        """Until the stream has shown this state (or ended)."""
        async with asyncio.timeout(limit_s), self.changed:
            await self.changed.wait_for(
                lambda: state in self.seen.states or self.reading.done() or self.over
            )
        return self.seen

    @property
    def over(self) -> bool:
        return self.seen.closed or self.seen.error is not None

    async def end(self, limit_s: float = CALL_S) -> Seen:
        """Until the stream is over, or the limit: then it is let go and `closed` stays false."""
        await asyncio.wait([self.reading], timeout=limit_s)
        await self.leave()
        return self.seen

    async def leave(self) -> None:
        """Goes away in the middle."""
        self.reading.cancel()
        await asyncio.wait([self.reading])


def message(order: Order | str, **more: Any) -> Message:
    text = order.text if isinstance(order, Order) else order
    more.setdefault("message_id", uuid.uuid4().hex)
    return Message(role=Role.ROLE_USER, parts=[Part(text=text)], **more)


class Token(CredentialService):
    """What a client knows of who it is: one token, whatever it is asked for."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def get_credentials(self, *asked: object) -> str:
        return self.token


class Caller:
    """The official client on one binding."""

    def __init__(
        self,
        server: Server,
        binding: str = "JSONRPC",
        version: str = "1.0",
        token: str | None = None,
    ) -> None:
        self.server = server
        self.token = token
        self.binding = binding
        self.version = version
        self.http = httpx.AsyncClient(timeout=CALL_S)

    async def __aenter__(self) -> Self:
        card = await A2ACardResolver(self.http, self.server.url).get_agent_card()
        self.card = card
        wanted = AgentCard()
        wanted.CopyFrom(card)
        del wanted.supported_interfaces[:]
        wanted.supported_interfaces.extend(
            i
            for i in card.supported_interfaces
            if i.protocol_binding == self.binding and i.protocol_version == self.version
        )
        assert wanted.supported_interfaces, f"the card offers no {self.binding} {self.version}"
        self.flowing = self._client(wanted, streaming=True)
        self.plain = self._client(wanted, streaming=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.flowing.close()
        await self.plain.close()
        await self.http.aclose()

    def _client(self, card: AgentCard, streaming: bool) -> Client:
        import grpc.aio

        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[self.binding],
        )
        token = [] if self.token is None else [AuthInterceptor(Token(self.token))]
        return ClientFactory(config).create(card, token)

    def within(self, limit_s: float) -> ClientCallContext:
        return ClientCallContext(timeout=limit_s)

    def request(
        self,
        order: Order | str,
        *,
        at_once: bool = False,
        push: str | None = None,
        history: int | None = None,
        **more: Any,
    ) -> SendMessageRequest:
        asked = SendMessageConfiguration(return_immediately=at_once)
        if history is not None:
            asked.history_length = history
        if push:
            asked.task_push_notification_config.CopyFrom(TaskPushNotificationConfig(url=push))
        return SendMessageRequest(message=message(order, **more), configuration=asked)

    async def answer(self, order: Order | str, **more: Any) -> StreamResponse:
        """A message, and what it is answered with."""
        answers = [a async for a in self.plain.send_message(self.request(order, **more))]
        (answer,) = answers
        return answer

    async def send(self, order: Order | str, **more: Any) -> Task:
        """A message, and the task that it is answered with."""
        answer = await self.answer(order, **more)
        assert answer.HasField("task"), answer
        return answer.task

    async def begin(self, order: Order | str, **more: Any) -> Task:
        """A message that is answered as soon as there is a task."""
        return await self.send(order, at_once=True, **more)

    def stream(self, order: Order | str, **more: Any) -> Stream:
        return Stream(self.flowing.send_message(self.request(order, **more)))

    def subscribe(self, task: str) -> Stream:
        return Stream(self.flowing.subscribe(SubscribeToTaskRequest(id=task)))

    async def get(self, task: str, history: int | None = None) -> Task:
        return await self.plain.get_task(GetTaskRequest(id=task, history_length=history))

    async def state(self, task: str) -> str:
        found = state_of(await self.get(task))
        assert found is not None
        return found

    async def cancel(self, task: str, limit_s: float = CALL_S) -> Task:
        return await self.plain.cancel_task(
            CancelTaskRequest(id=task), context=self.within(limit_s)
        )

    async def settled(self, task: str, limit_s: float = CALL_S) -> str:
        """Until the stored state is terminal, or the limit; the state."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while (state := await self.state(task)) not in TERMINAL and loop.time() < end:
            await asyncio.sleep(0.02)
        return state


class Broken(dict[str, str]):
    """Promises that were not kept: a short name, and what was seen instead."""

    def unless(self, kept: object, promise: str, seen: object = "") -> None:
        if not kept:
            self[promise] = str(seen)


@dataclass(frozen=True, slots=True)
class Place:
    """What a scenario is given."""

    house: House
    server: Server
    store: str
    folder: Path

    def ticks(self) -> Ticks:
        return Ticks(self.folder / f"{uuid.uuid4().hex}.ticks")

    def caller(self, binding: str = "JSONRPC", version: str = "1.0") -> Caller:
        return Caller(self.server, binding, version)

    @property
    def ours(self) -> bool:
        return self.house.kind == "endstop"
