"""The import law: who may know whom. The table is the law; the tests only read it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

from tests.support import ROOT
from tests.tidy.source import Module, imports, modules, report

BASE = frozenset({"core", "errors", "config", "telemetry"})
BELOW_RUN = BASE | {"tools", "store", "work"}
BELOW_SURFACES = BELOW_RUN | {"run"}
LIBRARY = BELOW_SURFACES | {"agents", "adapters", "testing"}

# layer -> the layers that it may import. "endstop" is the package's own __init__, the public names.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset({"core", "errors"}),
    "errors": frozenset(),
    "config": BASE,
    "telemetry": BASE,
    "tools": BASE | {"tools"},
    "store": BASE | {"store"},
    "work": BASE | {"work", "tools"},
    "run": BELOW_SURFACES,
    "agents": BELOW_SURFACES | {"agents", "adapters"},
    "adapters": BELOW_SURFACES | {"adapters"},
    "testing": LIBRARY | {"endstop"},
    "endstop": LIBRARY,
    "demo": LIBRARY | {"endstop", "demo"},
    "a2a": LIBRARY | {"endstop", "a2a"},
    "server": LIBRARY | {"endstop", "a2a", "server"},
    "cli": LIBRARY | {"endstop", "demo", "a2a", "server", "cli"},
    "__main__": LIBRARY | {"endstop", "demo", "a2a", "server", "cli"},
}

# Modules of the standard library that would let the world into the core.
BANNED_IN_CORE = {
    "time": "take `now` as an argument",
    "asyncio": "decide here, wait in a driver",
    "threading": "decide here, lock in a driver",
    "random": "take the choice as an input",
    "secrets": "take the value as an input",
    "uuid": "take the id as an input",
    "os": "let a driver ask the system and tell the core",
    "logging": "return an event; telemetry reads events",
    "socket": "let a driver talk",
    "subprocess": "let a worker start processes",
    "multiprocessing": "let a worker start processes",
    "concurrent": "let a worker hold the pool",
    "signal": "let a worker send signals",
    "sqlite3": "let a store write",
    "tempfile": "let a driver touch files",
    "shutil": "let a driver touch files",
}

# Doors to the world in modules whose other names are plain values (dates, pure paths).
BANNED_NAMES_IN_CORE = {
    "pathlib": "import PurePath or PurePosixPath by name; Path can touch files",
    "pathlib.Path": "PurePath and PurePosixPath do no I/O",
    "pathlib.PosixPath": "PurePath and PurePosixPath do no I/O",
}
BANNED_METHODS_IN_CORE = {"now", "utcnow", "today"}

# Heavy modules and the only layer that may import them.
ONLY_IN = {"typer": "cli", "rich": "cli"}


def target_layer(name: str) -> str | None:
    """The layer that an imported name belongs to; None for a name from outside the package."""
    parts = name.split(".")
    if parts[0] != "endstop":
        return None
    if len(parts) == 1:
        return "endstop"
    # `from endstop import x`: a layer if x is one, otherwise a public name.
    return parts[1] if parts[1] in MAY_IMPORT else "endstop"


def law_breaks(module: Module) -> list[str]:
    allowed = MAY_IMPORT[module.layer]
    return [
        f"{module.where}:{line}: {module.layer} must not import {name}"
        for line, name in imports(module)
        if (target := target_layer(name)) is not None and target not in allowed
    ]


def core_breaks(module: Module) -> list[str]:
    problems = []
    for line, name in imports(module):
        top = name.split(".")[0]
        if top in BANNED_IN_CORE:
            problems.append(f"{module.where}:{line}: imports {top}: {BANNED_IN_CORE[top]}")
        elif name in BANNED_NAMES_IN_CORE:
            problems.append(f"{module.where}:{line}: imports {name}: {BANNED_NAMES_IN_CORE[name]}")
        elif top != "endstop" and top not in sys.stdlib_module_names:
            problems.append(f"{module.where}:{line}: imports {top}: core is standard library only")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            problems.append(f"{module.where}:{node.lineno}: waits: the core never does")
        match node:
            case ast.Call(func=ast.Name(id="open" | "print" | "input" | "__import__" as called)):
                problems.append(f"{module.where}:{node.lineno}: calls {called}(): no I/O in core")
            case ast.Call(func=ast.Attribute(attr=called)) if called in BANNED_METHODS_IN_CORE:
                problems.append(f"{module.where}:{node.lineno}: calls {called}(): no clock in core")
    return problems


def parsed(where: str, text: str) -> Module:
    """A module that is not on disk, for the tests of these tests."""
    return Module(path=ROOT / "src" / "endstop" / where, text=text, tree=ast.parse(text))


def test_every_layer_has_a_row_in_the_table() -> None:
    strangers = sorted({m.layer for m in modules()} - MAY_IMPORT.keys())
    report(
        [f"src/endstop/{name}: not in MAY_IMPORT" for name in strangers],
        "Add a row to MAY_IMPORT in tests/tidy/test_imports.py that says what the new layer may "
        "know, and its name to the rows of those that may know it.",
    )


def test_nothing_imports_upward() -> None:
    report(
        [p for m in modules() if m.layer in MAY_IMPORT for p in law_breaks(m)],
        "Move what both sides need down to the lower layer, or hand it in as an argument. "
        "The law is the table MAY_IMPORT in tests/tidy/test_imports.py.",
    )


def test_the_core_is_pure() -> None:
    report(
        [p for m in modules() if m.layer == "core" for p in core_breaks(m)],
        "The core decides; a driver does. Bring the fact in as an input or an argument.",
    )


def test_heavy_modules_stay_in_their_layer() -> None:
    report(
        [
            f"{m.where}:{line}: imports {name}, which only {ONLY_IN[top]} may"
            for m in modules()
            for line, name in imports(m)
            if (top := name.split(".")[0]) in ONLY_IN and m.layer != ONLY_IN[top]
        ],
        "Return data and let the command line draw it.",
    )


def test_importing_endstop_stays_light() -> None:
    script = "import sys, json, endstop; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"`import endstop` failed:\n{done.stderr}"
    loaded = set(json.loads(done.stdout))
    assert "endstop" in loaded
    report(
        [
            f"`import endstop` loads {name}"
            for name in ("typer", "rich", "sqlite3")
            if name in loaded
        ],
        "Import it where it is used: typer and rich in cli, sqlite3 inside the SQLite store, which "
        "the public names must load on first use only.",
    )


def test_an_upward_import_is_seen_in_every_form() -> None:
    forms = [
        "import endstop.run.engine",
        "from endstop.run import engine",
        "from endstop import run",
        "from endstop import Runtime",
        "from ..run import engine",
        "from .. import run",
        "def f():\n    from endstop.run import engine",
    ]
    for form in forms:
        assert law_breaks(parsed("work/planted.py", form)), f"not seen: {form}"
    assert not law_breaks(parsed("work/planted.py", "from endstop.tools.schema import x"))
    assert not law_breaks(parsed("work/planted.py", "from . import protocol"))
    assert law_breaks(parsed("tools/planted.py", "from endstop.work import thread"))
    assert law_breaks(parsed("store/planted.py", "from endstop.tools import x"))


def test_an_impure_core_is_seen_in_every_form() -> None:
    for form in [
        "import os.path",
        "from time import monotonic",
        "import pydantic",
        "async def f(): pass",
        "def f(): open('x')",
        "from pathlib import Path",
        "import pathlib",
        "from datetime import datetime\ndatetime.now()",
    ]:
        assert core_breaks(parsed("core/planted.py", form)), f"not seen: {form}"
    for form in [
        "from endstop.core.terms import Phase",
        "from datetime import timedelta",
        "from pathlib import PurePath",
    ]:
        assert not core_breaks(parsed("core/planted.py", form)), f"wrongly seen: {form}"
