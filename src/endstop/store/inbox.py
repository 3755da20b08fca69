"""The inbox of a SQLite journal: what other processes ask of the one that drives a run.

A request is posted by anybody who can write the file, taken by the run's driver, and answered once.
Nothing here knows what a request means. `taking.py` is for drivers that do not answer any more.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any

from endstop.errors import JournalError, NotFound
from endstop.store.bell import Bell, ring, send
from endstop.store.opening import connect
from endstop.store.sql import SQL

LOOK_S = 0.1
"""How often whoever waits for an answer looks for it unasked; the bell is what makes it quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asks of the driver of a run; `target` is the run, a batch or a call of it.

    `body` is plain JSON that the two sides agree on; `at_s` is wall time.
    """

    id: int
    run: str
    target: str
    kind: str
    body: dict[str, Any]
    by: str
    at_s: float


def read_request(row: tuple[int, str, str, str, str, str, float]) -> Request:
    """A request from its row."""
    id_, run, target, kind, body, by, at_s = row
    return Request(
        id=id_, run=run, target=target, kind=kind, body=json.loads(body), by=by, at_s=at_s
    )


class Inbox:
    """One owner's end of the requests in a journal; its methods may be called from any thread."""

    def __init__(self, path: Path, owner: str, busy_s: float) -> None:
        self._path = path
        self._owner = owner
        self._busy_s = busy_s
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._bell: Bell | None = None
        self._version = -1
        self._taken = ""
        self._closed = False

    # --- who asks ---------------------------------------------------------------------------------

    def post(
        self,
        run: str,
        target: str,
        kind: str,
        body: dict[str, Any],
        by: str,
        *,
        secret: str | None = None,
    ) -> int | None:
        """Ask something of the driver of a run; returns the request's id, None if the run is over.

        `secret` reaches the driver without being in the file. Raises NotFound for a run that the
        journal does not hold, and JournalError where the secret cannot be brought to the driver.
        """
        # Before the request is there: its answer may come at once.
        self.bell()
        with self._writing(f"run {run!r} cannot be asked for anything") as connection:
            found = connection.execute(SQL["get_run"], (run,)).fetchone()
            if found is None:
                raise NotFound(f"{self._path} holds no run {run!r}")
            owner, ended_at = found
            if ended_at is not None:
                return None
            if secret is not None:
                body = {**body, "letter": self._send(run, owner, secret)}
            values = (run, target, kind, json.dumps(body), by, time(), self._owner)
            posted = connection.execute(SQL["post_request"], values).lastrowid
        if owner is not None:
            ring(self._path, owner)
        assert posted is not None, "an insert has a row"
        return posted

    def _send(self, run: str, owner: str | None, secret: str) -> str:
        name = None if owner is None else send(self._path, owner, secret)
        if name is None:
            raise JournalError(f"a secret cannot be brought to the driver of run {run!r}")
        return name

    def answered(self, request: int) -> dict[str, Any] | None:
        """The answer to a request, or None while there is none."""
        rows = self._read("get_answer", (request,))
        return json.loads(rows[0][0]) if rows and rows[0][0] is not None else None

    def wait(self, request: int, timeout_s: float) -> dict[str, Any] | None:
        """Wait for the answer to a request; None where it does not come within `timeout_s`."""
        bell = self.bell()
        until = monotonic() + timeout_s
        while (answer := self.answered(request)) is None and (left := until - monotonic()) > 0:
            bell.wait(min(left, LOOK_S))
        return answer

    def withdraw(self, request: int) -> bool:
        """Take a request back; false where a driver has taken it, or has answered."""
        with self._writing("a request cannot be withdrawn") as connection:
            values = (json.dumps({"what": "withdrawn"}), time(), request)
            return connection.execute(SQL["withdraw_request"], values).rowcount == 1

    # --- who drives -------------------------------------------------------------------------------

    def bell(self) -> Bell:
        """What rings when there is something to take; made when it is first asked for."""
        with self._lock:
            self._check()
            if self._bell is None:
                self._bell = Bell(self._path, self._owner)
            return self._bell

    def changed(self) -> bool:
        """Whether the file has changed since this was asked last; costs next to nothing."""
        version = self._read("data_version", ())[0][0]
        same, self._version = version == self._version, version
        return not same

    def take(self) -> list[Request]:
        """The open requests to runs that this owner drives, each handed out once to an owner.

        What an earlier owner had taken and not answered is handed out again.
        """
        if not self._read("open_requests", (self._owner, self._owner)):
            return []
        with self._writing("its requests cannot be taken") as connection:
            rows = connection.execute(SQL["open_requests"], (self._owner, self._owner)).fetchall()
            connection.executemany(SQL["take_request"], [(self._owner, row[0]) for row in rows])
        return [read_request(row) for row in rows]

    def put_back(self, request: int) -> None:
        """Hand a request out again later, to whoever drives its run then."""
        with self._writing("a request cannot be put back") as connection:
            connection.execute(SQL["take_request"], (None, request))

    def drives(self, run: str) -> bool:
        """Whether this owner drives a run that is not over."""
        row = self._read("get_run", (run,))
        return bool(row) and row[0] == (self._owner, None)

    def answer(self, request: int, body: dict[str, Any]) -> bool:
        """Answer a request; false where it was answered before."""
        with self._writing("a request cannot be answered") as connection:
            values = (json.dumps(body), time(), request)
            changed = connection.execute(SQL["answer_request"], values).rowcount
            asker = connection.execute(SQL["get_asker"], (request,)).fetchone()
        if changed and asker is not None and asker[0] != self._owner:
            ring(self._path, asker[0])
        return changed == 1

    def lost(self, runs: Callable[[], Iterable[str]]) -> list[str]:
        """Those of these runs, all open here, that somebody has taken from this owner.

        Cheap, and `runs` is not asked, unless a run was taken by force since this was asked last.
        """
        rows = self._read("get_meta", ("taken",))
        taken = rows[0][0] if rows else ""
        if taken == self._taken:
            return []
        found = []
        for run in runs():
            row = self._read("get_run", (run,))
            # A run that has just been opened is not recorded yet, and still ours.
            if row and row[0][0] != self._owner:
                found.append(run)
        self._taken = taken
        return found

    # --- the file ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the file and the bell. Idempotent."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
            bell, self._bell = self._bell, None
            if connection is not None:
                connection.close()
            if bell is not None:
                bell.close()

    def _check(self) -> None:
        if self._closed:
            raise JournalError(f"{self._path} is closed; open it again")

    def _open(self) -> sqlite3.Connection:
        self._check()
        if self._connection is None:
            self._connection = connect(self._path, "rw", self._busy_s)
            self._connection.execute(SQL["survive_process"])
        return self._connection

    def _read(self, name: str, values: tuple[object, ...]) -> list[Any]:
        with self._lock:
            try:
                return self._open().execute(SQL[name], values).fetchall()
            except sqlite3.Error as error:
                raise JournalError(f"{self._path} cannot be read: {error}") from error

    @contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                connection = self._open()
                connection.execute(SQL["begin_write"])
                try:
                    yield connection
                    connection.execute(SQL["commit"])
                finally:
                    if connection.in_transaction:
                        with suppress(sqlite3.Error):
                            connection.execute(SQL["rollback"])
            except sqlite3.Error as error:
                raise JournalError(f"{self._path}: {what}: {error}") from error
