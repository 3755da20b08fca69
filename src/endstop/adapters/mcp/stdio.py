"""A server as a program of ours: its pipes as the SDK's streams, its end as a whole tree.

The program runs under a host (`work/program.py`), so that it, and whatever it has started, can be
killed with proof (law 11 whole-tree). Lines are read one at a time and bounded; what is no message
is remembered as noise, and where it was meant as an answer, its call is told so. Nothing here waits
without a bound for a server that does not want to end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from endstop.adapters.mcp.errors import McpError
from endstop.adapters.mcp.live import Live
from endstop.core.payload import Unserialisable, to_data
from endstop.errors import WorkerError
from endstop.work.program import Program, Remains
from endstop.work.steps import on_thread

Answer = TypeVar("Answer")

MESSAGE_BYTES = 8 << 20
"""Longest message that is taken from a server."""

SKIPPED_MAX = 10_000
"""So many lines in a row that are no messages, and it is no server of this protocol."""

CLOSE_S = 1.0
"""How long a server has to end after its input was closed, and again after SIGTERM."""

KILL_S = 3.0

_CHUNK = 1 << 16
_DRAIN_S = 0.5
_HEAD_BYTES = 400
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,64}")')


@dataclass(frozen=True, kw_only=True)
class Stdio:
    """How to start a server: command, arguments, its environment and where it runs."""

    argv: Sequence[str]
    env: dict[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    message_bytes: int = MESSAGE_BYTES

    separate = False
    """All requests share one connection."""
    can_kill = True

    @asynccontextmanager
    async def open(self, live: Live) -> AsyncIterator[tuple[Any, Any]]:
        """Start it and speak with it; on leaving, all of it is dead, or its survivors are named."""
        loop = asyncio.get_running_loop()

        def exited() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: loop.call_later(_DRAIN_S, live.lose, "it ended"))

        program = await self._start(exited)
        pipes = _Pipes(program, live, self.message_bytes)
        try:
            yield await pipes.open()
        finally:
            lost = live.why is not None
            if lost and not live.hurry:
                # Its pipes end before its end is seen, and how it ended is worth knowing.
                live.exited = await _patiently(lambda: program.wait(_DRAIN_S))
            await pipes.close()
            live.remains = await _end(program, hurry=lost)

    async def _start(self, exited: Any) -> Program:
        starting = on_thread(lambda: Program(self.argv, env=self.env, cwd=self.cwd, on_exit=exited))
        try:
            await asyncio.wait({starting})
        except asyncio.CancelledError:
            starting.add_done_callback(_end_unwanted)
            raise
        try:
            program: Program = starting.result()
            return program
        except WorkerError as error:
            raise McpError(f"it could not be started: {_cannot(str(error))}") from None


def _cannot(words: str) -> str:
    # The system's words name our paths; what went wrong is enough.
    found = re.search(r"\[Errno \d+\] ([^:]+)", words)
    return found[1].lower() if found else "the system refused"


def _end_unwanted(started: asyncio.Future[Program]) -> None:
    if not started.cancelled() and started.exception() is None:
        program = started.result()
        os.close(program.stdin)
        os.close(program.stdout)
        _ = on_thread(program.end)


async def _end(program: Program, *, hurry: bool) -> Remains:
    """The three steps of ending, each bounded; the last one is the proof."""

    def end() -> Remains:
        if not hurry and not program.wait(CLOSE_S):
            program.ask_to_end()
            program.wait(CLOSE_S)
        return program.end(KILL_S)

    return await _patiently(end)


async def _patiently(step: Callable[[], Answer]) -> Answer:
    """A bounded step on a thread, to its end: a tree left half killed would be nobody's."""
    going_on = on_thread(step)
    cancelled = False
    while not going_on.done():
        try:
            await asyncio.wait({going_on})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    done: Answer = going_on.result()
    return done


class _Pipes:
    """The two pipes of a program as the streams that the SDK reads and writes."""

    def __init__(self, program: Program, live: Live, limit: int) -> None:
        self._program = program
        self._live = live
        self._limit = limit
        self._skipped = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self._writer: asyncio.StreamWriter | None = None
        self._to_session, self._from_server = anyio.create_memory_object_stream[Any](0)
        self._from_session, self._to_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def open(self) -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_CHUNK, loop=loop)
        into = open(self._program.stdout, "rb", buffering=0)  # noqa: SIM115, ASYNC230
        out = open(self._program.stdin, "wb", buffering=0)  # noqa: SIM115, ASYNC230
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), into
        )
        writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, out)
        self._transports = [writing, reading]
        self._writer = writer = asyncio.StreamWriter(writing, protocol, None, loop)
        self._tasks = [loop.create_task(self._read(reader)), loop.create_task(self._write(writer))]
        return self._from_server, self._from_session

    async def close(self) -> None:
        """Let go of both pipes: for the server, its input is at its end."""
        for task in self._tasks:
            task.cancel()
        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size():
                # It does not read: what it has not taken by now it never will.
                transport.abort()
            transport.close()
        if self._writer is not None:
            self._writer.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for stream in (
            self._to_session,
            self._from_server,
            self._from_session,
            self._to_server,
        ):
            stream.close()

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        try:
            async for item in self._to_server:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(line.encode("utf-8", errors="replace") + b"\n")
                await writer.drain()
        except OSError:
            self._live.lose("it closed its standard input")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        buffer = bytearray()
        skipping = False
        try:
            while not self._live.gone.is_set() and (chunk := await reader.read(_CHUNK)):
                # What is only skipped waits for nothing, and must not keep the loop.
                await asyncio.sleep(0)
                first, *rest = chunk.split(b"\n")
                buffer += first
                for following in rest:
                    line, buffer = bytes(buffer), bytearray(following)
                    if len(line) > self._limit and not skipping:
                        await self._too_long(line[:_HEAD_BYTES])
                    elif not skipping:
                        await self._take(line)
                    skipping = False
                if len(buffer) > self._limit:
                    if not skipping:
                        await self._too_long(bytes(buffer[:_HEAD_BYTES]))
                    skipping = True
                    buffer = bytearray()
        except OSError:
            pass
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        if buffer and not skipping:
            await self._take(bytes(buffer))
        self._live.lose("it closed its standard output")
        self._to_session.close()

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = read_line(line)
        if message is None:
            self._live.heard_noise(line[:1000].decode(errors="replace"))
            self._skipped += 1
            if self._skipped > SKIPPED_MAX:
                self._live.lose("it does not speak MCP")
            return
        self._skipped = 0
        await self._to_session.send(SessionMessage(message))

    async def _too_long(self, head: bytes) -> None:
        words = f"its answer is longer than {self._limit} bytes"
        refused = _refusal(head, words)
        if refused is not None:
            await self._to_session.send(SessionMessage(refused))
        else:
            self._live.heard_noise(f"a line longer than {self._limit} bytes")


def read_line(line: bytes) -> Any:
    """One line as a message; None for what is none. An answer that cannot be read is an error."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        # Python's reader takes what a strict one does not: NaN, halves of surrogate pairs.
        data = to_data(json.loads(line))
        return jsonrpc_message_adapter.validate_python(data, by_name=False)
    except (ValueError, Unserialisable, RecursionError):
        return _refusal(line[:_HEAD_BYTES], "its answer is not valid JSON-RPC")


def _refusal(head: bytes, words: str) -> JSONRPCError | None:
    """The error in place of an unreadable answer, where its beginning says whose it is."""
    if not head.lstrip().startswith(b"{") or b'"method"' in head:
        return None
    found = _ID.search(head)
    if found is None:
        return None
    number: Any = json.loads(found[1])
    error = ErrorData(code=PARSE_ERROR, message=words)
    return JSONRPCError(jsonrpc="2.0", id=number, error=error)
