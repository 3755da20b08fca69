"""How the tests see the demo: as a command in another process, and the process table without it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.support import ROOT

TOLD_S = 60.0


def start(scratch: Path, *options: str) -> subprocess.Popen[str]:
    """The command, with its scratch directory below `scratch`, which also marks its processes."""
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "endstop.cli.main", "demo", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def tell(scratch: Path, *options: str) -> tuple[int, str, str]:
    """Run the command to its end: exit code, standard output, standard error."""
    with start(scratch, *options) as process:
        out, error = process.communicate(timeout=TOLD_S)
    return process.returncode, out, error


def marked(scratch: Path) -> list[int]:
    """Every live process whose environment names this scratch directory; not this one."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("TMPDIR") == str(scratch)
            if mine and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def marked_after(scratch: Path, limit_s: float = 10.0) -> list[int]:
    """The same, once the dying had time to die."""
    deadline = time.monotonic() + limit_s
    while (found := marked(scratch)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def contents(scratch: Path) -> Sequence[str]:
    """The names in a directory."""
    return sorted(one.name for one in scratch.iterdir())
