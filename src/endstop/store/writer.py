"""The one writer of a SQLite journal: a thread that records what is queued, a group at a time.

Theory of operation. `put` queues an append and returns; the thread takes everything that is queued,
encodes it, records it in one transaction, then resolves the tickets in the order of the queue.
While a transaction is under way the next group gathers, so a busy journal commits few large groups.
Buffered appends alone wait up to `LINGER_S` for company; anything that somebody waits for is
written at once.

A refused append (stale number, second ending) takes only itself back, and every later append of
its run is refused with it: what the driver believes about that run is no longer true. A failure of
the file is final for the whole journal: each waiting ticket gets it, later appends raise it.

Nothing here decides what is recorded, and no callback runs under the lock.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic

from endstop.core.events import Event
from endstop.errors import JournalError
from endstop.store.protocol import Durability
from endstop.store.recorder import Append, Recorder

LINGER_S = 0.01
"""How long buffered appends wait for company."""
GROUP_MAX = 4096
"""Most appends in one transaction, so that those in front need not wait for an endless queue."""
HIGH_WATER = 50_000
"""Queued events above which a buffered append, too, returns a ticket: who waits, slows down."""
QUEUE_MAX = 1_000_000
"""Queued events above which an append is refused; only a caller that ignores tickets gets here."""

_log = logging.getLogger("endstop.store")


def _again(error: JournalError) -> JournalError:
    """A copy to raise: one object raised many times would collect every traceback."""
    return type(error)(*error.args)


def _identity(path: str) -> tuple[int, int] | None:
    """Which file lies at a path; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Writer:
    """Owns the writing connection; `lock` guards everything that both sides touch."""

    def __init__(self, connection: sqlite3.Connection, where: str, owner: str) -> None:
        self.lock = threading.Lock()
        self._wake = threading.Condition(self.lock)
        self._where = where
        self._file = _identity(where)
        self._queue: deque[Append] = deque()
        self._queued_events = 0
        self._thread: threading.Thread | None = None
        self._urgent = False
        self._idle = False
        self._released = False
        self._closing = False
        self._failure: JournalError | None = None
        self._unreported: JournalError | None = None
        # Runs that this journal was refused in, each with the refusal that its later appends get.
        self._refused: dict[str, JournalError] = {}
        self._recorder = Recorder(connection, owner=owner, where=where, refused=self._refused)

    # --- the callers' side ------------------------------------------------------------------------

    def put(
        self, run: str, seq: int, events: Sequence[Event], durability: Durability
    ) -> Append | None:
        """Queue an append; None where nobody needs to wait for it. Never blocks on the file."""
        append = Append(self.lock, run, seq, events, durability)
        with self.lock:
            self._check(run)
            if self._thread is None:
                self._start()
            self._queue.append(append)
            self._queued_events += len(events)
            if self._queued_events > HIGH_WATER:
                append.durability = max(durability, Durability.PROCESS)
            wait = append.durability > Durability.BUFFERED
            self._urgent |= wait
            if wait or self._idle:
                self._idle = False
                self._wake.notify()
        return append if wait else None

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"endstop journal {self._where}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise JournalError(f"{self._where}: its writer cannot be started: {error}") from error
        self._thread = thread

    def _check(self, run: str) -> None:
        """Raise what an append to this run must meet at once."""
        refusal = self._failure or self._refused.get(run)
        if refusal is not None:
            if self._unreported is refusal:
                self._unreported = None
            raise _again(refusal)
        if self._closing:
            raise JournalError(f"{self._where} is closed; open it again to write")
        if self._queued_events > QUEUE_MAX:
            raise JournalError(
                f"{self._where}: {self._queued_events} events wait to be written; wait for the "
                "tickets of earlier appends"
            )

    def flush(self, timeout_s: float) -> None:
        """Wait until everything queued so far is recorded or refused, and its tickets are done.

        Raises `JournalError` when that takes longer than `timeout_s`, and at once in a callback of
        a ticket, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise JournalError(f"{self._where}: a ticket's callback cannot wait for the writer")
        reached = threading.Event()
        with self.lock:
            if not self._queue and not self._queued_events:
                return
            barrier = Append(self.lock, "", 0, (), Durability.PROCESS)
            barrier.callbacks.append(lambda _: reached.set())
            self._queue.append(barrier)
            self._urgent = True
            self._wake.notify()
        if not reached.wait(timeout_s):
            raise JournalError(f"{self._where}: the writer did not get through in {timeout_s} s")

    def forget(self, run: str) -> None:
        """Drop what is believed of a run that has just been adopted: its refusal, its number."""
        with self.lock:
            self._refused.pop(run, None)
            self._recorder.forget(run)

    def close(self, timeout_s: float) -> None:
        """Record what is queued, let go of the runs and of the file. Idempotent.

        Raises `JournalError` where appends were lost that no ticket told of, or where the writer
        is not through in time; the thread then goes on, and the file stays open until it is.
        """
        with self.lock:
            self._closing = True
            thread = self._thread
            self._wake.notify()
        if thread is None:
            self._let_go()
        elif thread is not threading.current_thread():
            thread.join(timeout_s)
            if thread.is_alive():
                raise JournalError(f"{self._where}: still being written after {timeout_s} s")
        with self.lock:
            lost, self._unreported = self._unreported, None
        if lost is not None:
            raise _again(lost)

    # --- the thread's side ------------------------------------------------------------------------

    def _work(self) -> None:
        while (group := self._take()) is not None:
            refused: dict[Append, JournalError] = {}
            if self._failure is None:
                try:
                    self._check_file()
                    refused = self._recorder.record(group)
                except Exception as error:  # noqa: BLE001 - the tickets must hear it
                    self._fail(error)
            self._resolve(group, refused)
        self._let_go()

    def _check_file(self) -> None:
        """Notice a file that was deleted or replaced: SQLite would go on writing to what is gone,
        and everything that it then calls recorded would be lost (law 15 record-first).
        """
        if _identity(self._where) != self._file:
            raise OSError("the file was deleted or replaced while it was open")

    def _take(self) -> list[Append] | None:
        """The next group; None once the journal is closed and everything is written."""
        with self.lock:
            while not self._queue and not self._closing:
                self._idle = True
                self._wake.wait()
            self._idle = False
            until = monotonic() + LINGER_S
            while not (self._urgent or self._closing) and (left := until - monotonic()) > 0:
                self._wake.wait(left)
            if not self._queue:
                return None
            queue = self._queue
            group = [queue.popleft() for _ in range(min(len(queue), GROUP_MAX))]
            self._urgent = bool(queue)
            return group

    def _fail(self, error: Exception) -> None:
        failure = JournalError(f"{self._where} cannot be written any more: {error}")
        failure.__cause__ = error
        with self.lock:
            self._failure = failure

    def _resolve(self, group: list[Append], refused: dict[Append, JournalError]) -> None:
        """Decide every ticket of a group, in order, each outside the lock."""
        failure = self._failure
        if refused:
            with self.lock:
                self._refused.update({append.run: error for append, error in refused.items()})
        for append in group:
            error = failure or refused.get(append)
            with self.lock:
                append.error = error
                append.done = True
                callbacks, append.callbacks = append.callbacks, []
                self._queued_events -= len(append.events)
                if error is not None and append.durability is Durability.BUFFERED:
                    self._unreported = self._unreported or error
            for callback in callbacks:
                try:
                    callback(error)
                except Exception:  # noqa: BLE001 - foreign code; others wait
                    _log.exception("a callback of a journal ticket raised")

    def _let_go(self) -> None:
        """Give up the runs that this journal drove, and the file."""
        with self.lock:
            if self._released:
                return
            self._released = True
        try:
            if self._failure is None:
                self._recorder.let_go()
        except sqlite3.Error as error:
            # Whoever asks later finds this process dead and adopts all the same.
            _log.warning("%s: its runs were not let go: %s", self._where, error)
        finally:
            self._recorder.close()
