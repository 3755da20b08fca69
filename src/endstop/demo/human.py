"""The demo's human: other programs, which answer and stop through the journal alone.

They are the command line itself, each in a process that the story starts: `endstop approve CALL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import endstop


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of an answer or a stop: by which process, and what its command said."""

    target: str
    pid: int
    exit_code: int
    said: str


async def approve(call: str, journal: Path) -> Answered:
    """Start a program that approves a call; returns what it said, when it has left."""
    return await _command("approve", call, journal)


async def stop(run: str, journal: Path) -> Answered:
    """Start a program that stops a run; returns what it said, when it has left."""
    return await _command("stop", run, journal)


async def _command(name: str, target: str, journal: Path) -> Answered:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", endstop.__name__, name, target, "--journal", str(journal)),
        env=with_package(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        # Whatever ends the story ends its human, too.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        code = await process.wait()
    said = " ".join(output.decode(errors="replace").split())
    return Answered(target=target, pid=process.pid, exit_code=code, said=said)


def with_package() -> dict[str, str]:
    """The environment in which another program finds this package, wherever it lies."""
    package = str(Path(endstop.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths}
