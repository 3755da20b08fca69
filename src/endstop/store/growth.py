"""Growth: which of some runs have more on record than is known of them, without reading them.

For whoever follows what others drive. While nothing is recorded, asking costs the same for one run
and for thousands. Nothing here reads an event.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from endstop.errors import JournalError
from endstop.store.opening import open_for_reading
from endstop.store.sql import SQL


class Growth(Protocol):
    """What a journal tells of its runs; for one thread, but for what it was told to call."""

    @property
    def tells(self) -> bool:
        """Whether it says by itself that something has grown: nobody has to look."""

    def changed(self) -> bool:
        """Whether anything may have grown since this was asked last; costs next to nothing.

        Raises JournalError where the journal cannot be read; so does `grown`.
        """

    def grown(self, after: Mapping[str, int]) -> Collection[str]:
        """Those of these runs of which more is recorded than up to the number that is given."""

    def close(self) -> None:
        """Tell nothing more. Idempotent."""


class SqliteGrowth:
    """The growth of the runs in a file; sees what any process commits."""

    tells = False

    def __init__(self, path: Path, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        # Of its own: the number is one of the connection, and says what others have committed.
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    def changed(self) -> bool:
        """See `Growth`."""
        version = self._read("data_version", ())[0][0]
        same, self._version = version == self._version, version
        return not same

    def grown(self, after: Mapping[str, int]) -> Collection[str]:
        """See `Growth`; one step down the key of the events for each run."""
        return [run for (run,) in self._read("grown_runs", (json.dumps(dict(after)),))]

    def _read(self, name: str, values: tuple[object, ...]) -> list[Any]:
        try:
            if self._connection is None:
                self._connection = open_for_reading(self._path, self._busy_s)
            return self._connection.execute(SQL[name], values).fetchall()
        except sqlite3.Error as error:
            raise JournalError(f"{self._path} cannot be read: {error}") from error

    def close(self) -> None:
        """See `Growth`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
