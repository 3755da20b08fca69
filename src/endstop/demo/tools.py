"""The demo's tools: ordinary tools, as anyone would write them, and two that behave badly.

They know the scratch directory and the service by a context variable, which the runtime carries to
coroutines, threads and processes alike. None of them knows that it is part of a story.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from endstop import AsyncContext, Context, InvalidArguments, shared, tool

DESK: ContextVar[dict[str, Any]] = ContextVar("endstop_demo_desk")
"""`directory`, `service` (host:port) and `pace_s`, how long small work takes."""

CARRY = ("endstop.demo.tools:DESK",)
PID_FILE = "indexer.pid"
BEATS_FILE = "indexer.beats"
BEAT_S = 0.05
PAGE_S = {"draft": 0.25, "print": 1.0}


def inside(path: str) -> Path:
    """A path of the scratch directory. Raises InvalidArguments for one that leads out of it."""
    top = Path(DESK.get()["directory"])
    found = (top / path).resolve()
    if not found.is_relative_to(top):
        raise InvalidArguments(f"{path!r} leads out of the workspace; use a path inside it")
    return found


def _file(arguments: Mapping[str, Any]) -> list[str]:
    return [f"file:{inside(arguments['path'])}"]


def _file_to_read(arguments: Mapping[str, Any]) -> list[Any]:
    return [shared(f"file:{inside(arguments['path'])}")]


def _picture(arguments: Mapping[str, Any]) -> list[str]:
    # The service paints one picture at a time for an account.
    return ["image-account:main", f"file:{inside(arguments['path'])}"]


def _directory(arguments: Mapping[str, Any]) -> list[str]:
    return [f"file:{inside(arguments['directory'])}"]


def _publishing(arguments: Mapping[str, Any]) -> list[Any]:
    return [shared(f"file:{inside(arguments['directory'])}"), f"file:{inside('public')}"]


@tool(resources=_file)
def edit_file(ctx: Context, path: str, find: str, replace: str) -> str:
    """Replace a piece of text that occurs once in a file.

    Args:
        path: The file, inside the workspace.
        find: The text to replace.
        replace: What to put in its place.
    """
    file = inside(path)
    before = file.read_text(encoding="utf-8")
    if before.count(find) != 1:
        raise ValueError(f"{find!r} occurs {before.count(find)} times in {path}, not once")
    ctx.sleep(DESK.get()["pace_s"] * 0.3)
    file.write_text(before.replace(find, replace), encoding="utf-8")
    return f"replaced in {path}"


@tool(effect="read_only", resources=_file_to_read)
def count_words(path: str) -> int:
    """Count the words of a file.

    Args:
        path: The file, inside the workspace.
    """
    return len(inside(path).read_text(encoding="utf-8").split())


@tool(effect="once", cost="0.04 USD", commits=True, resources=_picture)
async def generate_image(
    ctx: AsyncContext, prompt: str, path: str, quality: Literal["draft", "print"] = "draft"
) -> str:
    """Order a picture from the image service (0.04 USD each) and save it.

    Args:
        prompt: What to paint.
        path: Where to save it, inside the workspace.
        quality: "print" takes longer.
    """
    async with ctx.commit():
        order = await _talk(
            "POST",
            "/images",
            {"Idempotency-Key": ctx.effect_key},
            {"prompt": prompt, "quality": quality},
        )
        ctx.spend(order["charged"], order["currency"])
    try:
        picture = await _talk("GET", f"/images/{order['image']}")
    except asyncio.CancelledError:
        # Worth a try, within the grace. This service refuses; what is charged stays charged.
        await _talk("DELETE", f"/images/{order['image']}")
        raise
    file = inside(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(picture["svg"], encoding="utf-8")
    return f"{path} ({len(picture['svg'])} bytes)"


@tool(effect="idempotent", cost="0.04 USD", resources=[])
async def order_poster(ctx: AsyncContext, prompt: str, path: str) -> str:
    """Order a poster (0.04 USD). The service knows an order that comes again by its key.

    Args:
        prompt: What to paint.
        path: Where to save it, inside the workspace.
    """
    return await _order(ctx, prompt, path)


@tool(effect="once", cost="0.04 USD", resources=_picture)
async def order_frame(ctx: AsyncContext, prompt: str, path: str) -> str:
    """Order a framed picture (0.04 USD), which must not be ordered twice.

    Args:
        prompt: What to paint.
        path: Where to save the picture of it, inside the workspace.
    """
    return await _order(ctx, prompt, path)


async def _order(ctx: AsyncContext, prompt: str, path: str) -> str:
    key = {"Idempotency-Key": ctx.effect_key}
    order = await _talk("POST", "/images", key, {"prompt": prompt, "quality": "print"})
    # Nothing is reported as spent: an order that is made again under its key is paid once, and so
    # the declared price counts, once for the call however often its body begins.
    picture = await _talk("GET", f"/images/{order['image']}")
    file = inside(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(picture["svg"], encoding="utf-8")
    return f"{path} ({len(picture['svg'])} bytes)"


@tool(isolation="process", resources=_directory)
def build(
    ctx: Context, directory: str, quality: Literal["draft", "print"] = "draft"
) -> dict[str, int]:
    """Build the pages of a site into its folder dist.

    Args:
        directory: The site, inside the workspace.
        quality: "print" takes longer.
    """
    top = inside(directory)
    pages = sorted(top.glob("*.md"))
    nap = str(PAGE_S[quality] * DESK.get()["pace_s"])
    for number, page in enumerate(pages, 1):
        ctx.check()
        subprocess.run(["sh", "build.sh", page.stem, quality, nap], cwd=top, check=True)
        ctx.progress(f"built page {number} of {len(pages)}", number / len(pages))
    return {"pages": len(pages)}


@tool(effect="once", approval="always", resources=_publishing)
def publish(directory: str) -> dict[str, int]:
    """Put the built pages of a site online. A human must agree.

    Args:
        directory: The site, inside the workspace.
    """
    target = inside("public")
    shutil.copytree(inside(directory) / "dist", target, dirs_exist_ok=True)
    return {"pages": sum(1 for _ in target.glob("*.html"))}


@tool(effect="read_only", resources=[])
def fetch_reviews() -> str:
    """Fetch the newest reviews."""
    host, _, port = DESK.get()["service"].partition(":")
    # No time limit and no look at the context: exactly the tool that nobody should write.
    connection = http.client.HTTPConnection(host, int(port))
    try:
        connection.request("GET", "/reviews")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@tool(isolation="process", resources=["indexer:main"])
def start_indexer(ctx: Context) -> None:
    """Index the workspace for the search, and keep the index fresh."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        # A session of its own, then an orphan: neither its group nor its parent leads to it.
        os.setsid()
        if os.fork() == 0:
            try:
                _keep_indexing()
            finally:
                os._exit(1)
        os._exit(0)
    ctx.progress("left a daemon behind and ignores every signal")
    while True:
        time.sleep(BEAT_S)


def _keep_indexing() -> None:
    desk = Path(DESK.get()["directory"])
    (desk / PID_FILE).write_text(str(os.getpid()), encoding="ascii")
    with (desk / BEATS_FILE).open("a", encoding="ascii", buffering=1) as beats:
        while True:
            beats.write(f"{time.time():.3f}\n")
            time.sleep(BEAT_S)


TOOLS = (
    edit_file,
    count_words,
    generate_image,
    build,
    publish,
    fetch_reviews,
    start_indexer,
)
SHOP = (generate_image, order_poster, order_frame)
"""The paid tools, which the second act needs."""


async def _talk(
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One request to the image service. Raises RuntimeError for an answer that is no success."""
    host, _, port = DESK.get()["service"].partition(":")
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.0", f"Host: {host}", f"Content-Length: {len(payload)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + payload)
        await writer.drain()
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status = int(head.split(b" ", 2)[1]) if head else 0
    if not 200 <= status < 300 and method != "DELETE":
        raise RuntimeError(f"the image service answered {status}: {answer.decode()[:200]}")
    return dict(json.loads(answer or b"{}"))
