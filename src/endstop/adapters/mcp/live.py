"""One connection to a server, from its handshake to its end, and the words for how it ended.

Everything here happens on the connection's own loop. Nothing here starts a connection or decides
what its end means for a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from endstop.adapters.mcp.errors import UNREACHABLE, McpError, quoted
from endstop.core.text import describe_error
from endstop.work.program import Remains

if TYPE_CHECKING:
    from endstop.adapters.mcp.exchange import Exchange
    from endstop.adapters.mcp.wire import Dispatch

PAGES_MAX = 100
TOOLS_MAX = 2_000
NOISE_MAX = 3
STDERR_CHARS = 600

_SECRET_CHARS = 8


@dataclass(eq=False, slots=True)
class Live:
    """One connection. `ready`, `gone` and `over` are set once each, in this order or sooner."""

    name: str
    secrets: tuple[str, ...]
    session: ClientSession | None = None
    dispatch: Dispatch | None = None
    tools: list[types.Tool] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    exchanges: set[Exchange] = field(default_factory=set)
    noise: list[str] = field(default_factory=list)
    remains: Remains | None = None
    hurry: bool = False
    exited: bool = False
    """Whether its program has ended before we did anything about it."""
    error: McpError | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    why: str | None = None
    stale: str | None = None
    """Why the next call is to have a new connection, while calls on this one go on."""
    refused: set[int | str | None] = field(default_factory=set)
    """Requests that the server refused at its door: its session was over, and nothing ran."""
    clean: set[int | str] = field(default_factory=set)
    """Requests whose answer's stream the server has ended properly, without an answer."""

    def lose(self, why: str) -> None:
        """The connection is of no use any more; the first reason is kept."""
        self.why = self.why or why
        self.gone.set()

    def leave(self, exchange: Exchange) -> None:
        """A call on this connection is over."""
        self.exchanges.discard(exchange)
        self.retire()

    def retire(self) -> None:
        """End a stale connection, once no call is on it."""
        if self.stale is not None and not self.exchanges:
            self.gone.set()

    @property
    def usable(self) -> bool:
        """Whether a call may be sent here."""
        return self.stale is None and not self.gone.is_set()

    def heard_noise(self, line: object) -> None:
        """The server wrote something that is no message."""
        if len(self.noise) < NOISE_MAX and (said := quoted(line, 200)):
            self.noise.append(said)

    @property
    def proved_dead(self) -> bool:
        """Whether everything that belonged to the server is known to be gone."""
        return self.remains is not None and not self.remains.survivors

    def ending(self) -> str:
        """Why it is over, with what the server said last."""
        parts = [self.why or "the connection ended"]
        remains = self.remains
        if self.exited and remains is not None and remains.status is not None:
            parts[0] = f"it ended with {_status(remains.status)}"
        if remains is not None and remains.survivors:
            left = ", ".join(quoted(name, 120) for name in remains.survivors[:5])
            parts.append(f"processes of it that could not be stopped: {left}")
        if self.noise:
            parts.append(f"it wrote to standard output: {' | '.join(self.noise)}")
        if remains is not None and (said := quoted(remains.stderr[-STDERR_CHARS:], STDERR_CHARS)):
            parts.append(f"its last words: {said}")
        return self.redacted("; ".join(parts))

    def redacted(self, text: str) -> str:
        """Text without the values that the server was given as environment or headers."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def problem(self, what: str) -> McpError:
        """An error about this server, in words."""
        return McpError(self.redacted(f"MCP server {self.name}: {what}"))


def secrets_of(values: Iterable[str]) -> tuple[str, ...]:
    """What must not be repeated: values, and the words in them, that are long enough to matter."""
    words = {part for value in values for part in (value, *value.split())}
    return tuple(sorted((word for word in words if len(word) >= _SECRET_CHARS), key=len)[::-1])


def _status(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def leaf(error: BaseException) -> BaseException:
    """The first real error in groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def explained(error: BaseException) -> str:
    """What is wrong, of what the SDK raises."""
    match leaf(error):
        case MCPError() as refused:
            words = quoted(refused.error.message)
            ours = refused.error.code == UNREACHABLE
            return words if ours else f"it answered with an error: {words}"
        case ValidationError() as wrong:
            first = wrong.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"][-4:])
            return f"it breaks the protocol: {quoted(place, 100)}: {quoted(first['msg'], 160)}"
        case RuntimeError() as other:
            return quoted(other)
        case other_error:
            return quoted(describe_error(other_error))


async def greet(session: ClientSession) -> None:
    """The handshake; with a server that knows only the newest protocol, what came in its place."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


async def read_tools(live: Live) -> list[types.Tool]:
    """All pages of the server's list; what is broken in it is left out and named."""
    assert live.session is not None, "tools are read of a session"
    found: dict[str, types.Tool] = {}
    live.broken.clear()
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(PAGES_MAX):
        tools, cursor = await _page(live, cursor)
        for tool in tools:
            # The first of two of one name is the one that a call by that name reaches, or not:
            # only the server can tell, so there is one.
            found.setdefault(tool.name, tool)
        if cursor is None or cursor in seen or len(found) > TOOLS_MAX:
            break
        seen.add(cursor)
    return list(found.values())[:TOOLS_MAX]


async def _page(live: Live, cursor: str | None) -> tuple[list[types.Tool], str | None]:
    session, dispatch = live.session, live.dispatch
    assert session is not None
    assert dispatch is not None
    params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
    try:
        page = await session.list_tools(params=params)
        return page.tools, page.next_cursor
    except ValidationError:
        # One broken tool is no reason to do without the others.
        raw = await dispatch.send_raw_request(
            "tools/list", {"cursor": cursor} if cursor is not None else None
        )
    except MCPError as error:
        if error.error.code == METHOD_NOT_FOUND:
            return [], None
        raise
    following = raw.get("nextCursor")
    tools = raw.get("tools")
    listed = tools if isinstance(tools, list) else []
    return list(_sound(listed, live.broken.append)), (
        following if isinstance(following, str) else None
    )


def _sound(listed: list[Any], broken: Callable[[str], None]) -> Iterator[types.Tool]:
    for one in listed:
        try:
            yield types.Tool.model_validate(one, by_name=False)
        except ValidationError as error:
            name = one.get("name") if isinstance(one, dict) else None
            broken(f"{quoted(name, 80)}: {explained(error)}")
