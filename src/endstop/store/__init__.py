"""The journals: the ordered record of each run.

A store appends, reads and refuses stale writers. It knows nothing of tools, workers or drivers.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TypeGuard

from endstop.errors import CallerError
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Journal

__all__ = ["JournalSpec", "open_journal"]

JournalSpec = Journal | str | os.PathLike[str] | None
"""What names a journal; `open_journal` says how."""

_SQLITE_SUFFIXES = frozenset({".db", ".sqlite", ".sqlite3"})
_METHODS = ("append", "read", "runs", "orphans", "adopt", "close")


def open_journal(spec: JournalSpec = None) -> Journal:
    """The journal that `spec` names.

    None or "memory" is a new one in memory; "sqlite:PATH", or a path that ends in .db, .sqlite or
    .sqlite3, a file; a journal is itself. Raises `CallerError` for anything else, and
    `JournalError` where the file cannot be used.
    """
    if spec is None or spec == "memory":
        return MemoryJournal()
    if isinstance(spec, str) and spec.startswith("sqlite:"):
        return _open_sqlite(spec, spec.removeprefix("sqlite:"))
    if isinstance(spec, str | PurePath):
        if PurePath(spec).suffix.lower() in _SQLITE_SUFFIXES:
            return _open_sqlite(spec, spec)
        raise CallerError(
            f"{str(spec)!r} names no journal: use 'memory', 'sqlite:PATH' or a path that ends in "
            f"{', '.join(sorted(_SQLITE_SUFFIXES))}"
        )
    if _is_journal(spec):
        return spec
    raise CallerError(
        f"a {type(spec).__name__} is no journal: give None, 'memory', 'sqlite:PATH', a path or an "
        f"object with the methods {', '.join(_METHODS)}"
    )


def _open_sqlite(spec: object, path: str | os.PathLike[str]) -> Journal:
    if not os.fspath(path) or os.fspath(path) == ":memory:":
        raise CallerError(f"{spec!r} names no file; for a journal without one use 'memory'")
    # Here, so that a program without such a journal never loads sqlite3.
    from endstop.store.sqlite import SqliteJournal

    return SqliteJournal(path)


def _is_journal(spec: object) -> TypeGuard[Journal]:
    return all(callable(getattr(spec, name, None)) for name in _METHODS)
