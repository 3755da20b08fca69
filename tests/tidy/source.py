"""The project's own files, as the tidy tests read them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support import ROOT

SRC = ROOT / "src"
PACKAGE = SRC / "endstop"

TEXT_SUFFIXES = {".py", ".md", ".toml", ".sql", ".txt", ".json", ".jsonl", ".yml", ".yaml", ".cfg"}
"""Files without a suffix (scripts, LICENSE) are text here, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed file under src."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def where(self) -> str:
        """The path as a person would type it."""
        return str(self.path.relative_to(ROOT))

    @property
    def dotted(self) -> str:
        """The name that `import` takes."""
        parts = list(self.path.relative_to(SRC).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        return ".".join(parts)

    @property
    def layer(self) -> str:
        """The first name below `endstop`; `endstop` itself for the package's own `__init__`."""
        names = self.dotted.split(".")
        return names[1] if len(names) > 1 else names[0]


@cache
def modules() -> tuple[Module, ...]:
    """Every Python file under src, parsed once."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path=path, text=text, tree=ast.parse(text, filename=str(path))))
    assert found, f"no Python files under {PACKAGE}"
    return tuple(found)


def generated(relative: Path) -> bool:
    """Whether a tool made this file: environments, caches, builds."""
    parts = set(relative.parts)
    hidden = {part for part in parts if part.startswith(".")} - {".ci", ".gitignore"}
    return bool(hidden or parts & {"__pycache__", "build", "dist"})


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file of the project: what git tracks and, in a working tree, would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = sorted({ROOT / name for name in listing.stdout.decode().split("\0") if name})
    else:  # an unpacked source archive has no git
        names = [path for path in sorted(ROOT.rglob("*")) if not generated(path.relative_to(ROOT))]
    return tuple(
        path
        for path in names
        if path.is_file() and (path.suffix in TEXT_SUFFIXES or path.suffix == "")
    )


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that a module imports, wherever it does so.

    `from a import b` yields `a.b`: whether `b` is a module or a name in `a`, its layer is the same.
    """
    package = (
        module.dotted if module.path.name == "__init__.py" else module.dotted.rpartition(".")[0]
    )
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def report(problems: list[str], remedy: str) -> None:
    """Fails with every problem at once and with what to do about them."""
    assert not problems, "\n".join(["", *problems, "", remedy])
