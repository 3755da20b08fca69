"""Every example of docs/control.md is run, step by step, with the files that the page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PATIENCE_S
from tests.cli.test_docs import BLOCK, matches, variables
from tests.support import ROOT

PAGE = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")


def examples() -> list[list[tuple[str, str]]]:
    """The steps of each console block."""
    found = []
    for kind, _, body in BLOCK.findall(PAGE):
        if kind == "console":
            parts = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
            steps = [part.partition("\n") for part in parts]
            found.append([(command, output) for command, _, output in steps])
    return found


@pytest.mark.parametrize("steps", examples(), ids=["answering", "resuming"])
def test_an_example_does_what_the_page_says(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    for _, name, text in BLOCK.findall(PAGE):
        if name:
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
