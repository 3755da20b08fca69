"""`docs/behaviours.md` names tests: each exists, and each behaviour is listed once."""

from __future__ import annotations

import re

from tests.support import ROOT

PAGE = (ROOT / "docs" / "behaviours.md").read_text(encoding="utf-8")
NUMBERS = re.compile(r"^\| ([\d, –]+) \| .* \| (kept|kept differently|not kept)[:| ]", re.MULTILINE)


def numbers(section: str) -> list[int]:
    """The numbers of a section, ranges written out."""
    found: list[int] = []
    for text, _ in NUMBERS.findall(section):
        for part in text.split(","):
            first, _, last = part.strip().partition("–")
            found += range(int(first), int(last or first) + 1)
    return found


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = {name for text in tests for name in re.findall(r"def (test_\w+)", text)}
    assert len(named) > 40
    assert named <= there, sorted(named - there)


def test_every_behaviour_is_listed_once() -> None:
    _, openhands, hermes, openclaw = PAGE.split("\n## ")
    assert sorted(numbers(openhands)) == list(range(1, 46))
    assert sorted(numbers(hermes) + numbers(openclaw)) == list(range(1, 38))


def test_what_is_kept_names_a_test_and_what_is_not_says_why() -> None:
    for line in PAGE.splitlines():
        if NUMBERS.match(line):
            _, _, _, here, tests, _ = (part.strip() for part in line.split("|"))
            assert here.startswith("not kept: ") or tests.startswith("`test_"), line
