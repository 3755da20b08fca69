"""The rows for a person to read: aligned text, nothing but the standard library."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rows import Row

COLUMNS = (
    ("name", 17),
    ("mode", 10),
    ("n", -5),
    ("journal", 8),
    ("resources", 11),
    ("effect", 10),
    ("cpu µs", -9),
    ("floor µs", -9),
    ("ratio", -7),
    ("median", -7),
    ("wall µs", -9),
    ("wall ×", -7),
    ("value", -10),
    ("unit", 9),
    ("target", -7),
    ("met", 4),
)


def heading() -> str:
    """The names of the columns."""
    return line([name for name, _ in COLUMNS])


def number(value: float | None) -> str:
    """Enough digits to compare, no more."""
    if value is None:
        return ""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.2f}"


def line(cells: list[str]) -> str:
    """One line, each cell in its column."""
    return "  ".join(
        cell.ljust(width) if width > 0 else cell.rjust(-width)
        for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    ).rstrip()


def cells_of(row: Row) -> list[str]:
    """What stands in the columns of a row."""
    return [
        row.name,
        row.mode,
        str(row.n),
        row.journal or "",
        row.resources or "",
        row.effect or "",
        number(row.cpu_us),
        number(row.floor_cpu_us),
        number(row.ratio),
        number(row.ratio_median),
        number(row.wall_us),
        number(row.wall_ratio),
        number(row.value),
        row.unit or "",
        number(row.target),
        {True: "yes", False: "NO", None: ""}[row.met],
    ]


def lines(row: Row) -> Iterator[str]:
    """A row, and its note below it."""
    yield line(cells_of(row))
    if row.note:
        yield f"  {row.note}"


def markdown_heading() -> Iterator[str]:
    """The head of the table in `docs/performance.md`."""
    cells = [name for name, _ in COLUMNS]
    yield "| " + " | ".join(cells) + " |"
    yield "| " + " | ".join("---" if width > 0 else "--:" for _, width in COLUMNS) + " |"


def markdown(row: Row) -> str:
    """A row of that table."""
    return "| " + " | ".join(cells_of(row)) + " |"
