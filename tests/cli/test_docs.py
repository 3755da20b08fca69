"""Every example of docs/cli.md is run, in order, in a directory that holds the page's files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import PATIENCE_S, environment
from tests.support import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    """The lines that hold something, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def matches(page: str, printed: str) -> bool:
    """Whether `printed` is what the page shows: `...` is any text, alone on a line any lines."""
    parts = []
    for line in lines(page):
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(re.escape(line).replace(r"\.\.\.", "[^\n]*?") + r"\n")
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in lines(printed))) is not None


Steps = list[tuple[str, str]]


def examples() -> list[tuple[Steps, dict[str, str]]]:
    """Each block of commands with what they print, and the files that were shown before it."""
    files: dict[str, str] = {}
    found = []
    for kind, file, body in BLOCK.findall(PAGE):
        if file:
            files = {**files, file: body}
        elif kind == "console":
            parts = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
            steps = [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]
            found.append((steps, files))
    return found


EXAMPLES = examples()


def variables(programs: Path) -> dict[str, str]:
    """The environment of a reader who has installed endstop and configured nothing."""
    for name, start in (("endstop", "-m endstop.cli.main"), ("python3", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
        program.chmod(0o755)
    made = environment()
    del made["ENDSTOP_GRACE_S"]
    made["PATH"] = f"{programs}:{made['PATH']}"
    return made


@pytest.mark.parametrize(("steps", "files"), EXAMPLES, ids=[steps[0][0] for steps, _ in EXAMPLES])
def test_an_example_does_what_the_page_says(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, steps: Steps, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    surroundings = variables(tmp_path_factory.mktemp("bin"))
    for command, output in steps:
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            cwd=tmp_path,
            env=surroundings,
            check=False,
        )
        said = f"$ {command}\n{done.stdout}\n--- the page says:\n{output}"
        assert matches(output, done.stdout), said


def test_the_page_names_every_command_and_option() -> None:
    import typer.main

    from endstop.cli.main import app

    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert f"endstop {name}" in PAGE
        if name == "demo":
            continue
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}" in PAGE or f"[{option}" in PAGE or f" {option} " in PAGE


def test_the_matcher_sees_what_differs() -> None:
    assert matches("a ... c\n...\nd\n", "a b  c\n\nx\ny\nd\n")
    assert matches("a\n...\nd\n", "a\nd\n")
    assert not matches("a\nd\n", "a\nx\nd\n")
    assert not matches("a ... c\n", "a b\nc\n")
    assert not matches("a\n", "a\nb\n")


def test_there_are_examples() -> None:
    assert sum(len(steps) for steps, _ in EXAMPLES) >= 10
