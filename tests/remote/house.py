"""Servers in processes, a line to them that can be cut, and a run that delegates to them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

from endstop import Config, RemoteAgent, Run, Runtime
from endstop.agents import Patience
from tests.support import ROOT

WAIT_S = 30.0
QUICK = Patience(
    submit_s=20, probe_s=10, fetch_s=10, cancel_s=10, every_s=0.02, most_every_s=0.1, probes=3
)
QUIET = {"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"}

Scenario = Callable[..., Coroutine[Any, Any, None]]


def loop_test(scenario: Scenario) -> Callable[..., None]:
    @wraps(scenario)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(scenario(*arguments, **named), 2 * WAIT_S))

    return run


class Server:
    """One server process."""

    def __init__(self, folder: Path, kind: str, *more: str, port: int = 0, name: str = "s") -> None:
        self.file = folder / f"{name}.notes"
        self.kind = kind
        self.more = more
        self.port = port
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "tests.remote.serving", self.kind, str(self.file)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), *self.more],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | QUIET,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server did not come up"
        self.port = json.loads(line)["port"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def notes(self) -> list[str]:
        """What really happened."""
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []

    def count(self, word: str) -> int:
        return sum(note.split(" ")[0] == word for note in self.notes)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.02)

    def stop(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Line:
    """A TCP line to a port that can be cut and mended."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.port = 0
        self.up = True
        self.accepted = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if not self.up:
            writer.transport.abort()
            return
        try:
            there, out = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, out}
        with suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(_pump(reader, out), _pump(there, writer))
        for one in (writer, out):
            one.transport.abort()
            self._open.discard(one)

    def cut(self) -> None:
        """Every connection breaks, and none comes about."""
        self.up = False
        for one in list(self._open):
            one.transport.abort()

    def mend(self) -> None:
        self.up = True


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        with suppress(OSError):
            writer.write_eof()


@asynccontextmanager
async def line(to: int) -> AsyncIterator[Line]:
    made = Line(to)
    server = await asyncio.start_server(made.carry, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.cut()
        await asyncio.sleep(0)


@asynccontextmanager
async def running(grace_s: float = 15.0, **terms: Any) -> AsyncIterator[Run]:
    """A run of a runtime, with a short ladder."""
    config = Config.load(directory="/", environ={}, grace_s=grace_s, kill_s=1.0)
    async with Runtime(config=config, **terms) as runtime, runtime.run("r") as run:
        yield run


def remote(agent: Any, **terms: Any) -> RemoteAgent:
    return RemoteAgent(agent, **({"name": "peer", "patience": QUICK} | terms))
