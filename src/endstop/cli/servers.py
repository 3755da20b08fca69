"""The command line's MCP servers: `--mcp` and `--mcp-env` become open servers and their tools.

A server lives as long as the command that named it: it is started before anything is run, and when
the command ends, all of it is killed. Nothing here may show a command line or the value of a
variable. Without `--mcp` nothing of MCP is imported.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from endstop.cli import look
from endstop.cli.loading import Offered
from endstop.cli.output import complain
from endstop.config import Config
from endstop.errors import CallerError

if TYPE_CHECKING:
    from endstop.adapters.mcp import McpServer
    from endstop.tools.tool import Tool

START_S = 60.0
"""Time for a server to be ready: the first start of some fetches them first."""

CONFIRM_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """What was said of MCP servers on the command line."""

    commands: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    def open(self, stack: ExitStack, taken: Sequence[Offered] = ()) -> list[Offered]:
        """Open all of them until the stack is closed; returns their tools.

        Where a name is taken already, the tools of that server are named after it. Raises
        `EndstopError` for what is no server, or cannot be started.
        """
        if not self.commands:
            return []
        _quiet()
        env = _environment(self.env)
        offered: list[Offered] = []
        for number, command in enumerate(self.commands):
            server = stack.enter_context(_server(command, env, f"--mcp {number + 1}"))
            tools = _named_apart(server, {one.tool.name for one in (*taken, *offered)})
            for note in server.notes:
                complain(f"note: MCP server {server.name}: left out {look.words(note, 300)}")
            if not tools:
                complain(f"note: MCP server {server.name} offers no tool")
            source = f"MCP server {server.name}"
            offered += [Offered(tool=tool, source=source) for tool in tools]
        return offered


def _named_apart(server: McpServer, taken: set[str]) -> list[Tool]:
    """Its tools, under names that are free."""
    tools = server.tools_now()
    number = 1
    while taken.intersection(tool.name for tool in tools):
        again = "" if number == 1 else str(number)
        tools = server.tools_now(prefix=f"{server.name.replace('.', '_')}{again}_")
        number += 1
    return tools


def _server(command: str, env: dict[str, str], where: str) -> McpServer:
    from endstop.adapters.mcp import McpServer, McpTerms

    # It serves this command alone: what does not confirm a stop may as well be killed.
    grace_s = Config.load().timeouts.grace_s
    terms = McpTerms(
        start_s=START_S, unconfirmed="kill", confirm_s=min(CONFIRM_S, max(grace_s / 3, 0.05))
    )
    if command.startswith(("http://", "https://")):
        return McpServer.http(command, terms=terms)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CallerError(
            f"{where}: the command cannot be read: {str(error).lower()}; quote it as for a shell"
        ) from None
    if not words:
        raise CallerError(f"{where}: it is empty; give a command or a URL")
    return McpServer.stdio(*words, env=env, terms=terms)


def _environment(names: Sequence[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise CallerError(f"--mcp-env {missing[0]}: there is no such variable here; set it first")
    return {name: os.environ[name] for name in names}


def _quiet() -> None:
    """What the SDK logs is about the server, and told in our words where it matters."""
    for name in ("mcp", "client", "httpx2"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
