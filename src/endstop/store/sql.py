"""The named statements of the SQLite journal, read from `queries.sql`.

Nothing here runs SQL, and no SQL is written anywhere else.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"-- name: ([a-z_]+)")


def parse(text: str) -> dict[str, str]:
    """Each statement under its name, without comments.

    Raises `ValueError` for a name given twice, a block without a statement or a statement outside
    a block.
    """
    found: dict[str, list[str]] = {}
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _NAME.fullmatch(line.strip()):
            name = match[1]
            if name in found:
                raise ValueError(f"line {number}: the name {name} is taken")
            found[name] = []
        elif line.strip() and not line.lstrip().startswith("--"):
            if not name:
                raise ValueError(f"line {number}: a statement without a name")
            found[name].append(line)
    statements = {name: "\n".join(lines).strip() for name, lines in found.items()}
    if empty := [name for name, statement in statements.items() if not statement]:
        raise ValueError(f"no statement under {', '.join(empty)}")
    return statements


SQL = parse(files("endstop.store").joinpath("queries.sql").read_text(encoding="utf-8"))
"""The statements by name."""

ROWS_MAX = 512
"""Most rows of one `insert_events`; SQLite takes 32,766 placeholders, six a row."""

_GROUP = "(?, ?, ?, ?, ?, ?)"
assert SQL["insert_events"].count(_GROUP) == 1

# Keyed by the number of rows, a power of two: ten texts, so that each stays prepared.
_INSERTS = {
    1 << power: SQL["insert_events"].replace(_GROUP, ", ".join([_GROUP] * (1 << power)))
    for power in range(ROWS_MAX.bit_length())
}


def insert_events(rows: int) -> tuple[str, int]:
    """The insert that takes this many rows, and how many rows of nulls must fill it up."""
    assert 0 < rows <= ROWS_MAX
    size = 1 << (rows - 1).bit_length()
    return _INSERTS[size], size - rows
