"""What the pages list is what the code has: phases, words, keys, laws, links."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

import endstop
from endstop.cli.main import app
from endstop.config import ENV_PREFIX, KEYS, Config
from endstop.core import terms
from endstop.core.rules import diagram
from tests.docs.pages import FENCE, fences, pages
from tests.support import ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
ENUMS = [
    value
    for value in vars(terms).values()
    if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum
]


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(
        rf"^(#+) {re.escape(heading)} *\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"docs/{page} has no heading {heading!r}"
    return found[2]


def first_column(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def test_the_diagram_is_the_rules_table() -> None:
    shown = [f.text for f in fences() if f.language == "mermaid" and f.page == "docs/lifecycle.md"]
    assert shown == [diagram()], "run python -m tests.docs"


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_the_glossary_has_the_words_of_the_core(enum: type[StrEnum]) -> None:
    words = first_column(section("glossary.md", enum.__name__))
    assert words == [str(word) for word in enum], f"docs/glossary.md, {enum.__name__}"


def test_the_glossary_knows_no_other_list() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^## ([A-Z]\w+)$", text, re.MULTILINE))
    assert headings == {enum.__name__ for enum in ENUMS}


def test_every_key_is_explained_with_its_environment_name() -> None:
    text = section("configuration.md", "Keys")
    assert first_column(text) == [*KEYS, "resource_waits.<kind>"]
    for key in KEYS:
        name = ENV_PREFIX + key.replace(".", "_").upper()
        assert f"`{name}`" in text, f"docs/configuration.md: {key} has no {name}"


def test_the_defaults_are_the_defaults() -> None:
    shown = dict(
        re.findall(
            r"^\| `([^`]+)` \|[^|]*\|\s*`?([^|`]+?)`?\s*\|",
            section("configuration.md", "Keys"),
            re.M,
        )
    )
    config = Config()
    where = {"timeouts.tools": config.timeouts.tools, "timeouts": config.timeouts}
    where |= {"slots": config.slots, "sizes": config.sizes}
    for key in KEYS:
        part, _, name = key.rpartition(".")
        holder = where.get(part, config.timeouts if hasattr(config.timeouts, name) else config)
        default = getattr(holder, name)
        assert shown[key].replace(",", "") == _written(key, default), key


def _written(key: str, default: object) -> str:
    if key.startswith("timeouts.tools"):
        return {"sequential_call": "concurrent_batch", "concurrent_batch": "420"}[
            key.rpartition(".")[2]
        ]
    if default is None:
        return "none" if key == "journal" else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_every_public_name_is_in_the_pages() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    missing = [name for name in endstop.__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing, missing


def test_the_answers_in_the_readme_are_all_there_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^## What an answer can say\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    named = set(re.findall(r"`([a-z_]+)`", table[1]))
    words = {str(w) for enum in (terms.Outcome, terms.Effect, terms.Reason) for w in enum}
    assert words - named == set(), "a word that an answer can hold is missing"
    assert named - words <= {"read_only"}, "the table knows words that there are not"


def test_the_commands_in_the_readme_are_the_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `endstop (\w+)", text, re.MULTILINE))
    names = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    assert named == names


def test_headings_that_are_linked_exist() -> None:
    """That the pages themselves exist is a rule of the house: see `tests/tidy`."""
    broken = []
    for page in pages():
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            file, _, anchor = target.partition("#")
            other = (page.parent / file) if file else page
            if anchor and other.suffix == ".md" and other.exists() and anchor not in anchors(other):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, broken


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(text)
    }


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in LINK.findall(index)}
    missing = [
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if page.name != "index.md" and str(page.relative_to(DOCS)) not in linked
    ]
    assert not missing, f"docs/index.md leads nowhere near {missing}"
