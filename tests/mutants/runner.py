"""Runs tests against a copy of the package in which one bug is planted.

To plant one more, add three lines to `planted.py`. A bug that nothing catches is a law that nothing
tests; a bug that cannot be planted any more, because its text is gone, is an error, too.

`python -m tests.mutants` plants all of them and prints the table; names as arguments choose some.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

PACKAGE = ROOT / "src" / "endstop"
LIMIT_S = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug: in `file` below the package, `old` becomes `new`.

    `tests` are what should catch it, in pytest's terms: files, or single tests of slow files.
    """

    name: str
    law: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """What became of a mutant: the test that failed first, or None if none did."""

    mutant: Mutant
    test: str | None
    words: str


class CannotPlant(Exception):
    """The text to be replaced is not in the file, or is there more than once."""


def mutate(text: str, mutant: Mutant) -> str:
    """The text of a file with the bug in it."""
    found = text.count(mutant.old)
    if found != 1:
        raise CannotPlant(
            f"{mutant.name}: its old text is {found} times in {mutant.file}, not once; "
            "follow the change of the source in tests/mutants/planted.py"
        )
    if mutant.old == mutant.new:
        raise CannotPlant(f"{mutant.name}: nothing would change")
    return text.replace(mutant.old, mutant.new)


def run(mutant: Mutant) -> Caught:
    """Plant a bug in a copy of the package and run the tests that should catch it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        copy = _copy(Path(place))
        target = copy / mutant.file
        # What is compiled already is taken along, or most of the time would go into doing it again.
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*.pyc"):
            compiled.unlink()
        target.write_text(mutate(target.read_text(encoding="utf-8"), mutant), encoding="utf-8")
        code, said = pytest_on(Path(place), mutant.tests)
    if code == 0:
        return Caught(mutant=mutant, test=None, words="all passed")
    first = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", said, re.MULTILINE)
    if first is not None and code == 1:
        return Caught(mutant=mutant, test=first.group(1), words=_law_broken(said))
    if "Timeout" in said:
        return Caught(mutant=mutant, test=f"{mutant.tests[0]} (timeout)", words="it hung")
    raise AssertionError(f"{mutant.name}: pytest itself failed with {code}:\n{said}")


def pytest_on(place: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests against the package that lies in `place`; returns the exit code and the output."""
    env = {
        **os.environ,
        "PYTHONPATH": str(place),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ENDSTOP_EXPLORE": "quick",
        "CI": "1",  # the same examples for every mutant
    }
    env.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=short"]
    command += ["-p", "no:cacheprovider", "-p", "tests.mutants.guard", f"--timeout={LIMIT_S}"]
    done = subprocess.run(
        [*command, *tests], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def unharmed(tests: Iterable[str]) -> tuple[int, str]:
    """The same with a copy in which nothing is planted."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        _copy(Path(place))
        return pytest_on(Path(place), tests)


def table(results: Iterable[Caught]) -> str:
    """Which test caught which bug, as Markdown."""
    lines = ["| mutant | law | caught by |", "|---|---|---|"]
    for caught in results:
        by = f"`{caught.test}`" if caught.test else "**nothing**"
        lines.append(f"| {caught.mutant.name} | {caught.mutant.law} | {by} |")
    return "\n".join(lines) + "\n"


def _copy(place: Path) -> Path:
    # What is just being compiled has such a name, and is gone in a moment.
    ignored = shutil.ignore_patterns("*.pyc.*")
    return Path(shutil.copytree(PACKAGE, place / "endstop", ignore=ignored))


def _law_broken(said: str) -> str:
    found = re.search(r"law \d+ [a-z-]+", said)
    return found.group() if found else ""
