"""A server and its life: bound, serving, going down, gone.

Going down is a sequence: nothing new is taken, what may go on later is let go in the journal, what
runs is stopped by the ladder within its bounds, every reader gets a last frame that is true, and
only then the sockets close (laws 6 bounded-stop, 16 survives-restart and 18 audience-free). Being
asked a second time makes it shorter: what runs is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import AgentCard
from sse_starlette.sse import AppStatus

from endstop.core.terms import Mode, Reason
from endstop.errors import EndstopError, StaleWriter
from endstop.run.runtime import Runtime
from endstop.server.app import assemble, read_tokens
from endstop.server.auth import Tokens, check_exposed
from endstop.server.card import reached_at
from endstop.server.front import Door
from endstop.server.guard import Guarded
from endstop.server.limits import CannotServe, ServerLimits

log = logging.getLogger("endstop.server")

LAST_FRAMES_S = 1.0
"""How long readers have for what the end of the runs said, before they are told the rest."""

SOCKETS_S = 2.0
"""How long connections have to close by themselves after that."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: this process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """One agent on its sockets.

    `async with Serving(handler, card) as serving:` serves inside the block; for a program that does
    nothing else, `heed_signals()`, `await start()` and `await until_stopped()`.

    A handler's `recover()` is called before anything is answered, its `aclose()` when the server
    goes down. `runtime` is what it runs on; it is closed after that. Port 0 is a free one. Binding
    to an address that others can reach needs a token. `start()` raises CallerError and CannotServe,
    in words.
    """

    def __init__(
        self,
        handler: RequestHandler,
        agent_card: AgentCard,
        *,
        runtime: Runtime | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        grpc_port: int | None = None,
        tokens: Tokens | Mapping[str, str] | None = None,
        limits: ServerLimits | None = None,
        url: str | None = None,
    ) -> None:
        self.agent_card = AgentCard()
        self.agent_card.CopyFrom(agent_card)
        self.tokens = read_tokens(None, tokens)
        self.limits = limits if limits is not None else ServerLimits()
        self.url = url or ""
        self.grpc_address: str | None = None
        # How many tasks of an earlier server were taken up.
        self.taken_up = 0
        self._handler = handler
        self._guarded = Guarded(handler)
        self._runtime = runtime
        self._host = host
        self._port = port
        self._grpc_port = grpc_port
        self._grpc: Any = None
        self._http: _Server | None = None
        self._running: asyncio.Task[None] | None = None
        self._asked = 0
        self._asking = asyncio.Event()
        self._heeded: tuple[signal.Signals, ...] = ()
        self._door = Door(self.limits, None if self.tokens else _names(host, self.url))

    # -- up

    async def start(self) -> None:
        """Bind and serve; returns when requests are answered."""
        check_exposed(self._host, self.tokens)
        sock = _bind(self._host, self._port)
        with contextlib.ExitStack() as undo:
            undo.callback(sock.close)
            self._start_on(sock)
            undo.pop_all()
        assert self._http is not None
        # What an earlier server left is in order before anybody is answered.
        recover = getattr(self._handler, "recover", None)
        if recover is not None:
            self.taken_up = len(await recover())
        if self._grpc is not None:
            await self._grpc.start()
        self._running = asyncio.create_task(self._http.serve([sock]), name="http")
        while not self._http.started:
            if self._running.done():
                await self._running
                raise CannotServe("the HTTP server ended before it began")
            await asyncio.sleep(0.005)

    def _start_on(self, sock: socket.socket) -> None:
        shown = _shown_host(self._host)
        self.url = self.url or f"http://{shown}:{sock.getsockname()[1]}/"
        if self._grpc_port is not None:
            self._grpc, bound = _make_grpc(
                self._guarded, self.tokens, self._door, self._host, self._grpc_port
            )
            self.grpc_address = f"{shown}:{bound}"
        reached_at(self.agent_card, self.url, self.grpc_address, secret=bool(self.tokens))
        self._extend()
        app = assemble(self._guarded, self.agent_card, self.tokens, self._door)
        # Streams end when their tasks do or when this says so, and not by the library's own watch.
        AppStatus.enable_automatic_graceful_drain = False
        self._http = _Server(_config(app, self.limits))

    def _extend(self) -> None:
        """The handler's card for those who are known is reached where the public one is."""
        handler: Any = self._handler
        known = getattr(handler, "extended_agent_card", None)
        if isinstance(known, AgentCard):
            handler.extended_agent_card = AgentCard()
            handler.extended_agent_card.CopyFrom(known)
            reached_at(
                handler.extended_agent_card,
                self.url,
                self.grpc_address,
                secret=bool(self.tokens),
            )

    # -- down

    def stop(self) -> None:
        """Ask the server to go down; from its own thread. A second time: faster."""
        self._asked += 1
        self._asking.set()
        if self._asked == 2 and self._runtime is not None:
            for run in list(self._runtime.engine.state.runs.values()):
                with contextlib.suppress(EndstopError):
                    _ = self._runtime.cancel(run.id, Reason.SHUTDOWN, Mode.KILL)

    def heed_signals(self) -> None:
        """Let SIGTERM, SIGINT and SIGHUP call `stop()`, until the server is down."""
        loop = asyncio.get_running_loop()
        self._heeded = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number in self._heeded:
            loop.add_signal_handler(number, self.stop)

    async def until_stopped(self) -> None:
        """Serve until `stop()` is called, then go down."""
        assert self._running is not None, "start() comes first"
        asked = asyncio.create_task(self._asking.wait())
        await asyncio.wait({asked, self._running}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        await self.close()

    async def close(self) -> None:
        """Go down, see the sequence above; returns when all is closed."""
        if self._http is None or self._running is None:
            return
        self._door.close()
        self._http.should_exit = True
        try:
            aclose = getattr(self._handler, "aclose", None)
            if aclose is not None:
                await aclose()
            if self._runtime is not None:
                # Where another server took a run from this one, that one has the record.
                with contextlib.suppress(StaleWriter):
                    await self._runtime.close(suspend=True)
        finally:
            # Whatever went wrong there: nobody is left with a connection to what is not here.
            await self._hang_up()

    async def _hang_up(self) -> None:
        assert self._http is not None, "it was up"
        assert self._running is not None, "it was up"
        await self._guarded.quiet(LAST_FRAMES_S)
        self._guarded.go_down()
        if self._grpc is not None:
            await self._grpc.stop(SOCKETS_S)
        await asyncio.wait({self._running}, timeout=SOCKETS_S)
        if not self._running.done():
            # Whoever reads nothing any more does not keep the server.
            self._http.force_exit = True
            for connection in list(self._http.server_state.connections):
                transport = getattr(connection, "transport", None)
                if transport is not None:
                    transport.abort()
        await self._running
        self._http = None
        for number in self._heeded:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._heeded = ()

    async def __aenter__(self) -> Serving:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio turns off the delay of small packets on what it accepts.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host.strip("[]"), port))
        sock.listen(1024)
        sock.setblocking(False)
    except (OSError, OverflowError) as error:
        sock.close()
        why = getattr(error, "strerror", None) or str(error)
        raise CannotServe(f"cannot listen on {host}, port {port}: {why}") from None
    return sock


def _names(host: str, url: str) -> frozenset[str]:
    """What a client writes as the host of a server that only this machine can reach."""
    given = urlsplit(url).hostname if url else None
    return frozenset({"localhost", "127.0.0.1", "[::1]", _shown_host(host), given or "localhost"})


def _shown_host(host: str) -> str:
    """How a client on this machine writes the address."""
    if host in ("", "0.0.0.0", "::"):
        return "127.0.0.1" if host != "::" else "[::1]"
    return f"[{host.strip('[]')}]" if ":" in host else host


def _config(app: Any, limits: ServerLimits) -> uvicorn.Config:
    protocol: Any = "h11"
    with contextlib.suppress(ImportError):
        from endstop.server.connection import bounded

        protocol = bounded(limits)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing here asks for the address of a client: no header decides over it.
        proxy_headers=False,
        # One more than what the connection class lets in: it answers by itself.
        limit_concurrency=limits.connections + 1,
        timeout_keep_alive=max(1, round(limits.idle_s)),
        h11_max_incomplete_event_size=limits.header_bytes,
    )


def _make_grpc(handler: Guarded, tokens: Tokens, door: Any, host: str, port: int) -> Any:
    try:
        from endstop.server.grpc_server import make_grpc
    except ImportError:
        raise CannotServe("gRPC needs grpcio: install endstop[grpc]") from None
    return make_grpc(handler, tokens, door, host, port)
