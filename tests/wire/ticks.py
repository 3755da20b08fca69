"""The file to which a body writes what it really does, one line at a time.

What happened is never asked of the server: it is read here. A line is a time and a word.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 15.0

CANCELS_NOW = "the test cancels"
"""Written by the test immediately before its cancel."""


def note(file: str, word: str) -> None:
    """Append one line; one write is one line, whoever else writes."""
    line = f"{time.time():.6f} {word}\n".encode()
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: when (seconds since the epoch) and what."""

    at: float
    word: str


class Ticks:
    """The reading end of such a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def file(self) -> str:
        return str(self.path)

    def lines(self) -> Sequence[Line]:
        if not self.path.exists():
            return []
        found = []
        for text in self.path.read_text(encoding="utf-8").splitlines():
            at, _, word = text.partition(" ")
            found.append(Line(float(at), word))
        return found

    def count(self, word: str) -> int:
        return sum(line.word == word for line in self.lines())

    def after(self, at: float, word: str = "tick") -> int:
        """How many times a word was written after that instant."""
        return sum(line.word == word and line.at > at for line in self.lines())

    async def quiet(self, still_s: float = 0.5, limit_s: float = LIMIT_S) -> None:
        """Until nothing was written for a while: whoever wanted to write on has done so."""
        end = time.monotonic() + limit_s
        while self.lines() and time.time() - self.lines()[-1].at < still_s:
            assert time.monotonic() < end, f"it writes on and on: {self.lines()[-3:]}"
            await asyncio.sleep(0.05)

    def wait(self, word: str, count: int = 1, limit_s: float = LIMIT_S) -> None:
        """Until the word was written that often. It blocks: for a test that has no loop."""
        until(lambda: self.count(word) >= count, f"{count} × {word!r} in the file", limit_s)

    async def seen(self, word: str, count: int = 1, limit_s: float = LIMIT_S) -> None:
        """The same for a test that has a loop."""
        await asyncio.to_thread(self.wait, word, count, limit_s)


def until(check: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
    """Wait until `check` holds; what happens in another process can only be looked at."""
    end = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.005)
