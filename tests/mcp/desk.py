"""What the tests of MCP servers share: servers, runs that are stopped, and what they left."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from endstop import BlockingRuntime, CallResult, Config, Runtime, ToolCall
from endstop.adapters.mcp import McpServer, McpTerms
from endstop.work import tree

HERE = Path(__file__).parent
SOUND = str(HERE / "sound_server.py")
RAW = str(HERE / "raw_server.py")
PATIENCE_S = 30.0
GRACE_S = 0.6


def call(tool: str, **arguments: Any) -> ToolCall:
    """A call as a model makes it."""
    return ToolCall(model_id=tool, tool=tool, arguments=arguments)


def config(**more: Any) -> Config:
    """A short grace."""
    return Config.load(grace_s=GRACE_S, **more)


def sound(tmp_path: Path, **rules: Any) -> McpServer:
    """The sound server over stdio."""
    env = {"MARKS": str(tmp_path / "marks"), **rules.pop("env", {})}
    return McpServer.stdio(sys.executable, SOUND, env=env, name="sound", **rules)


def raw(tmp_path: Path, mode: str = "", **rules: Any) -> McpServer:
    """The server written by hand; it starts quickly."""
    env = {
        "MARKS": str(tmp_path / "marks"),
        "LOG": str(tmp_path / "log"),
        **rules.pop("env", {}),
    }
    return McpServer.stdio(sys.executable, "-S", RAW, mode, env=env, name="raw", **rules)


def one(server: McpServer, tool: str, **arguments: Any) -> CallResult:
    """One call, run to its end."""
    with BlockingRuntime(server.tools_now(), config=config()) as runtime:
        return runtime.execute([call(tool, **arguments)])[0]


def wait_for(what: Callable[[], Any], words: str) -> Any:
    """Wait until something is true; fails in these words."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited for {PATIENCE_S:g} s: {words}")


def marks(tmp_path: Path) -> list[str]:
    """What the tools say that they did."""
    path = tmp_path / "marks"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def received(tmp_path: Path, method: str) -> list[dict[str, Any]]:
    """The messages of this method that the raw server has received."""
    path = tmp_path / "log"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.get("method") == method]


def family(tmp_path: Path) -> dict[str, int]:
    """The processes of a family, by kind."""
    pairs = [line.split() for line in marks(tmp_path)]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    seen = tree.look_up(pid)
    return seen is not None and not seen.dead


async def stopped(
    server: McpServer, wanted: ToolCall, begun: Callable[[], Any], **more: Any
) -> tuple[CallResult, float]:
    """Run a call, stop it once it has begun; its result, and how long the stop took."""
    async with (
        Runtime(await server.tools(), config=config(**more)) as runtime,
        runtime.run() as run,
    ):
        running = asyncio.ensure_future(run.execute([wanted]))
        await asyncio.to_thread(wait_for, begun, "the call began")
        at = time.monotonic()
        await run.cancel()
        results = await running
        return results[0], time.monotonic() - at


__all__ = ["McpServer", "McpTerms"]
