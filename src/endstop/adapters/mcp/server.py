"""`McpServer`: the tools of an MCP server as tools of ours, for both drivers.

The server is connected while the block is open, and started again when it is lost. Everything a
call needs beyond that (deadline, approval, budget, stop, one ending) is the runtime's, as for every
tool. Nothing here decides what the ending of a call means.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import mcp_types as types

from endstop.adapters.mcp.http import Http
from endstop.adapters.mcp.link import Link, Terms, Way
from endstop.adapters.mcp.offer import Asking, Offered, Rules, safe_names
from endstop.adapters.mcp.stdio import Stdio
from endstop.core.text import safe_text
from endstop.errors import CallerError
from endstop.tools.tool import Tool

log = logging.getLogger("endstop.adapters")

CLOSE_S = 15.0
"""How long closing may take at the very most; every step of it has a bound of its own."""

_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class McpServer:
    """One MCP server. Made by `McpServer.stdio` or `McpServer.http`; used as a (async) block.

    async with McpServer.stdio("npx", "-y", "some-server") as server:
        async with Runtime(await server.tools(prefix="some_")) as runtime:
            ...
    """

    def __init__(
        self,
        name: str,
        way: Way,
        *,
        trust: bool = True,
        approval: Asking = "never",
        parallel: bool = True,
        contract: Mapping[str, Mapping[str, Any]] | None = None,
        on_change: Callable[[McpServer], object] | None = None,
        terms: Terms | None = None,
    ) -> None:
        """Connects nothing yet. Raises CallerError for what cannot be meant."""
        if approval not in ("never", "destructive", "always"):
            raise CallerError(
                f'McpServer: approval is "never", "destructive" or "always", not {approval!r:.80}'
            )
        self.name = _NAME.sub("-", name).strip("-.")[:60] or "server"
        self._way = way
        self._terms = terms if terms is not None else Terms()
        self._rules = Rules(
            trust=trust, approval=approval, parallel=parallel, contract=dict(contract or {})
        )
        self._on_change = on_change
        self._link: Link | None = None
        self._offered: Offered | None = None

    @classmethod
    def stdio(
        cls,
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        name: str | None = None,
        **rules: Any,
    ) -> McpServer:
        """A server that is a program: it is started, spoken to on its pipes, and killed as a tree.

        It gets a plain environment (PATH, HOME and the like) and `env`, and nothing else of ours.
        `name` is what it is called in resources and errors, by default the name of the command.
        `trust=False` ignores its hints; `contract={tool: {...}}` says what `@tool` takes, by the
        server's own names, "*" for all; `approval="destructive"` asks a human for every tool that
        is not hinted to be harmless; `parallel=False` runs its calls one after the other;
        `on_change` is called with this server, on a thread of ours, when its tools have changed.
        """
        if not isinstance(command, str) or not command.strip():
            raise CallerError("McpServer.stdio: the command is the name of a program")
        argv = [command, *map(str, arguments)]
        given = _texts("McpServer.stdio: env", env)
        if any("\0" in word for word in (*argv, *given, *given.values())):
            raise CallerError("McpServer.stdio: a command and its env have no NUL characters")
        if cwd is not None and not Path(cwd).is_dir():
            raise CallerError("McpServer.stdio: cwd is no directory")
        way = Stdio(argv=argv, env=given, cwd=None if cwd is None else os.fspath(cwd))
        plain = os.path.basename(command)
        return cls(name if name is not None else plain.removesuffix(".py"), way, **rules)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        **rules: Any,
    ) -> McpServer:
        """A server at a URL, over streamable HTTP; `headers` go with every request.

        The other keywords are those of `stdio`.
        """
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CallerError("McpServer.http: the URL begins with http:// or https:// and a host")
        given = _texts("McpServer.http: headers", headers)
        if not all(
            word.isascii() and word.isprintable() for pair in given.items() for word in pair
        ):
            raise CallerError("McpServer.http: headers are printable ASCII, without line breaks")
        way = Http(url=url, headers=given)
        return cls(name if name is not None else parts.hostname, way, **rules)

    # -- opening and closing

    async def __aenter__(self) -> Self:
        connecting = self._open()
        opened = False
        try:
            await asyncio.wrap_future(connecting)
            opened = True
        finally:
            if not opened:
                await self._closed()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closed()

    def __enter__(self) -> Self:
        connecting = self._open()
        opened = False
        try:
            connecting.result()
            opened = True
        finally:
            if not opened:
                self.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server; blocks, bounded, until all of it is gone. Calls that still run fail."""
        ending = self._close()
        if ending is not None:
            concurrent.futures.wait([ending], timeout=CLOSE_S)

    async def _closed(self) -> None:
        ending = self._close()
        if ending is not None:
            await asyncio.wait({asyncio.wrap_future(ending)}, timeout=CLOSE_S)

    def _open(self) -> concurrent.futures.Future[Any]:
        if self._link is not None:
            raise CallerError(f"MCP server {self.name} is open already; use one block at a time")
        self._link = Link(self.name, self._way, self._terms, self._changed)
        self._offered = Offered(self._link, self._rules)
        return self._link.submit(self._link.connected(tries=1))

    def _close(self) -> concurrent.futures.Future[None] | None:
        link, self._link = self._link, None
        return None if link is None else link.close()

    # -- tools

    async def tools(self, *, prefix: str = "") -> list[Tool]:
        """Its tools as they are now, each name with `prefix` before it.

        Names that models cannot say are changed; see `originals`. The same definition gives the
        same tool again. Raises McpError where the server is lost and cannot be started again.
        """
        found = await asyncio.wrap_future(self._linked().submit(self._linked().tools()))
        return self._make(found, prefix)

    def tools_now(self, *, prefix: str = "") -> list[Tool]:
        """Its tools as they were last heard of; never waits. See `tools`."""
        live = self._linked().live
        return self._make(live.tools if live is not None else [], prefix)

    def originals(self, *, prefix: str = "") -> dict[str, str]:
        """The server's own name of each tool, by the name that it has here."""
        live = self._linked().live
        found = live.tools if live is not None else []
        return {ours: its for its, ours in safe_names((t.name for t in found), prefix).items()}

    @property
    def instructions(self) -> str:
        """What the server tells models about itself as a whole; its own words, bounded."""
        live = self._linked().live
        session = None if live is None else live.session
        return safe_text((session.instructions if session is not None else None) or "")

    @property
    def notes(self) -> list[str]:
        """What is wrong with what the server offers, in words: tools that had to be left out."""
        live = self._linked().live
        return [] if live is None else [live.redacted(one) for one in live.broken]

    def _make(self, found: list[types.Tool], prefix: str) -> list[Tool]:
        assert self._offered is not None, "an open server offers"
        return self._offered.tools(found, prefix)

    def _linked(self) -> Link:
        if self._link is None:
            raise CallerError(f'MCP server {self.name} is not open; use it as "async with server"')
        return self._link

    def _changed(self) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(self)
        except Exception:
            log.warning("MCP server %s: its on_change failed", self.name, exc_info=True)


def _texts(what: str, given: Mapping[str, str] | None) -> dict[str, str]:
    """Names and values as texts. Raises CallerError, which does not repeat the values."""
    made = dict(given or {})
    for name, value in made.items():
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise CallerError(f"{what}: names and values are texts; {name!r:.80} is not")
    return made
