"""Opening the file of a SQLite journal, or saying exactly why that cannot be.

The only place that creates or alters a schema. A file of another program is never touched.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from endstop.errors import JournalError
from endstop.store.codec import FORMAT
from endstop.store.sql import SQL

SCHEMA = 4
"""The version of the tables in `queries.sql`."""
APPLICATION_ID = 1701733459
"""What `mark_file` in `queries.sql` writes."""

_VERSIONS = {"schema": SCHEMA, "format": FORMAT}
_TABLES = (
    "create_meta",
    "create_runs",
    "create_events",
    "create_blobs",
    "one_ending_per_call",
    "one_ending_per_run",
    "open_runs",
    "create_requests",
    "create_open_requests",
    "create_shelf",
    "create_labels",
)
# What a file of each older schema lacks. Tables are only ever added, so that a program of an older
# version that has the file open is not disturbed.
_ADDED = {
    1: ("create_requests", "create_open_requests"),
    2: ("create_shelf",),
    3: ("create_labels",),
}
# SQLite reports some conflicts at once instead of waiting: how long between two attempts.
_RETRY_S = 0.01


def open_for_writing(path: Path, busy_s: float) -> sqlite3.Connection:
    """A connection that may write, to a file that is made where there is none."""
    folder = path.parent
    if path.is_dir():
        raise JournalError(f"{path} is a directory; name a file in it")
    if not folder.is_dir():
        raise JournalError(f"there is no directory {folder} for the journal {path.name}; create it")
    for place in (path if path.exists() else folder, folder):
        if not os.access(place, os.W_OK):
            raise JournalError(f"{place} is read-only, so {path} cannot be written; mend its mode")
    with _explained(path):
        connection = connect(path, "rwc", busy_s)
        try:
            until = monotonic() + busy_s
            while not _prepared(connection, path):
                if monotonic() > until:
                    raise JournalError(f"{path} is locked by another process for over {busy_s} s")
                sleep(_RETRY_S)
        except (sqlite3.Error, JournalError):
            connection.close()
            raise
        return connection


def open_for_reading(path: Path, busy_s: float) -> sqlite3.Connection:
    """A connection that only reads, to a journal that exists."""
    if not path.is_file():
        raise JournalError(f"there is no journal {path}")
    if not os.access(path, os.R_OK):
        raise JournalError(f"{path} may not be read; mend its mode")
    with _explained(path):
        connection = connect(path, "ro", busy_s)
        try:
            if not _is_ours(connection, path):
                raise JournalError(f"{path} is empty, not a journal")
            _check_version(connection, path)
        except (sqlite3.Error, JournalError):
            connection.close()
            raise
        return connection


def connect(path: Path, mode: str, busy_s: float) -> sqlite3.Connection:
    """A plain connection, for any thread, without Python's own transactions.

    `mode` is SQLite's: ro, rw or rwc. Where a journal that nobody has open lies in a folder that
    may not be written, it is read as it is, without the files that SQLite would put beside it.
    """
    uri = f"{path.as_uri()}?mode={mode}"
    log = path.with_name(path.name + "-wal")
    if mode == "ro" and not os.access(path.parent, os.W_OK) and not log.exists():
        uri += "&immutable=1"
    return sqlite3.connect(
        uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False
    )


class _explained:
    """Turns what SQLite says about a file into a `JournalError` that names it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, sqlite3.Error):
            return
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            raise JournalError(
                f"{self._path} is not a journal: it is no SQLite database"
            ) from error
        raise JournalError(f"{self._path} cannot be opened: {error}") from error


def _prepared(connection: sqlite3.Connection, path: Path) -> bool:
    """Make or check the schema; false where another process is in the way just now."""
    execute = connection.execute
    try:
        ours = _is_ours(connection, path)
        if (mode := execute(SQL["wal"]).fetchone()[0]) != "wal":
            raise JournalError(
                f"{path}: its file system allows no write-ahead log (SQLite chose {mode!r}); "
                "put the journal on a local disk"
            )
        execute(SQL["survive_process"])
        execute(SQL["full_flush"])
        if not ours:
            execute(SQL["begin_write"])
            if not _is_ours(connection, path):
                _create(connection)
            execute(SQL["commit"])
        elif _schema(connection) in _ADDED:
            execute(SQL["begin_write"])
            _upgrade(connection)
            execute(SQL["commit"])
        _check_version(connection, path)
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                execute(SQL["rollback"])
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return False
        raise
    return True


def _create(connection: sqlite3.Connection) -> None:
    for name in _TABLES:
        connection.execute(SQL[name])
    for name, version in _VERSIONS.items():
        connection.execute(SQL["set_meta"], (name, str(version)))
    connection.execute(SQL["mark_file"])


def _schema(connection: sqlite3.Connection) -> int:
    """The schema that a file says it has; 0 where it does not say."""
    row = connection.execute(SQL["get_meta"], ("schema",)).fetchone()
    return int(row[0]) if row is not None and row[0].isdecimal() else 0


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a file of an older schema to this one, in place; its rows stay as they are."""
    # Asked again inside the transaction: another process may have been faster.
    before = _schema(connection)
    for version in range(before, SCHEMA):
        for name in _ADDED[version]:
            connection.execute(SQL[name])
    if before < SCHEMA:
        connection.execute(SQL["change_meta"], (str(SCHEMA), "schema"))


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is a journal; false where it is still empty."""
    execute = connection.execute
    # One snapshot for both questions: between them another process may make the journal.
    alone = not connection.in_transaction
    if alone:
        execute(SQL["begin_read"])
    try:
        mark = execute(SQL["application_id"]).fetchone()[0]
        tables = execute(SQL["count_tables"]).fetchone()[0]
    finally:
        if alone and connection.in_transaction:
            execute(SQL["commit"])
    if mark == APPLICATION_ID:
        return True
    if mark != 0 or tables > 0:
        raise JournalError(
            f"{path} is a SQLite database of another program; name another file for the journal"
        )
    return False


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    for name, newest in _VERSIONS.items():
        row = connection.execute(SQL["get_meta"], (name,)).fetchone()
        if row is None or not row[0].isdecimal():
            raise JournalError(f"{path} is damaged: it does not name the version of its {name}")
        if int(row[0]) > newest:
            raise JournalError(
                f"{path} was written by a newer endstop ({name} {row[0]}, this one knows "
                f"{newest}); upgrade endstop to use it"
            )
