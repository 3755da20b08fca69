"""Tools that run in host processes during the tests."""

from __future__ import annotations

import os
import time

from endstop.tools.context import Context
from endstop.tools.tool import tool


@tool(isolation="process")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(isolation="process")
def pid() -> int:
    """The process that a body runs in."""
    return os.getpid()


@tool(isolation="process")
def wait_for_stop(ctx: Context) -> str:
    """Return when asked to stop."""
    ctx.progress("ready")
    ctx.wait_cancelled(60)
    return "stopped nicely"


@tool(isolation="process")
def sleep_hard(ctx: Context, seconds: float = 60) -> str:
    """Sleep without listening."""
    ctx.progress("ready")
    time.sleep(seconds)
    return "slept"
