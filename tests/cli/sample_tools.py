"""Tools that the tests of the command line run, each with one habit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from endstop import AsyncContext, Context, tool, tool_from_schema

_never = threading.Event()


def _mark(path: str) -> None:
    """Say that a body has begun, for a test that waits for it."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")


@tool(effect="read_only", resources=[])
def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: The file to read.
    """
    return f"content of {path}"


@tool(effect="read_only", resources=["file:{path}?shared"])
async def word_count(path: str, by: str = "word") -> dict[str, Any]:
    """Count the words or lines of a file."""
    return {"path": path, by: 7}


@tool(effect="idempotent")
def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def _next_train(arguments: dict[str, str]) -> str:
    return f"08:12 from {arguments['from']} to {arguments['to']}"


_route = {"from": {"type": "string"}, "to": {"type": "string"}}
TOOLS = [
    # "from" is no Python name, so this one is made of a schema.
    tool_from_schema(
        "next_train",
        {"type": "object", "properties": _route, "required": ["from", "to"]},
        _next_train,
        "Tell the next train.",
        as_dict="arguments",
        effect="read_only",
        resources=[],
    )
]


@tool(cost="0.04 USD")
def open_ticket(title: str) -> str:
    """Open a ticket, for money."""
    return f"ticket {title!r} opened"


@tool
def run_query(input: str) -> list[int]:
    """Run a query."""
    return [len(input)]


@tool
def noisy(text: str) -> str:
    """Print on every stream, also by a program of its own."""
    print(f"printed {text}")
    subprocess.run(["/bin/sh", "-c", f"echo echoed {text}"], check=True)
    os.write(1, f"written {text}\n".encode())
    return text


@tool(effect="effectful")
def fails(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@tool(resources=[])
def leaves_mark(mark: str) -> str:
    """Leave a mark, and return."""
    _mark(mark)
    return "marked"


@tool
async def waits(ctx: AsyncContext, mark: str) -> str:
    """Wait for ever, and stop when asked."""
    _mark(mark)
    ctx.progress("half way there", 0.5)
    await ctx.sleep(3600)
    return "never"


@tool(resources=[])
def stubborn(mark: str) -> str:
    """Wait for ever in a thread, and hear nothing."""
    _mark(mark)
    _never.wait()
    return "never"


@tool(resources=[])
async def blocks_the_loop(mark: str) -> str:
    """Block its event loop, as no coroutine may."""
    _mark(mark)
    time.sleep(60)
    return "never"


@tool(isolation="process", resources=[])
def deaf_process(mark: str) -> str:
    """Ignore SIGTERM, together with a child that ignores it too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(3600)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, f"{mark}.child"], start_new_session=True)
    _mark(mark)
    while child.poll() is None:
        time.sleep(0.05)
    return "never"


@tool(isolation="process")
def square(number: int) -> int:
    """Square a number in a process of its own."""
    return number * number


@tool(resources=[])
def asks(ctx: Context) -> str:
    """Ask which one, and for a password."""
    which = ctx.ask("Which one?", choices=["this", "that"])
    return f"{which}, {len(ctx.ask('The password, please', secret=True))} letters"


@tool(approval="always", cost="2 EUR")
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"
