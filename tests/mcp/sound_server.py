"""A sound MCP server, written with the official SDK, for stdio and streamable HTTP.

What its tools do in the world they write into the file that MARKS names.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("sound")
counted = most = 0


def mark(word: str) -> None:
    path = os.environ.get("MARKS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{word}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True, destructive_hint=False))
def put(key: str) -> str:
    """Put something somewhere."""
    mark(f"put {key}")
    return f"put {key}"


@server.tool()
def plain(text: str = "hello") -> str:
    """Say it again, without any hint."""
    return text


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def wipe() -> str:
    """Destroy everything."""
    mark("wiped")
    return "wiped"


@server.tool()
def fail(words: str) -> CallToolResult:
    """Fail with these words."""
    return CallToolResult(content=[TextContent(type="text", text=words)], is_error=True)


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Work in steps, and stop when cancelled."""
    mark("slow began")
    steps = max(1, int(seconds / 0.05))
    try:
        for step in range(steps):
            await ctx.report_progress(step, steps, f"step {step} of {steps}")
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        mark("slow cancelled")
        raise
    mark("slow ended")
    return "slept"


@server.tool()
def stubborn(seconds: float) -> str:
    """Block in a thread; nothing stops it."""
    mark("stubborn began")
    time.sleep(seconds)
    mark("stubborn ended")
    return "done"


@server.tool()
def picture() -> CallToolResult:
    """A picture beside a text."""
    data = base64.b64encode(b"\x89PNG" * 4).decode()
    return CallToolResult(
        content=[
            TextContent(type="text", text="a red square"),
            ImageContent(type="image", data=data, mime_type="image/png"),
        ]
    )


class Size(BaseModel):
    width: int
    name: str = "none"


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask a human for a size."""
    answer = await ctx.elicit("Which size?", Size)
    if answer.action != "accept":
        return f"they said {answer.action}"
    return f"{answer.data.name} {answer.data.width}"


@server.tool()
async def parallel(expected: int, patience_s: float) -> int:
    """Waits until so many of these run at once, or for so long; returns how many did."""
    global counted, most
    counted += 1
    most = max(most, counted)
    until = time.monotonic() + patience_s
    while most < expected and time.monotonic() < until:
        await asyncio.sleep(0.01)
    counted -= 1
    return most


@server.tool()
def environment() -> list[str]:
    """The names of the variables that this server was given."""
    return sorted(os.environ)


@server.tool()
def die(status: int = 3) -> str:
    """End at once."""
    sys.stderr.write(f"the last words, with {os.environ.get('SECRET_KEY', 'no secret')}\n")
    sys.stderr.flush()
    os._exit(status)


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool from now on."""

    def grown() -> str:
        """A tool that came later."""
        return "grown"

    server.add_tool(grown)
    await ctx.session.send_tool_list_changed()
    return "grew"


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
