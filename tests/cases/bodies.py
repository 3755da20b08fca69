"""Tools that run in host processes during these tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from endstop import Context, tool


@tool(isolation="process", resources=["file:/cases/served"])
def serve(signs: str) -> str:
    """Sign in, and serve for ever."""
    Path(signs, "served").write_text(str(os.getpid()))
    time.sleep(600)
    return "never"


@tool(isolation="process", resources=["file:/cases/served"])
def vanish() -> str:
    """End the process in the middle of the call."""
    os._exit(3)


@tool(isolation="process", resources=["file:/cases/served"])
def read() -> str:
    """Read what others serve."""
    return "read"


@tool(isolation="process", approval="always", resources=())
def count(n: dict[str, int]) -> dict[str, int]:
    """Say what arrived."""
    return n


@tool(isolation="process", resources=())
def tick(signs: str, ctx: Context) -> str:
    """Write a line every 10 ms until asked to stop."""
    for number in range(6000):
        with Path(signs, "ticks").open("a") as file:
            file.write(f"{number}\n")
        ctx.sleep(0.01)
    return "completed"
