"""The demo's eyes: the scratch directory and the process table, read from the system itself.

Nothing here asks the runtime anything. What is proved with this file is proved against the world.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MARK = "ENDSTOP_DEMO"
"""The environment variable that every process of the story inherits, with the story's token."""

LOOK_S = 0.02
"""How long between two looks at the world."""

LINUX = sys.platform.startswith("linux")

_PAGES = {
    "menu": "# Menu\n\nSoup: (soup)\nDessert: (dessert)\n",
    "about": "# About us\n\nOpen since 1987.\n(reviews)\n",
    "contact": "# Contact\n\nHarbour street 4\n",
    "drinks": "# Drinks\n\nWater, wine, coffee\n",
    "events": "# Events\n\nMusic on Fridays\n",
    "jobs": "# Jobs\n\nWe look for a cook\n",
    "press": "# Press\n\nPictures on request\n",
    "team": "# Team\n\nTwo cooks, one host\n",
}

_BUILD = """\
# usage: build.sh PAGE QUALITY SECONDS
set -e
mkdir -p dist
sleep "$3"
{ echo "<!-- $2 -->"; sed -e 's|^# \\(.*\\)|<h1>\\1</h1>|' "$1.md"; } > "dist/$1.html"
"""


def make_scratch() -> Path:
    """A new, empty scratch directory."""
    return Path(tempfile.mkdtemp(prefix="endstop-demo-")).resolve()


def furnish(directory: Path) -> None:
    """Fill a scratch directory with the site that the agent works on."""
    site = directory / "site"
    site.mkdir()
    for name, text in _PAGES.items():
        (site / f"{name}.md").write_text(text, encoding="utf-8")
    (site / "build.sh").write_text(_BUILD, encoding="utf-8")


def read_text(file: Path) -> str | None:
    """What is in a file; None if there is none."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def snapshot(directory: Path) -> dict[str, str]:
    """Every file below a directory by its path, with a digest of what is in it."""
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process and no other: its number, when it started, and its command line."""

    pid: int
    started: str
    words: str

    def __str__(self) -> str:
        return f"pid {self.pid}"


def look_up(pid: int) -> Process | None:
    """A live process of this number; None if there is none or only its remains (a zombie)."""
    if not LINUX:
        return _look_up_with_psutil(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    # The name in brackets may hold anything: what follows the last bracket is fixed.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    said = words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return Process(pid=pid, started=fields[19].decode(), words=said)


def _look_up_with_psutil(pid: int) -> Process | None:
    import psutil

    try:
        found = psutil.Process(pid)
        if found.status() == psutil.STATUS_ZOMBIE:
            return None
        return Process(pid=pid, started=str(found.create_time()), words=" ".join(found.cmdline()))
    except psutil.Error:
        return None


def alive(one: Process) -> bool:
    """Whether this very process still runs, and not another with its number."""
    now = look_up(one.pid)
    return now is not None and now.started == one.started


def marked(token: str) -> list[Process]:
    """Every live process that inherited the story's token, wherever it hangs in the tree."""
    pids = [pid for pid in _pids() if pid != os.getpid() and _has_mark(pid, token)]
    return [one for one in map(look_up, pids) if one is not None]


def _pids() -> list[int]:
    if LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return list(psutil.pids())


def _has_mark(pid: int, token: str) -> bool:
    if LINUX:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{MARK}={token}".encode() in environment.split(b"\0")
    import psutil

    try:
        return bool(psutil.Process(pid).environ().get(MARK) == token)
    except psutil.Error:
        return False


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Look again and again until something is so; false if it was not in time."""
    for _ in range(int(limit_s / LOOK_S)):
        if condition():
            return True
        await asyncio.sleep(LOOK_S)
    return condition()
