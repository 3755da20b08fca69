"""What the documents promise is there, and nothing tells of the machine it was written on."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import ROOT
from tests.tidy.source import report, text_files

# [text](target) and [text]: target; code spans and fences are taken out first.
INLINE_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`", re.DOTALL)
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//|#)", re.IGNORECASE)

# A path that starts at a developer's home or scratch folder, but not src/endstop/work/.
MACHINE_PATH = re.compile(r"(?<![\w.\-/}])/(?:" + "work|root|tmp/venv" + r")/")

# Which index to install from is the reader's configuration, not ours.
# Spelt in parts so that this file does not find itself.
INDEX_HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".", "deb.debian" + ".org"]


def links(text: str) -> list[str]:
    prose = CODE.sub("", text)
    found = INLINE_LINK.findall(prose) + REFERENCE.findall(prose)
    return [target for target in found if not ELSEWHERE.match(target)]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {found.group()}"
        for path in text_files()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if (found := pattern.search(line))
    ]


def markdown_files() -> list[Path]:
    found = [path for path in text_files() if path.suffix == ".md"]
    assert ROOT / "README.md" in found
    return found


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    report(
        [name for name in ("scripts/demo", "scripts/test") if name not in text],
        "README.md must tell a newcomer how to see it work and how to test it.",
    )
    for name in ("scripts/demo", "scripts/test"):
        assert (ROOT / name).stat().st_mode & 0o111, f"{name} is not executable; chmod +x it"


def test_every_link_leads_somewhere() -> None:
    problems = []
    for path in markdown_files():
        for target in links(path.read_text(encoding="utf-8")):
            file = target.split("#")[0]
            if not (path.parent / file).exists():
                problems.append(f"{path.relative_to(ROOT)}: {target}")
    report(problems, "Correct the link, or write the page that it promises.")


def test_no_file_tells_of_the_machine_it_was_written_on() -> None:
    report(
        lines_with(MACHINE_PATH),
        "Use a path relative to the checkout, or tmp_path in a test.",
    )


def test_no_file_names_a_package_index() -> None:
    report(
        lines_with(re.compile("|".join(re.escape(host) for host in INDEX_HOSTS))),
        "Name the package, not the host it comes from; pip and apt know their own configuration.",
    )


def test_the_link_reader_sees_what_a_reader_would_click() -> None:
    text = "[a](b.md#c) `[x](no.md)` [w](https://example.com) [s](#here)\n\n[r]: d/e.md\n"
    assert links(text) == ["b.md#c", "d/e.md"]


def test_the_machine_path_reader_knows_our_own_folders() -> None:
    for seen in ["cd /wor" + "k/main", '"/roo' + 't/.cache"', "file:/wor" + "k/x"]:
        assert MACHINE_PATH.search(seen), f"not seen: {seen}"
    for ours in ["src/endstop/work/host.py", "${x}/work/y", "../work/z"]:
        assert not MACHINE_PATH.search(ours), f"wrongly seen: {ours}"
