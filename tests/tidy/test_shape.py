"""The house style, in numbers: sizes, docstrings, leftovers, broad excepts, frozen data."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from tests.support import ROOT
from tests.tidy.source import modules, report, text_files

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
COLUMNS_MAX = 100

# Foreign code ends here, whatever it raises (laws 3 one-ending and 19 any-payload).
MAY_CATCH_EVERYTHING = {"run", "work"}

# Spelt so that this file does not find itself.
LEFTOVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring: explaining must not cost room."""
    assert node.end_lineno is not None
    total = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None and first.end_lineno is not None:
        total -= first.end_lineno - first.lineno + 1
    return total


def caught_names(node: ast.expr | None) -> Iterator[str]:
    """The last part of each name in an except clause; "" for a bare one."""
    if node is None:
        yield ""
    elif isinstance(node, ast.Tuple):
        for item in node.elts:
            yield from caught_names(item)
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id


def catches_everything(tree: ast.AST) -> Iterator[int]:
    """Lines of `except:`, `except BaseException` and `suppress(BaseException)`."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=caught):
                names = set(caught_names(caught))
            case ast.Call(func=function, args=args) if "suppress" in set(caught_names(function)):
                names = {name for arg in args for name in caught_names(arg)}
            case _:
                continue
        if names & {"", "BaseException"}:
            yield node.lineno


def test_files_stay_small() -> None:
    sizes = [(m.where, len(m.text.splitlines())) for m in modules()]
    report(
        [f"{where}: {n} lines" for where, n in sizes if n > FILE_LINES_MAX],
        f"A file has at most {FILE_LINES_MAX} lines. Split it where the second subject begins.",
    )


def test_functions_stay_small() -> None:
    report(
        [
            f"{m.where}:{node.lineno}: {node.name} has {n} lines without its docstring"
            for m in modules()
            for node in ast.walk(m.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (n := function_lines(node)) > FUNCTION_LINES_MAX
        ],
        f"A function has at most {FUNCTION_LINES_MAX} lines. Name its parts and call them.",
    )


def test_lines_stay_short() -> None:
    report(
        [
            f"{m.where}:{number}: {len(line)} columns"
            for m in modules()
            for number, line in enumerate(m.text.splitlines(), 1)
            if len(line) > COLUMNS_MAX
        ],
        f"A line has at most {COLUMNS_MAX} columns.",
    )


def test_every_module_says_which_room_it_is() -> None:
    report(
        [m.where for m in modules() if not (ast.get_docstring(m.tree) or "").strip()],
        "Open the module with a docstring: which room this is and what may not happen in it.",
    )


def test_nothing_is_left_for_later() -> None:
    problems = []
    for path in text_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if found := LEFTOVER.search(line):
                problems.append(f"{path.relative_to(ROOT)}:{number}: {found.group()}")
    report(problems, "Do it now, or file it as an issue and delete the note.")


def test_only_drivers_and_workers_catch_everything() -> None:
    report(
        [
            f"{m.where}:{line}: catches everything"
            for m in modules()
            if m.layer not in MAY_CATCH_EVERYTHING
            for line in catches_everything(m.tree)
        ],
        "Name what can be raised here. Only run/ and work/ stand between foreign code and the "
        "runtime and may catch BaseException.",
    )


@pytest.mark.parametrize("name", ["inputs", "events"])
def test_the_language_of_the_core_is_frozen(name: str) -> None:
    module = importlib.import_module(f"endstop.core.{name}")
    problems, seen = [], 0
    for label, cls in inspect.getmembers(module, inspect.isclass):
        if label.startswith("_") or cls.__module__ != module.__name__:
            continue
        if not dataclasses.is_dataclass(cls):
            continue
        seen += 1
        missing = []
        if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            missing.append("frozen=True")
        if "__slots__" not in vars(cls):
            missing.append("slots=True")
        if not all(field.kw_only for field in dataclasses.fields(cls)):
            missing.append("kw_only=True")
        if missing:
            problems.append(f"endstop.core.{name}.{label}: lacks {', '.join(missing)}")
    assert seen, (
        f"endstop.core.{name} defines no public dataclass; is this test looking at the right file?"
    )
    report(problems, "Declare it with @dataclass(frozen=True, slots=True, kw_only=True).")


def test_a_broad_except_is_seen_in_every_form() -> None:
    seen = [
        "try: f()\nexcept: pass",
        "try: f()\nexcept BaseException: pass",
        "try: f()\nexcept (OSError, BaseException): pass",
        "try: f()\nexcept builtins.BaseException: pass",
        "with contextlib.suppress(BaseException): f()",
    ]
    for form in seen:
        assert list(catches_everything(ast.parse(form))), f"not seen: {form}"
    assert not list(catches_everything(ast.parse("try: f()\nexcept (OSError, KeyError): pass")))
    assert not list(catches_everything(ast.parse("with suppress(OSError): f()")))


def test_a_docstring_does_not_count_as_length() -> None:
    body = "\n".join(["    x = 1"] * 59)
    long_docstring = '    """' + "word\n" * 50 + '    """\n'
    node = ast.parse(f"def f():\n{long_docstring}{body}").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert function_lines(node) == 60
