"""The project's pages, as the tests of the documents read them.

A fenced block says by the words behind its language what it is:

* ```` ```python run ```` is executed, and the ```` ```text ```` block behind it, if any, is what
  it prints;
* ```` ```python examples/x.py ```` is the text of that example, ```` ```text examples/x.py ````
  what it prints;
* any other python block is compiled.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support import ROOT

FENCE = re.compile(r"^```(\w*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r"\b\d+(\.\d+)? s\b")
LIMIT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One fenced block: `words` are what stands behind the language."""

    page: str
    line: int
    language: str
    words: str
    text: str

    @property
    def where(self) -> str:
        """Where a person finds it."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """The README and every page below `docs`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def fences() -> tuple[Fence, ...]:
    """Every fenced block, page by page."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        found += [
            Fence(
                page=str(page.relative_to(ROOT)),
                line=text.count("\n", 0, match.start()) + 1,
                language=match[1],
                words=match[2].strip(),
                text=match[3],
            )
            for match in FENCE.finditer(text)
        ]
    return tuple(found)


def printed_behind(fence: Fence) -> str | None:
    """The ```` ```text ```` block that follows a block on its page, if it does."""
    here = [other for other in fences() if other.page == fence.page]
    behind = here[here.index(fence) + 1 :][:1]
    return (
        behind[0].text if behind and (behind[0].language, behind[0].words) == ("text", "") else None
    )


def same_seconds(text: str) -> str:
    """The text with every number of seconds made the same: they differ from run to run."""
    return SECONDS.sub("# s", text).strip()


def run_python(path: Path, folder: Path) -> str:
    """Run a file as a reader would, warnings being errors; returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{path} ended with {done.returncode}:\n{done.stderr}"
    assert not done.stderr, f"{path} complained:\n{done.stderr}"
    return done.stdout
