"""The link to one server: its connection is made when it is needed, and made again when it is lost.

The connection lives on a loop of its own, on a thread of its own: a body that blocks the loop of
the runtime, or a server that floods us, holds up neither the other nor a stop. What is asked of it
comes from any thread. A new connection is tried a bounded number of times, with a pause between.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, TypeVar

import mcp_types as types
from mcp.client.session import ClientSession

from endstop.adapters.mcp.elicit import Elicitor
from endstop.adapters.mcp.errors import McpError
from endstop.adapters.mcp.http import Http
from endstop.adapters.mcp.live import Live, explained, greet, leaf, read_tools, secrets_of
from endstop.adapters.mcp.results import RESULT_BYTES
from endstop.adapters.mcp.stdio import Stdio
from endstop.adapters.mcp.wire import Dispatch
from endstop.core.text import describe_error
from endstop.work.loopthread import LoopThread
from endstop.work.steps import on_thread

log = logging.getLogger("endstop.adapters")

Way = Stdio | Http
Answer = TypeVar("Answer")

LAST_WORDS_S = 1.0
REFRESH_S = 0.05
"""Changes of the list of tools that come together are looked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is asked of a server; times in seconds.

    `start_s` bounds the handshake and the first list of tools, `tries` how often a call starts a
    lost server anew, the first pause being `pause_s`, doubled up to `most_pause_s`. After a stop, a
    server that is a program of ours has `confirm_s` to confirm it before it is killed, where
    `unconfirmed` is "kill"; otherwise its answer is listened for, for `linger_s`.
    """

    start_s: float = 30.0
    tries: int = 3
    pause_s: float = 0.25
    most_pause_s: float = 10.0
    unconfirmed: Literal["wait", "kill"] = "wait"
    confirm_s: float = 1.0
    linger_s: float = 60.0
    result_bytes: int = RESULT_BYTES


class Link:
    """One server, as everybody in this process reaches it."""

    def __init__(self, name: str, way: Way, terms: Terms, on_change: Callable[[], None]) -> None:
        self.name = name
        self.way = way
        self.terms = terms
        self._on_change = on_change
        given = way.env.values() if isinstance(way, Stdio) else way.headers.values()
        self._secrets = secrets_of(given)
        self._thread = LoopThread(f"endstop-mcp-{name}"[:60])
        self._live: Live | None = None
        self._lives: set[Live] = set()
        self._closed = False
        self._closing = threading.Lock()
        self._failed: tuple[float, McpError] | None = None
        self._listed: list[str] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing = False
        self._stale = False
        self._lock: asyncio.Lock | None = None

    # -- from any thread

    def submit(self, work: Coroutine[Any, Any, Answer]) -> concurrent.futures.Future[Answer]:
        """Have something done on the connection's loop; its end as a future."""
        # Under the lock, so that whatever is submitted begins before the end does.
        with self._closing:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(work, self._thread.loop())
        work.close()
        refused: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        refused.set_exception(McpError(f"MCP server {self.name}: it was closed"))
        return refused

    def close(self) -> concurrent.futures.Future[None]:
        """End the connection and what serves it; calls that still run fail. Bounded."""
        with self._closing:
            assert not self._closed, "a link is closed once"
            self._closed = True
            ending = asyncio.run_coroutine_threadsafe(self._close(), self._thread.loop())
        ending.add_done_callback(lambda _: self._thread.close())
        return ending

    @property
    def live(self) -> Live | None:
        """The connection as it is now."""
        return self._live

    def worked(self) -> None:
        """A call has got its answer: the server is in order."""
        self._failures = 0

    # -- on the connection's loop

    async def _close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        lives = tuple(self._lives)
        calls = {one.task for live in lives for one in live.exchanges if one.task is not None}
        for live in lives:
            live.gone.set()
        for live in lives:
            await live.over.wait()
        if calls:
            # They have been told by now, and are to say so in their own words.
            await asyncio.wait(calls, timeout=LAST_WORDS_S)

    async def connected(self, tries: int | None = None) -> Live:
        """The connection, made if there is none. Raises McpError once all tries are used up."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        began = monotonic()
        async with self._lock:
            if self._failed is not None and self._failed[0] >= began:
                # Others have used up all tries meanwhile: nobody begins them all over again.
                raise McpError(str(self._failed[1]))
            left = tries if tries is not None else self.terms.tries
            while True:
                live = await self._one_try()
                if live.error is None:
                    self._failed = None
                    return live
                left -= 1
                if left <= 0 or self._closed:
                    self._failed = (monotonic(), live.error)
                    raise live.error

    async def _one_try(self) -> Live:
        live = self._live
        if live is None or not live.usable:
            if live is not None:
                live.retire()
            if live is not None and live.gone.is_set():
                await live.over.wait()
            pause_s = self._not_before - monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            if self._closed:
                raise McpError(f"MCP server {self.name}: it was closed")
            live = self._live = Live(name=self.name, secrets=self._secrets)
            self._lives.add(live)
            # Not in the context of the call that happens to need it.
            work = self._serve(live)
            serving = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
            self._keep(serving)
            pause_s = self.terms.pause_s * 2 ** min(self._failures, 20)
            self._failures += 1
            self._not_before = monotonic() + min(pause_s, self.terms.most_pause_s)
        await live.ready.wait()
        return live

    def _keep(self, task: asyncio.Task[None]) -> None:
        _kept.add(task)
        task.add_done_callback(_kept.discard)

    async def _serve(self, live: Live) -> None:
        """One connection from its beginning to its proved end."""
        try:
            async with self.way.open(live) as (read, write):
                await self._speak(live, read, write)
        except Exception as error:  # noqa: BLE001 - whatever the SDK or a server makes of it
            cause = leaf(error)
            live.why = live.why or (str(cause) if isinstance(cause, McpError) else explained(cause))
        finally:
            live.gone.set()
            if not live.ready.is_set():
                # Told when its end is known: its last words often say what is wrong.
                live.error = live.problem(live.ending())
            self._lives.discard(live)
            if live.remains is not None and live.remains.survivors:
                log.warning("MCP server %s: %s", self.name, live.ending())
            live.ready.set()
            live.over.set()

    async def _speak(self, live: Live, read: Any, write: Any) -> None:
        live.dispatch = Dispatch(read, write, live.gone.set)
        elicitor = Elicitor(live)

        async def heard(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._changed(live)

        session = ClientSession(
            dispatcher=live.dispatch,
            elicitation_callback=elicitor.asked,
            message_handler=heard,
            client_info=types.Implementation(name="endstop", version="0"),
        )
        async with session:
            live.session = session
            if await self._greeted(live):
                live.ready.set()
                self._keep(asyncio.get_running_loop().create_task(self._tell_change(live)))
                await live.gone.wait()

    async def _greeted(self, live: Live) -> bool:
        """The handshake and the first list, unless the time is up or the connection ends first."""
        loop = asyncio.get_running_loop()
        greeting = loop.create_task(_greet(live))
        leaving = loop.create_task(live.gone.wait())
        try:
            await asyncio.wait(
                {greeting, leaving},
                timeout=self.terms.start_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if greeting.done():
                failure = greeting.exception()
                if failure is None:
                    return True
                # Where the connection has ended, that is why.
                live.lose(explained(failure))
            elif not live.gone.is_set():
                live.hurry = True
                live.lose(f"it did not finish the handshake within {self.terms.start_s:g} s")
        finally:
            greeting.cancel()
            leaving.cancel()
        return False

    # -- changes of the list

    def _changed(self, live: Live) -> None:
        self._stale = True
        if not self._refreshing:
            self._refreshing = True
            task = asyncio.get_running_loop().create_task(self._refresh(live))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _refresh(self, live: Live) -> None:
        try:
            while self._stale and not live.gone.is_set():
                await asyncio.sleep(REFRESH_S)
                self._stale = False
                async with asyncio.timeout(self.terms.start_s):
                    live.tools = await read_tools(live)
                await self._tell_change(live)
        except Exception as error:  # noqa: BLE001 - the old list stays in force
            log.warning(
                "MCP server %s: its new list of tools could not be read: %s",
                self.name,
                live.redacted(describe_error(leaf(error))),
            )
        finally:
            self._refreshing = False

    async def _tell_change(self, live: Live) -> None:
        """Tell of tools that are not those of before, on a thread: it may do whatever it likes."""
        before, self._listed = self._listed, [tool.model_dump_json() for tool in live.tools]
        if before is not None and before != self._listed:
            await asyncio.wait({on_thread(self._on_change)})

    async def tools(self) -> list[types.Tool]:
        """The tools that the server offers now."""
        live = await self.connected()
        pending = tuple(self._tasks)
        if pending:
            await asyncio.wait(pending, timeout=self.terms.start_s)
        return live.tools


async def _greet(live: Live) -> None:
    assert live.session is not None, "a handshake is made in a session"
    await greet(live.session)
    live.tools = await read_tools(live)


# The loop keeps only weak references to tasks, and a link may be forgotten before it is closed.
_kept: set[asyncio.Task[None]] = set()
