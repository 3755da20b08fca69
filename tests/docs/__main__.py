"""Brings the pages up to date: `python -m tests.docs`.

Rewrites the diagram of the rules table, the text of every quoted example and what it prints. Look
at the difference before committing it.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from endstop.core.rules import diagram
from tests.docs.pages import pages, run_python, same_seconds
from tests.support import ROOT

QUOTE = re.compile(r"^```(python|text) (examples/\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIAGRAM = re.compile(r"^```mermaid\n(stateDiagram.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def printed_by(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return run_python(ROOT / name, Path(folder))


def quoted(match: re.Match[str]) -> str:
    language, name, shown = match.groups()
    if language == "python":
        now = (ROOT / name).read_text(encoding="utf-8")
    else:
        now = printed_by(name)
        if same_seconds(now) == same_seconds(shown):
            now = shown
    return f"```{language} {name}\n{now}```"


def main() -> None:
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = QUOTE.sub(quoted, before)
        after = DIAGRAM.sub(lambda _: f"```mermaid\n{diagram()}```", after)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"rewritten: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
