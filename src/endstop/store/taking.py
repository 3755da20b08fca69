"""Taking a run from a driver that does not answer: read, decide and record in one transaction.

The fence is the key of the events. Whoever takes a run appends to it in the same step, so that the
old driver, if it lives on after all, finds its next number taken and is refused (law 3 one-ending).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from endstop.core.events import Event, RunEnded
from endstop.errors import JournalError, NotFound
from endstop.store.bell import ring
from endstop.store.codec import decode
from endstop.store.opening import connect
from endstop.store.owner import is_alive
from endstop.store.protocol import Durability, Recorded
from endstop.store.recorder import Append, Recorder
from endstop.store.sql import SQL

Decide = Callable[[list[Recorded]], Sequence[Event]]
_EVERY_ROW = -1


def take_over(
    path: Path, owner: str, busy_s: float, run: str, decide: Decide, *, force: bool
) -> list[Event] | None:
    """See `SqliteJournal.take_over`."""
    try:
        with closing(connect(path, "rw", busy_s)) as connection:
            connection.execute(SQL["survive_machine"])
            connection.execute(SQL["begin_write"])
            found = connection.execute(SQL["get_run"], (run,)).fetchone()
            if found is None:
                raise NotFound(f"{path} holds no run {run!r}")
            before, ended_at = found
            if ended_at is not None:
                return None
            if not force and before is not None and before != owner and is_alive(before):
                return None
            events = list(decide(_recorded(connection, run)))
            if not events:
                # Nothing is left to do, and without an event nobody would be fenced off.
                return []
            _append(connection, path, owner, run, events)
            if not any(isinstance(event, RunEnded) for event in events):
                connection.execute(SQL["adopt_run"], (owner, run, before))
            connection.execute(SQL["count_taken"])
            connection.execute(SQL["commit"])
    except sqlite3.Error as error:
        raise JournalError(f"{path}: run {run!r} cannot be taken over: {error}") from error
    if before is not None:
        # If it lives on, it learns of it now and not by its next append.
        ring(path, before)
    return events


def _recorded(connection: sqlite3.Connection, run: str) -> list[Recorded]:
    def blob(digest: str) -> str:
        row = connection.execute(SQL["read_blob"], (digest,)).fetchone()
        if row is None:
            raise JournalError(f"the large result {digest} is missing")
        text: str = row[0]
        return text

    rows = connection.execute(SQL["read_events"], (run, 0, _EVERY_ROW)).fetchall()
    return [
        Recorded(run=run, seq=seq, at_s=at_s, event=decode(run, kind, call, body, blob))
        for seq, at_s, kind, call, body in rows
    ]


def _append(
    connection: sqlite3.Connection, path: Path, owner: str, run: str, events: list[Event]
) -> None:
    last = connection.execute(SQL["last_seq"], (run,)).fetchone()[0]
    recorder = Recorder(connection, owner=owner, where=str(path), refused={})
    recorder.add(Append.alone(run, last, events, Durability.MACHINE))
