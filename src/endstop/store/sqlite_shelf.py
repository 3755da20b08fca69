"""The shelf of a SQLite journal: its records are rows of one table in the journal's file.

Has a connection of its own, so that nothing of it waits behind the journal's writer; the file's
lock alone decides between them. Nothing here knows what a record means.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from endstop.errors import JournalError
from endstop.store.opening import connect
from endstop.store.shelf import (
    PAGE,
    RECORDS_MAX,
    TOP,
    Found,
    Value,
    check_names,
    check_range,
    check_room,
    decode_value,
    encode_value,
)
from endstop.store.sql import SQL


class SqliteShelf:
    """Records in a file, for all threads and processes that use it; see `Shelf`."""

    def __init__(self, path: Path, busy_s: float, *, records_max: int = RECORDS_MAX) -> None:
        self._path = path
        self._busy_s = busy_s
        self._records_max = records_max
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    def put(self, space: str, key: str, value: Value) -> None:
        """See `Shelf.put`."""
        check_names(space, key)
        text = encode_value(value)
        with self._writing() as connection:
            self._write(connection, space, key, text)

    def get(self, space: str, key: str) -> Value | None:
        """See `Shelf.get`."""
        check_names(space, key)
        with self._using() as connection:
            text = _text(connection, space, key)
        return None if text is None else decode_value(text)

    def list(self, space: str, prefix: str = "", *, after: str = "", limit: int = PAGE) -> Found:
        """See `Shelf.list`."""
        check_range(space, prefix, after, limit)
        with self._using() as connection:
            values = (space, prefix, after, prefix + TOP, limit)
            rows = connection.execute(SQL["list_records"], values).fetchall()
        return [(key, decode_value(text)) for key, text in rows]

    def delete(self, space: str, key: str) -> bool:
        """See `Shelf.delete`."""
        check_names(space, key)
        with self._writing() as connection:
            return connection.execute(SQL["delete_record"], (space, key)).rowcount == 1

    def swap(self, space: str, key: str, old: Value | None, new: Value | None) -> bool:
        """See `Shelf.swap`."""
        check_names(space, key)
        before = None if old is None else encode_value(old)
        after = None if new is None else encode_value(new)
        with self._writing() as connection:
            # In one transaction that holds the write lock: nobody comes between the two.
            if _text(connection, space, key) != before:
                return False
            if after is not None:
                self._write(connection, space, key, after)
            elif before is not None:
                gone = connection.execute(SQL["delete_record"], (space, key)).rowcount
                assert gone == 1, "the row was read in the same transaction"
            return True

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # --- the file ---------------------------------------------------------------------------------

    def _write(self, connection: sqlite3.Connection, space: str, key: str, text: str) -> None:
        if connection.execute(SQL["change_record"], (text, space, key)).rowcount == 1:
            return
        check_room(
            space,
            connection.execute(SQL["count_records"], (space,)).fetchone()[0],
            self._records_max,
        )
        connection.execute(SQL["insert_record"], (space, key, text))

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed:
                raise JournalError(f"{self._path} is closed; open it again")
            try:
                if self._connection is None:
                    self._connection = connect(self._path, "rw", self._busy_s)
                    self._connection.execute(SQL["survive_process"])
                yield self._connection
            except sqlite3.Error as error:
                raise JournalError(f"{self._path}: its shelf cannot be used: {error}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as connection:
            connection.execute(SQL["begin_write"])
            try:
                yield connection
                connection.execute(SQL["commit"])
            finally:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute(SQL["rollback"])


def _text(connection: sqlite3.Connection, space: str, key: str) -> str | None:
    row = connection.execute(SQL["get_record"], (space, key)).fetchone()
    if row is None:
        return None
    text: str = row[0]
    return text
