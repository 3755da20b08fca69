"""Recording a group of appends in one transaction: what fits is kept, what does not is refused.

Belongs to the thread of `writer.py` and holds its connection; nothing here waits for anybody but
the file. What it believes of where a run stands is only ever a guess: the key of the table decides
(law 3 one-ending).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from threading import Lock
from time import time
from typing import NamedTuple

from endstop.core.events import Event, RunEnded, RunOpened
from endstop.errors import JournalError, StaleWriter
from endstop.store.codec import BLOB_CHARS, Blobs, encode, split
from endstop.store.protocol import Durability
from endstop.store.sql import ROWS_MAX, SQL, insert_events

Callback = Callable[[Exception | None], None]
_COLUMNS = 6


class Append:
    """One queued append, and the ticket for it."""

    __slots__ = ("at_s", "callbacks", "done", "durability", "error", "events", "lock", "run", "seq")

    def __init__(
        self, lock: Lock, run: str, seq: int, events: Sequence[Event], durability: Durability
    ) -> None:
        self.lock = lock
        self.run = run
        self.seq = seq
        self.events = events
        self.durability = durability
        self.at_s = time()
        self.callbacks: list[Callback] = []
        self.done = False
        self.error: Exception | None = None

    @classmethod
    def alone(cls, run: str, seq: int, events: Sequence[Event], durability: Durability) -> Append:
        """An append that stands in no queue."""
        return cls(Lock(), run, seq, events, durability)

    def then(self, callback: Callback) -> None:
        """Call back once, from the writer's thread, or at once if already decided."""
        with self.lock:
            if not self.done:
                self.callbacks.append(callback)
                return
        callback(self.error)


class _Encoded(NamedTuple):
    append: Append
    # Column after column, row after row: the way in which a statement takes them.
    values: list[object]
    blobs: Blobs
    ended: RunEnded | None


class Recorder:
    """Writes groups through one connection.

    `refused` names the runs whose appends are not taken any more, each with the reason; the caller
    owns it and adds what `record` returns.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        owner: str,
        where: str,
        refused: Mapping[str, JournalError],
    ) -> None:
        self._connection = connection
        self._owner = owner
        self._where = where
        self._refused_before = refused
        # Refusals of the group at hand.
        self._refused: dict[Append, JournalError] = {}
        self._refused_runs: dict[str, JournalError] = {}
        # Where each open run stands.
        self._last_seq: dict[str, int] = {}
        self._level = Durability.PROCESS

    def record(self, group: Sequence[Append]) -> dict[Append, JournalError]:
        """Record a group and return the appends that were refused, each with the reason.

        Raises `sqlite3.Error` where the file failed; then nothing of the group is recorded.
        """
        self._refused, self._refused_runs = {}, {}
        self._write(group)
        return self._refused

    def add(self, append: Append) -> None:
        """Insert one append in the transaction that its caller has begun and will end.

        Raises `JournalError` where something in it cannot be recorded.
        """
        encoded = self._encode(append)
        if encoded is None:
            raise self._refused.get(append) or JournalError("there is nothing to append")
        self._insert([encoded])

    def forget(self, run: str) -> None:
        """Drop what is believed of a run that has just been adopted."""
        self._last_seq.pop(run, None)

    def let_go(self) -> None:
        """Give up the runs that this journal drove."""
        self._connection.execute(SQL["let_go"], (self._owner,))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _write(self, group: Sequence[Append]) -> None:
        encoded = [entry for append in group if (entry := self._encode(append))]
        if not encoded:
            return
        self._set_level(max(entry.append.durability for entry in encoded))
        execute = self._connection.execute
        execute(SQL["begin_write"])
        try:
            if not self._all_at_once(encoded):
                # Somebody in this group is stale: find out who, and record the others.
                execute(SQL["rollback"])
                execute(SQL["begin_write"])
                self._one_by_one(encoded)
            execute(SQL["commit"])
        finally:
            if self._connection.in_transaction:
                execute(SQL["rollback"])

    def _encode(self, append: Append) -> _Encoded | None:
        """The rows of an append; None where there are none or it is refused."""
        run, at_s = append.run, append.at_s
        if self._is_refused(append):
            return None
        values: list[object] = []
        blobs: Blobs = []
        ended = None
        try:
            for seq, event in enumerate(append.events, append.seq + 1):
                kind, call, body = encode(event)
                if len(body) > BLOB_CHARS:
                    body, beside = split(event)
                    blobs += beside
                values += (run, seq, at_s, kind, call, body)
                if type(event) is RunEnded:
                    ended = event
        except JournalError as error:
            self._refuse(append, error)
            return None
        return _Encoded(append, values, blobs, ended) if values else None

    def _all_at_once(self, encoded: list[_Encoded]) -> bool:
        """Insert the whole group; false where one of it does not fit, whatever was inserted."""
        last_seq = self._last_seq
        for entry in encoded:
            run, seq = entry.append.run, entry.append.seq
            # A run that begins is not looked up: if it exists, its first number is taken.
            if run not in last_seq:
                last_seq[run] = self._look_up(run) if seq else 0
            if last_seq[run] != seq:
                return False
            last_seq[run] = seq + len(entry.append.events)
        try:
            self._insert(encoded)
        except (sqlite3.IntegrityError, ValueError):
            return False
        return True

    def _one_by_one(self, encoded: list[_Encoded]) -> None:
        """Insert each append that fits and refuse the others, with what follows in their run."""
        execute = self._connection.execute
        self._last_seq.clear()
        for entry in encoded:
            append = entry.append
            if self._is_refused(append):
                continue
            run = append.run
            last = self._last_seq.get(run)
            execute(SQL["savepoint"])
            try:
                if last is None:
                    last = self._look_up(run)
                if last != append.seq:
                    raise StaleWriter(
                        f"run {run!r} stands at {last} events in {self._where}, the append "
                        f"expected {append.seq}: another driver wrote to it first"
                    )
                self._insert([entry])
                self._last_seq[run] = append.seq + len(append.events)
            except (sqlite3.IntegrityError, ValueError, StaleWriter) as error:
                execute(SQL["rollback_to"])
                self._refuse(append, error)
            execute(SQL["release"])

    def _look_up(self, run: str) -> int:
        last: int = self._connection.execute(SQL["last_seq"], (run,)).fetchone()[0]
        return last

    def _insert(self, encoded: list[_Encoded]) -> None:
        connection = self._connection
        values = list(chain.from_iterable([entry.values for entry in encoded]))
        for start in range(0, len(values), ROWS_MAX * _COLUMNS):
            part = values[start : start + ROWS_MAX * _COLUMNS]
            statement, missing = insert_events(len(part) // _COLUMNS)
            connection.execute(statement, part + [None] * (missing * _COLUMNS))
        if opened := [self._run_row(entry.append) for entry in encoded if entry.append.seq == 0]:
            connection.executemany(SQL["insert_run"], opened)
            if labels := [row for entry in encoded for row in _label_rows(entry.append)]:
                connection.executemany(SQL["insert_label"], labels)
        if blobs := [blob for entry in encoded for blob in entry.blobs]:
            connection.executemany(SQL["insert_blob"], blobs)
        for append, _, _, ended in encoded:
            if ended is not None:
                connection.execute(SQL["end_run"], (append.at_s, ended.outcome, append.run))

    def _run_row(self, append: Append) -> tuple[str, float, str, str | None, str | None]:
        first = append.events[0]
        parent_call, after = None, None
        if isinstance(first, RunOpened):
            parent_call, after = first.parent_call, first.after
        return append.run, append.at_s, self._owner, parent_call, after

    def _set_level(self, durability: Durability) -> None:
        """Say how durable the next commit must be; SQLite takes this between transactions only."""
        level = Durability.MACHINE if durability is Durability.MACHINE else Durability.PROCESS
        if level is not self._level:
            name = "survive_machine" if level is Durability.MACHINE else "survive_process"
            self._connection.execute(SQL[name])
            self._level = level

    def _is_refused(self, append: Append) -> bool:
        """Whether the run was refused earlier; then this append is refused for the same reason."""
        run = append.run
        refusal = self._refused_before.get(run) or self._refused_runs.get(run)
        if refusal is None:
            return False
        self._refused[append] = refusal
        return True

    def _refuse(self, append: Append, error: Exception) -> None:
        run = append.run
        if isinstance(error, JournalError):
            refusal = error
        elif isinstance(error, sqlite3.IntegrityError):
            refusal = StaleWriter(f"run {run!r}: it or a call of the append already has its ending")
        else:
            refusal = JournalError(f"run {run!r}: a name in the append is not text: {error}")
        self._refused[append] = refusal
        self._refused_runs[run] = refusal


def _label_rows(append: Append) -> list[tuple[str, str, str]]:
    first = append.events[0]
    if append.seq or not isinstance(first, RunOpened):
        return []
    return [(name, value, append.run) for name, value in first.labels.items()]
