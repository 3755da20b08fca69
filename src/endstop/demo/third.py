"""The demo's third act: an agent behind a server, and its task stopped from another process.

The server is `endstop serve`, the client speaks the protocol over a socket, and the stop is
`endstop stop`, three programs that share a journal. Where the server's extra is not installed, the
act is left out and says so. No outcome is known here; see `proof_third.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import endstop
from endstop.demo import human, world
from endstop.demo.watch import Mood, Narrator

FOLDER = "third"
BOOK = "tasks.db"
LOAVES = "loaves.txt"
LOAVES_AT = "ENDSTOP_DEMO_LOAVES"
"""The environment variable that tells the agent where to write down what it bakes."""

SET_S = 30.0
REST_S = 0.3
NEEDED = 5
"""So many loaves show that the agent works."""


@dataclass(slots=True, kw_only=True)
class Act:
    """What the third act has seen; the proof reads it."""

    directory: Path
    narrator: Narrator
    skipped: bool = False
    server: world.Process | None = None
    exit_code: int | None = None
    task: str = ""
    working: str = ""
    stopper: human.Answered | None = None
    stopped_at: float = 0.0
    stop_s: float = 0.0
    after: dict[str, Any] = field(default_factory=dict)
    again: dict[str, Any] = field(default_factory=dict)

    def loaves(self) -> list[float]:
        """When each loaf was baked, as the agent wrote it down."""
        text = world.read_text(self.directory / LOAVES) or ""
        return [float(line) for line in text.splitlines()]


def available() -> bool:
    """Whether the server's extra is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("a2a", "uvicorn"))


async def play(top: Path, narrator: Narrator) -> Act:
    """Tell the scene."""
    act = Act(directory=top / FOLDER, narrator=narrator)
    narrator.say("6. An agent behind a server, stopped from another process", mood=Mood.TITLE)
    if not available():
        act.skipped = True
        narrator.say('left out: the server is not installed; pip install "endstop[server]"')
        return act
    act.directory.mkdir()
    async with _server(act) as url:
        if url:
            await _scene(act, url)
    return act


async def _scene(act: Act, url: str) -> None:
    say = act.narrator.say
    sent = await _ask(
        url, "SendMessage", message=_message(), configuration={"returnImmediately": True}
    )
    act.task = sent.get("task", {}).get("id", "")
    say(f"a client sends a message over A2A and is told at once: task {act.task}")
    await world.until(lambda: len(act.loaves()) >= NEEDED, SET_S)
    act.working = _state(await _ask(url, "GetTask", id=act.task))
    say(f"{act.working}: the agent has baked {len(act.loaves())} loaves")
    say("another process stops the task: endstop stop", mood=Mood.STOP)
    act.stopper = await human.stop(act.task, act.directory / BOOK)
    act.stopped_at = time.time()
    act.after = await _ask(url, "GetTask", id=act.task)
    baked = act.loaves()
    say(f"{_state(act.after)}: {words_of(act.after)}", mood=Mood.BAD)
    await asyncio.sleep(REST_S)
    act.again = await _ask(url, "CancelTask", id=act.task)
    say(f"{len(baked)} loaves then, {len(act.loaves())} now; a cancel over A2A finds it canceled")


def _message() -> dict[str, Any]:
    return {"messageId": "demo-1", "role": "ROLE_USER", "parts": [{"text": "bake bread"}]}


def _state(task: dict[str, Any]) -> str:
    return str(task.get("status", {}).get("state", "no answer"))


def words_of(task: dict[str, Any]) -> str:
    """What the status of a task says."""
    parts = task.get("status", {}).get("message", {}).get("parts", [])
    return " ".join(part.get("text", "") for part in parts)


async def _ask(url: str, method: str, **params: Any) -> dict[str, Any]:
    """One request of the protocol; the result, or the error's own words."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(url, body.encode(), headers)

    def ask() -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=SET_S) as answer:
            found: dict[str, Any] = json.load(answer)
        result: dict[str, Any] = found.get("result") or {"error": found.get("error")}
        return result

    try:
        return await asyncio.to_thread(ask)
    except OSError as problem:
        return {"error": str(problem)}


@contextlib.asynccontextmanager
async def _server(act: Act) -> AsyncIterator[str]:
    """Start the server; its address, or nothing where it did not come up."""
    said = act.directory / "server.json"
    process = _start(act, said)
    try:
        act.server = world.look_up(process.pid)
        await world.until(lambda: _has_spoken(said) or process.poll() is not None, SET_S)
        lines = (world.read_text(said) or "").splitlines()
        url = json.loads(lines[0])["url"] if lines else ""
        act.narrator.say(f"a server, pid {process.pid}, offers the agent at {url or 'no address'}")
        yield url
        process.send_signal(signal.SIGTERM)
        await world.until(lambda: process.poll() is not None, SET_S)
        act.exit_code = process.poll()
    finally:
        process.kill()
        process.wait()


def _start(act: Act, said: Path) -> subprocess.Popen[bytes]:
    arguments = ["serve", str(Path(__file__).with_name("served.py")), "--port", "0", "--json"]
    arguments += ["--journal", str(act.directory / BOOK)]
    with said.open("wb") as out, (act.directory / "server.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", endstop.__name__, *arguments],
            env={**human.with_package(), LOAVES_AT: str(act.directory / LOAVES)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
        )


def _has_spoken(said: Path) -> bool:
    return "\n" in (world.read_text(said) or "")
