"""Every law has one short name, and that name is used in the code, in a test and in the docs."""

from __future__ import annotations

import re

import pytest

from tests.mutants.planted import MUTANTS
from tests.support import ROOT
from tests.tidy.source import PACKAGE

LAWS = (
    "one-door",
    "right-target",
    "one-ending",
    "one-answer",
    "honest-effect",
    "bounded-stop",
    "every-wait-listens",
    "machine-time",
    "on-the-books",
    "no-blind-retry",
    "whole-tree",
    "no-leaked-lock",
    "one-approval",
    "isolated-siblings",
    "record-first",
    "survives-restart",
    "children-settle",
    "audience-free",
    "any-payload",
    "paid-once",
)


def files_naming(law: str, *, under: str) -> list[str]:
    """Python files in a folder that name the law, hyphenated or as part of an identifier."""
    words = re.compile(r"(?<![a-z])" + law.replace("-", "[-_]") + r"(?![a-z])")
    folder = PACKAGE if under == "src" else ROOT / under
    return [
        str(path.relative_to(ROOT))
        for path in sorted(folder.rglob("*.py"))
        if path.name != "test_laws.py" and words.search(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("number", "law"), list(enumerate(LAWS, 1)))
def test_a_law_is_kept_tested_and_documented(number: int, law: str) -> None:
    missing = []
    if not files_naming(law, under="src"):
        missing.append("src: name it in the docstring of the code that keeps it")
    if not files_naming(law, under="tests"):
        missing.append("tests: write a test that carries its name and tries to break it")
    text = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    if f"{number} {law}" not in text:
        missing.append(f'docs/laws.md: describe it under its full name "{number} {law}"')
    assert not missing, "\n".join([f"law {number} {law} is not named in:", *missing])


def test_the_docs_name_no_other_law() -> None:
    text = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    named = re.findall(r"\*\*(\d+) ([a-z-]+)\*\*", text)
    strangers = [f"{n} {law}" for n, law in named if (int(n), law) not in set(enumerate(LAWS, 1))]
    assert not strangers, f"docs/laws.md names laws that this test does not know: {strangers}"


def sections() -> dict[str, str]:
    """The text about each law, by its full name."""
    text = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (\d+ [a-z-]+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_docs_have_the_laws_in_their_order() -> None:
    assert list(sections()) == [f"{number} {law}" for number, law in enumerate(LAWS, 1)]


@pytest.mark.parametrize("law", [f"{number} {law}" for number, law in enumerate(LAWS, 1)])
def test_the_docs_name_files_and_mutants_that_there_are(law: str) -> None:
    text = sections()[law]
    for line, folder in (("kept in", PACKAGE), ("tried by", ROOT / "tests")):
        found = re.search(rf"^- {line} (.*?)(?=^- |\Z)", text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"docs/laws.md, {law}: say what it is {line}"
        names = [name for name in re.findall(r"`([\w./]+)`", found[1]) if "/" in name]
        assert names, f"docs/laws.md, {law}: name a file after {line!r}"
        missing = [name for name in names if not (folder / name).exists()]
        assert not missing, f"docs/laws.md, {law}: {missing} is not in {folder.name}"
    planted = {mutant.name for mutant in MUTANTS if mutant.law == law}
    line = re.search(r"^- mutants: (.*?)(?=^- |\Z)", text, re.MULTILINE | re.DOTALL)
    assert line is not None, f"docs/laws.md, {law}: name its mutants"
    named = set(re.findall(r"`([^`]+)`", line[1]))
    assert named <= planted, f"docs/laws.md, {law}: {named - planted} are no mutants of it"
    assert named, f"docs/laws.md, {law}: name one of {sorted(planted)}; a law without is not tested"
