"""Tools that run in host processes during the tests."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from endstop.tools.context import AsyncContext, Context
from endstop.tools.tool import tool
from endstop.work import runner

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")
ran: list[str] = []


@tool(isolation="process")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(isolation="process")
async def add_later(a: int, b: int) -> int:
    """Add, on a loop."""
    await asyncio.sleep(0)
    return a + b


@tool(isolation="process")
def pid() -> int:
    """The process that a body runs in."""
    return os.getpid()


@tool(isolation="process")
def count_descriptors() -> list[str]:
    """What the runner has open."""
    return sorted(os.listdir("/proc/self/fd"))


@tool(isolation="process")
def write(path: str) -> None:
    """Leave a mark in the world."""
    with open(path, "a", encoding="utf-8") as file:
        file.write("ran\n")


@tool(isolation="process")
def listener(ctx: Context) -> str:
    """Return when asked to stop."""
    ctx.progress("ready")
    ctx.wait_cancelled(60)
    return "stopped nicely"


@tool(isolation="process")
async def async_sleeper(ctx: AsyncContext) -> str:
    """Sleep on a loop, clean up when cancelled."""
    ctx.progress("ready")
    try:
        await asyncio.sleep(60)
    finally:
        ctx.progress("cleaned")
    return "slept"


@tool(isolation="process")
def sleeper(ctx: Context) -> str:
    """Sleep without listening, but clean up."""
    ctx.progress("ready")
    try:
        time.sleep(60)
    finally:
        time.sleep(0.2)
        ctx.progress("cleaned")
    return "slept"


@tool(isolation="process")
def slow_cleaner(ctx: Context) -> str:
    """Notice the stop, then clean up for a while."""
    ctx.progress("ready")
    while not ctx.cancelled:
        time.sleep(0.01)
    time.sleep(2.0)
    return "cleaned up"


@tool(isolation="process")
async def slow_async_cleaner(ctx: AsyncContext) -> str:
    """Be cancelled, then clean up for a while."""
    ctx.progress("ready")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(2.0)
    return "cleaned up"


@tool(isolation="process")
def sleeper_with_child(ctx: Context, folder: str) -> None:
    """Sleep beside a child that cleans up for a while when it gets SIGTERM."""
    script = (
        f"trap 'sleep 1; touch {folder}/cleaned; exit' TERM; touch {folder}/up; sleep 60 & wait"
    )
    subprocess.Popen(["/bin/sh", "-c", script])
    while not os.path.exists(f"{folder}/up"):
        time.sleep(0.002)
    ctx.progress("ready")
    time.sleep(60)


@tool(isolation="process")
def swallower(ctx: Context) -> str:
    """Return a value when it is unwound."""
    ctx.progress("ready")
    try:
        time.sleep(60)
    except BaseException:
        return "swallowed"
    return "slept"


@tool(isolation="process")
def chatter(ctx: Context) -> None:
    """Report progress without a pause."""
    count = 0
    while True:
        count += 1
        ctx.progress(f"{count} " + "x" * 1000)


@tool(isolation="process")
def write_nonsense(kind: str) -> None:
    """Write to the channel what does not belong there."""
    host = runner.current()
    assert host is not None
    if kind == "frame":
        host.channel.send({"t": "end", "call": "c1"})
        host.channel.send({"t": "end", "call": "c2"})
    else:
        host.channel._sock.sendall(b"\xff" * 100)
    time.sleep(60)


@tool(isolation="process")
def stubborn(ctx: Context, text: str = "") -> str:
    """Nothing but SIGKILL ends this."""
    if text:
        print(text)
    ctx.progress("ready")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            time.sleep(60)
        except BaseException:
            continue
    return "survived"


def expected(kind: str) -> int:
    """How many sign in before the family is complete."""
    alone = {"child", "term_ignorer", "rabbit", "storm", "stopped"}
    return 1 if kind in alone else 3 if kind == "scrubbed_daemon" else 2


def start_family(kind: str, folder: str) -> None:
    family = os.path.join(os.path.dirname(__file__), "family.py")
    subprocess.Popen([sys.executable, "-S", family, kind, folder])
    deadline = time.monotonic() + 20
    while len([n for n in os.listdir(folder) if n.isdigit()]) < expected(kind):
        assert time.monotonic() < deadline, os.listdir(folder)
        time.sleep(0.002)


@tool(isolation="process")
def family(ctx: Context, kind: str, folder: str) -> str:
    """Start a kind of descendant and ignore every request to stop."""
    start_family(kind, folder)
    ctx.progress("ready")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            time.sleep(60)
        except BaseException:
            continue
    return "survived"


@tool(isolation="process")
def listener_with_family(ctx: Context, kind: str, folder: str) -> str:
    """Start a kind of descendant, and return when asked to stop."""
    start_family(kind, folder)
    ctx.progress("ready")
    ctx.wait_cancelled(60)
    return "stopped nicely"


@tool(isolation="process")
def leave_behind(kind: str, folder: str) -> str:
    """Start a kind of descendant and return."""
    start_family(kind, folder)
    return "returned"


@tool(isolation="process")
def kill_host(kind: str, folder: str) -> None:
    """Start a descendant, then kill the process above."""
    start_family(kind, folder)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


@tool(isolation="process")
def die(kind: str, folder: str = "") -> Any:
    """End this process in one way or another."""
    if folder:
        start_family("daemon", folder)
    print("last words")
    match kind:
        case "exit":
            os._exit(7)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "channel":
            os.closerange(3, 64)
        case _:
            raise AssertionError(kind)


class Unpicklable(Exception):
    """Pickles, and cannot be unpickled."""

    def __init__(self, *, needed: str) -> None:
        super().__init__()
        self.needed = needed


class Mute(Exception):
    """Its message cannot be made."""

    def __str__(self) -> str:
        raise SystemExit("no message")


class MeanError(Exception):
    """Ends the program that asks what it is, or what it has left."""

    def __str__(self) -> str:
        raise SystemExit(3)

    @property
    def output(self) -> str:
        raise KeyboardInterrupt


class MuteError(Exception):
    """Its message cannot be made either."""

    def __str__(self) -> str:
        raise ValueError("no message")


@tool(isolation="process")
def fail(kind: str) -> Any:
    """Raise something unpleasant."""
    print("printed before")
    match kind:
        case "plain":
            raise ValueError("told so")
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case "unpicklable":
            raise Unpicklable(needed="x")
        case "mute":
            raise MuteError
        case "huge":
            raise ValueError("x" * 50_000_000)
        case "surrogate":
            raise ValueError("lone \ud800 here")
        case "base":
            raise BaseException("bare")
        case "mean":
            raise MeanError
        case _:
            raise AssertionError(kind)


@tool(isolation="process")
async def fail_later(kind: str) -> Any:
    """Raise something unpleasant on a loop."""
    await asyncio.sleep(0)
    match kind:
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case _:
            raise AssertionError(kind)


@tool(isolation="process")
def give(kind: str) -> Any:
    """Return something unpleasant."""
    match kind:
        case "cycle":
            value: list[Any] = [1]
            value.append(value)
            return {"a": value}
        case "nan":
            return [math.nan, math.inf, 1.5]
        case "deep":
            deep: Any = 0
            for _ in range(100_000):
                deep = [deep]
            return deep
        case "surrogate":
            return "a\ud800b"
        case "huge":
            return "x" * 5_000_000
        case "object":
            return {"thing": object()}
        case _:
            raise AssertionError(kind)


@tool(isolation="process")
def ask_things(ctx: Context) -> list[str]:
    """Use everything that a context offers."""
    said = [ctx.call_id, ctx.effect_key]
    ctx.progress("half", 0.5)
    with ctx.human("password"):
        said.append("human")
    with ctx.commit():
        said.append("committed")
    ctx.spend("0.04", "USD")
    return said


@tool(isolation="process")
async def commit_later(ctx: AsyncContext) -> str:
    """Pass a commit point on a loop."""
    async with ctx.commit():
        return "committed"


@tool(isolation="process")
def who() -> str:
    """The value of a context variable."""
    return WHO.get()


@tool(isolation="process")
def change_world() -> list[str]:
    """Change what a process shares with its next call."""
    seen = [os.getcwd(), WHO.get(), str(signal.getsignal(signal.SIGTERM) == signal.SIG_IGN)]
    os.chdir("/")
    WHO.set("leaked")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return seen


@tool(isolation="process")
def flood(ctx: Context, megabytes: int, stream: int) -> str:
    """Write a lot to stdout or stderr, as fast as it goes."""
    ctx.progress("ready")
    block = b"x" * (1 << 20)
    for _ in range(megabytes):
        os.write(stream, block)
    return "written"


@tool(isolation="process")
def leave_thread() -> int:
    """Leave a thread running."""
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return os.getpid()


@tool(isolation="process")
def fork_and_return() -> str:
    """Fork, and let the child come back as well."""
    os.fork()
    return "returned"


@tool(isolation="process")
def hold_the_lock(ctx: Context) -> str:
    """Keep the interpreter lock: no thread of this process runs until it is over."""
    sys.setswitchinterval(1000)
    ctx.progress("ready")
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        pass
    return "done"
