"""Every example runs and prints what the pages say; every python block is python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Fence, fences, printed_behind, run_python, same_seconds
from tests.support import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUNNABLE = [f for f in fences() if f.language == "python" and f.words == "run"]
QUOTED = [f for f in fences() if f.words.startswith("examples/")]


def shown(example: Path, language: str) -> list[Fence]:
    name = f"examples/{example.name}"
    return [fence for fence in QUOTED if (fence.language, fence.words) == (language, name)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_prints_what_the_pages_say(example: Path, tmp_path: Path) -> None:
    outputs = shown(example, "text")
    assert outputs, f"no page shows what examples/{example.name} prints"
    printed = same_seconds(run_python(example, tmp_path))
    for fence in outputs:
        assert same_seconds(fence.text) == printed, fence.where


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_quoted_as_it_is(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    for fence in shown(example, "python"):
        assert fence.text == text, f"{fence.where}: run python -m tests.docs"


def test_every_quoted_example_exists() -> None:
    missing = [f"{f.where}: {f.words}" for f in QUOTED if not (ROOT / f.words).is_file()]
    assert not missing, missing


@pytest.mark.parametrize("fence", RUNNABLE, ids=lambda fence: fence.where)
def test_a_runnable_block_runs_and_prints_what_stands_behind_it(
    fence: Fence, tmp_path: Path
) -> None:
    script = tmp_path / "block.py"
    script.write_text(fence.text, encoding="utf-8")
    printed = same_seconds(run_python(script, tmp_path))
    expected = printed_behind(fence)
    if expected is None:
        assert printed == "", f"{fence.where} prints something that the page does not show"
    else:
        assert printed == same_seconds(expected), fence.where


def test_every_other_python_block_is_python() -> None:
    found = [f for f in fences() if f.language == "python" and f not in RUNNABLE]
    assert found
    for fence in found:
        # Blocks that show the inside of an async function are code, too.
        body = "".join(f"    {line}" for line in fence.text.splitlines(keepends=True))
        compile(f"async def _block():\n{body or '    pass'}\n", fence.where, "exec")
