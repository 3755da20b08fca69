"""The journal in a SQLite file: opening, reading and adopting. `writer.py` does the writing.

Several processes may use one file. Appending never blocks on it; reading waits until what this
process appended before is recorded. Nothing here decides what is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from endstop.core.events import Event
from endstop.errors import JournalError
from endstop.store.bell import ring
from endstop.store.codec import decode
from endstop.store.growth import SqliteGrowth
from endstop.store.inbox import Inbox, Request, read_request
from endstop.store.opening import connect, open_for_reading, open_for_writing
from endstop.store.owner import in_words, is_alive, this_owner
from endstop.store.protocol import Durability, Recorded, Ticket
from endstop.store.sql import SQL
from endstop.store.sqlite_shelf import SqliteShelf
from endstop.store.taking import Decide, take_over
from endstop.store.writer import Writer

BUSY_S = 10.0
"""How long to wait for another process that holds the file."""
DRAIN_S = 30.0
"""How long a read or `close` waits for what is queued."""
EXIT_S = 5.0
"""How long the exit of the program waits for a journal that nobody closed."""
PAGE_ROWS = 500

_EventRow = tuple[int, float, str, str | None, str]


class RunRow(NamedTuple):
    """One run in a listing: wall times in seconds, and who drives it, as `owner.py` writes it."""

    run: str
    opened_at: float
    ended_at: float | None
    outcome: str | None
    owner: str | None


class SqliteJournal:
    """An ordered record of runs in one file, shared by threads and processes.

    An append is queued and returns at once; one thread records what is queued in groups. BUFFERED
    appends return None, others a ticket that is done when the group is committed (PROCESS) or also
    flushed to stable storage (MACHINE). Nothing is ever dropped: above 50,000 queued events a
    BUFFERED append returns a ticket too, so that a caller who waits for tickets slows down, and
    above a million an append is refused with `JournalError`.

    Where an append was refused, every later one of its run is refused, too, until `adopt`; where
    the file failed, every later append raises `JournalError`. An error that no ticket could tell
    is raised by the next append of that run, or else by `close`.

    With `readonly` the file must exist and only reading works. Raises `JournalError` where the
    file cannot be used, saying why.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, readonly: bool = False, busy_s: float = BUSY_S
    ) -> None:
        self._path = Path(path).absolute()
        self._busy_s = busy_s
        self._pid = os.getpid()
        self._owner = str(this_owner())
        self._closed = False
        self._reading = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._inbox = Inbox(self._path, self._owner, busy_s)
        self._shelf = SqliteShelf(self._path, busy_s)
        if readonly:
            self._reader = open_for_reading(self._path, busy_s)
        else:
            connection = open_for_writing(self._path, busy_s)
            self._writer = Writer(connection, str(self._path), self._owner)
            weakref.finalize(self, _close_forgotten, self._writer, self._inbox, self._pid)

    # --- the journal ------------------------------------------------------------------------------

    def append(
        self, run: str, expected_seq: int, events: Sequence[Event], durability: Durability
    ) -> Ticket | None:
        """Queue events after number `expected_seq` of a run; None where nobody need wait.

        Raises `StaleWriter` where an earlier append of the run was refused, and `JournalError`
        where the journal has failed or is closed; a refusal of this append comes by the ticket.
        """
        return self._writing().put(run, expected_seq, events, durability)

    def read(self, run: str, after_seq: int = 0) -> Iterator[Recorded]:
        """The events of a run in order, from the one after `after_seq`.

        Waits first until all that this process appended is recorded or refused, which a ticket's
        callback cannot do. Raises `JournalError` where the file cannot be read or was
        written by a newer endstop.
        """
        self._drain()
        return self._pages(run, self._page(run, after_seq))

    def runs(self) -> list[str]:
        """The ids of all runs, oldest first."""
        self._drain()
        return [run for (run,) in self._query("list_runs", ())]

    def describe(self) -> list[RunRow]:
        """What is known of every run without reading its events, oldest first."""
        self._drain()
        return [RunRow(*row) for row in self._query("describe_runs", ())]

    def labelled(self, labels: Mapping[str, str]) -> list[str]:
        """The runs that were opened with all of these labels, newest first."""
        self._drain()
        if not labels:
            return [run for (run,) in self._query("newest_runs", ())]
        if not self._query("has_labels", ()):
            # Written by an older version, and opened for reading only.
            return []
        # Asked by the rarest label: the others are looked up run by run.
        name, value = min(
            labels.items(), key=lambda label: self._query("count_labelled", label)[0][0]
        )
        others = json.dumps({other: labels[other] for other in labels if other != name})
        return [run for (run,) in self._query("list_labelled", (name, value, others))]

    def last_at(self, run: str) -> float | None:
        """The wall time of the last event of a run; None for an unknown one."""
        self._drain()
        rows = self._query("last_at", (run,))
        return rows[0][0] if rows else None

    def children(self, run: str) -> list[str]:
        """The runs that work for a call of this run, oldest first."""
        self._drain()
        return [child for (child,) in self._query("list_children", (f"{run}/",) * 2)]

    def orphans(self) -> list[str]:
        """Runs without an ending whose driver is not alive any more (law 16 survives-restart)."""
        self._drain()
        alive: dict[str | None, bool] = {None: False, self._owner: True}
        orphans = []
        for run, owner in self._query("list_open", ()):
            if owner not in alive:
                alive[owner] = is_alive(owner)
            if not alive[owner]:
                orphans.append(run)
        return orphans

    def adopt(self, run: str, *, force: bool = False) -> bool:
        """Become the driver of an orphan; false if somebody else was faster.

        `force` takes the run also from an owner that may be alive, such as one on another host
        that is known to be gone; a driver that lives on all the same fails on its next append.
        """
        writer = self._writing()
        self._drain()
        try:
            with closing(connect(self._path, "rw", self._busy_s)) as connection:
                connection.execute(SQL["survive_machine"])
                connection.execute(SQL["begin_write"])
                found = connection.execute(SQL["get_owner"], (run,)).fetchone()
                owner = found[0] if found else None
                free = found and (force or owner is None or not is_alive(owner))
                if not free or owner == self._owner:
                    return False
                changed = connection.execute(SQL["adopt_run"], (self._owner, run, owner)).rowcount
                if force:
                    connection.execute(SQL["count_taken"])
                connection.execute(SQL["commit"])
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: run {run!r} cannot be adopted: {error}") from error
        assert changed == 1, "the row was read in the same transaction"
        writer.forget(run)
        if force and owner is not None:
            ring(self._path, owner)
        return True

    def driver(self, run: str) -> str | None:
        """Who drives a run, in words; None where nobody does, or there is no such run."""
        rows = self._query("get_owner", (run,))
        return in_words(rows[0][0]) if rows and rows[0][0] is not None else None

    def take_over(self, run: str, decide: Decide, *, force: bool = False) -> list[Event] | None:
        """Take a run from its driver and record what follows from that, in one step.

        `decide` is given what is recorded and says what to append; it must not use the journal. By
        that the old driver is fenced off: whatever it appends later is refused. Where there is
        nothing to append, nothing is taken. Without `force` only from a driver that is gone.
        Returns what was appended; None where the driver lives or the run is over. Raises NotFound
        for an unknown run.
        """
        writer = self._writing()
        self._drain()
        events = take_over(self._path, self._owner, self._busy_s, run, decide, force=force)
        writer.forget(run)
        return events

    # --- the inbox --------------------------------------------------------------------------------

    def inbox(self) -> Inbox:
        """What other processes ask of this owner, and what it asks of others."""
        self._writing()
        self._check_open()
        return self._inbox

    def shelf(self) -> SqliteShelf:
        """Small durable records beside the runs; its methods wait for the file, see `Shelf`."""
        self._writing()
        self._check_open()
        return self._shelf

    def growth(self, told: Callable[[], object]) -> SqliteGrowth:
        """What tells which runs have grown, by whomever; it has to be asked, `told` is not called.

        Close it when it is no longer needed; it may outlive this journal.
        """
        return SqliteGrowth(self._path, self._busy_s)

    def requests(self, run: str) -> list[Request]:
        """The requests to the driver of a run that nobody has answered yet, oldest first."""
        self._check_open()
        if not self._query("has_requests", ()):
            # Written by an older version, and opened for reading only.
            return []
        rows = self._query("list_requests", (run,))
        return [read_request(row) for row in rows]

    def release(self, run: str) -> None:
        """Let go of one run that this journal drives: whoever comes may adopt it.

        Waits until all that was appended is recorded. A no-op for a run that is not driven here.
        """
        self._writing()
        self._drain()
        try:
            with closing(connect(self._path, "rw", self._busy_s)) as connection:
                # After the death of the machine its owner is gone in any case.
                connection.execute(SQL["survive_process"])
                connection.execute(SQL["release_run"], (run, self._owner))
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: run {run!r} cannot be let go: {error}") from error

    def flush(self) -> None:
        """Wait until everything appended so far is recorded or refused."""
        self._writing().flush(DRAIN_S)

    def close(self) -> None:
        """Record what is queued, let go of the runs that have not ended, and of the file.

        Idempotent; waits at most 30 s. Raises `JournalError` where appends were lost that no
        ticket told of.
        """
        self._check_process()
        self._closed = True
        self._inbox.close()
        self._shelf.close()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        if self._writer is not None:
            self._writer.close(DRAIN_S)

    # --- reading ----------------------------------------------------------------------------------

    def _pages(self, run: str, page: list[_EventRow]) -> Iterator[Recorded]:
        while page:
            for seq, at_s, kind, call, body in page:
                event = decode(run, kind, call, body, self._blob)
                yield Recorded(run=run, seq=seq, at_s=at_s, event=event)
            page = self._page(run, page[-1][0]) if len(page) == PAGE_ROWS else []

    def _page(self, run: str, after_seq: int) -> list[_EventRow]:
        return self._query("read_events", (run, after_seq, PAGE_ROWS))

    def _blob(self, digest: str) -> str:
        rows = self._query("read_blob", (digest,))
        if not rows:
            raise JournalError(f"{self._path}: the large result {digest} is missing")
        text: str = rows[0][0]
        if digest != "sha256:" + hashlib.sha256(text.encode()).hexdigest():
            raise JournalError(f"{self._path}: the large result {digest} is damaged")
        return text

    def _query(self, name: str, values: tuple[object, ...]) -> list[Any]:
        self._check_open()
        with self._reading:
            try:
                if self._reader is None:
                    self._reader = open_for_reading(self._path, self._busy_s)
                return self._reader.execute(SQL[name], values).fetchall()
            except sqlite3.Error as error:
                raise JournalError(f"{self._path} cannot be read: {error}") from error

    # --- checks -----------------------------------------------------------------------------------

    def _writing(self) -> Writer:
        self._check_process()
        if self._writer is None:
            raise JournalError(f"{self._path} was opened for reading only")
        return self._writer

    def _drain(self) -> None:
        self._check_open()
        if self._writer is not None:
            self._writer.flush(DRAIN_S)

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise JournalError(f"{self._path} is closed; open it again")

    def _check_process(self) -> None:
        # The writer's thread and SQLite's locks belong to the process that opened the file.
        if os.getpid() != self._pid:
            raise JournalError(
                f"{self._path} was opened by process {self._pid} before a fork; open it again here"
            )


def _close_forgotten(writer: Writer, inbox: Inbox, pid: int) -> None:
    """Runs when nobody holds the journal any more, at the latest when the program exits."""
    if os.getpid() == pid:
        inbox.close()
        with suppress(JournalError):
            writer.close(EXIT_S)
