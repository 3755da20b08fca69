"""The SQL file: every statement has a name and a use, and SQL is written nowhere else."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from endstop.store.sql import ROWS_MAX, SQL, insert_events, parse
from tests.support import ROOT

STORE = ROOT / "src" / "endstop" / "store"
SOURCES = {path.name: path.read_text(encoding="utf-8") for path in STORE.glob("*.py")}


@pytest.mark.parametrize("name", sorted(SQL))
def test_every_statement_is_used(name: str) -> None:
    assert any(f'"{name}"' in text for text in SOURCES.values())


def test_every_statement_that_is_used_has_a_name() -> None:
    used = {name for text in SOURCES.values() for name in re.findall(r'SQL\["(\w+)"\]', text)}
    assert used
    assert used <= SQL.keys()


def test_sql_is_written_in_the_sql_file_alone() -> None:
    verbs = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|COMMIT|ROLLBACK|SAVEPOINT)\b")
    found = [
        f"{name}: {line.strip()}"
        for name, text in SOURCES.items()
        for line in text.splitlines()
        if verbs.search(line)
    ]
    assert found == []


def test_every_block_says_why() -> None:
    text = (STORE / "queries.sql").read_text(encoding="utf-8")
    blocks = re.findall(r"^-- name: (\w+)\n(.*)$", text, re.MULTILINE)
    assert len(blocks) == len(SQL)
    assert [name for name, first in blocks if not first.startswith("-- ")] == []


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        yield made


def test_every_statement_is_valid(connection: sqlite3.Connection) -> None:
    for name, statement in SQL.items():
        if name.startswith(("create_", "one_ending", "open_runs")):
            connection.execute(statement)
    for statement in SQL.values():
        if statement.split()[0] in ("SELECT", "INSERT", "UPDATE"):
            connection.execute(f"EXPLAIN {statement}", [None] * statement.count("?"))


def test_open_runs_are_found_without_reading_all_runs(connection: sqlite3.Connection) -> None:
    for name in ("create_runs", "open_runs"):
        connection.execute(SQL[name])
    plan = connection.execute(f"EXPLAIN QUERY PLAN {SQL['list_open']}").fetchall()
    assert "open_runs" in str(plan)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 100, 257, ROWS_MAX - 1, ROWS_MAX])
def test_an_insert_takes_any_number_of_rows(connection: sqlite3.Connection, rows: int) -> None:
    connection.execute(SQL["create_events"])
    statement, missing = insert_events(rows)
    assert missing < max(rows, 1)
    values = [value for n in range(rows) for value in ("r", n + 1, 0.5, "run_closing", None, "{}")]
    connection.execute(statement, values + [None] * (6 * missing))
    count = connection.execute("SELECT count(*), max(seq), min(at_s) FROM events").fetchone()
    assert count == (rows, rows, 0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT 1", "line 1: a statement without a name"),
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "line 3: the name a is taken"),
        ("-- name: a\n-- why\n-- name: b\nSELECT 1", "no statement under a"),
    ],
)
def test_a_broken_sql_file_is_explained(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse(text)


def test_comments_are_not_part_of_a_statement() -> None:
    assert parse("-- head\n\n-- name: a\n-- why\nSELECT 1\n  FROM x\n") == {
        "a": "SELECT 1\n  FROM x"
    }
