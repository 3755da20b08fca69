"""The shelf: small durable records beside the journal that are no run's history.

A record is a JSON object under a key in a space. It is overwritten in place, so nothing that a run
did belongs here: that is the journal's. Everything is bounded and nothing here knows what a record
means.

Every method of a `Shelf` waits for the file where there is one, for as long as another process
holds it. On an event loop use `away()`, whose methods do the same on a thread of their own.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from endstop.core.text import safe_text
from endstop.errors import CallerError, JournalError

Value = dict[str, Any]
Found = list[tuple[str, Value]]
T = TypeVar("T")

SPACE_CHARS = 64
KEY_CHARS = 512
VALUE_CHARS = 256 * 1024
"""Characters of a record as JSON."""
RECORDS_MAX = 100_000
"""Records in one space; more are refused."""
PAGE = 1_000
"""Records of one `list`, unless it says otherwise."""

TOP = "\U0010ffff"
"""Sorts behind every character of a key, in Python and in SQLite alike."""


class Shelf(Protocol):
    """Small durable records; safe from any thread, and shared by all processes of one file.

    What a method returned from is as durable as a journal's PROCESS. Raises `CallerError` for a
    name or value that is out of bounds or no JSON, `JournalError` where the file fails, where a
    space is full, or where the journal is closed.
    """

    def put(self, space: str, key: str, value: Value) -> None:
        """Write a record, whatever was there before."""

    def get(self, space: str, key: str) -> Value | None:
        """A record, the caller's own copy; None where there is none."""

    def list(self, space: str, prefix: str = "", *, after: str = "", limit: int = PAGE) -> Found:
        """The records whose key begins with `prefix`, by key, behind `after`; `limit` at most."""

    def delete(self, space: str, key: str) -> bool:
        """Remove a record; false where there was none."""

    def swap(self, space: str, key: str, old: Value | None, new: Value | None) -> bool:
        """Compare and set: write `new` if the record is `old`, and say whether it was.

        None is no record, so that `swap(space, key, None, new)` claims a key that is free.
        """


class MemoryShelf:
    """Records that die with their process; bounded like those of a file."""

    def __init__(self, *, records_max: int = RECORDS_MAX) -> None:
        assert records_max >= 1
        self._records_max = records_max
        self._lock = threading.Lock()
        self._spaces: dict[str, dict[str, str]] = {}
        # The keys of each space in order.
        self._keys: dict[str, list[str]] = {}

    def put(self, space: str, key: str, value: Value) -> None:
        """See `Shelf.put`."""
        check_names(space, key)
        text = encode_value(value)
        with self._lock:
            self._write(space, key, text)

    def get(self, space: str, key: str) -> Value | None:
        """See `Shelf.get`."""
        check_names(space, key)
        with self._lock:
            text = self._spaces.get(space, {}).get(key)
        return None if text is None else decode_value(text)

    def list(self, space: str, prefix: str = "", *, after: str = "", limit: int = PAGE) -> Found:
        """See `Shelf.list`."""
        check_range(space, prefix, after, limit)
        with self._lock:
            keys, records = self._keys.get(space, []), self._spaces.get(space, {})
            at = bisect_left(keys, max(prefix, after))
            if after and at < len(keys) and keys[at] == after:
                at += 1
            upto = bisect_left(keys, prefix + TOP)
            texts = [(key, records[key]) for key in keys[at : min(upto, at + limit)]]
        return [(key, decode_value(text)) for key, text in texts]

    def delete(self, space: str, key: str) -> bool:
        """See `Shelf.delete`."""
        check_names(space, key)
        with self._lock:
            return self._remove(space, key)

    def swap(self, space: str, key: str, old: Value | None, new: Value | None) -> bool:
        """See `Shelf.swap`."""
        check_names(space, key)
        before = None if old is None else encode_value(old)
        after = None if new is None else encode_value(new)
        with self._lock:
            if self._spaces.get(space, {}).get(key) != before:
                return False
            if after is not None:
                self._write(space, key, after)
            else:
                self._remove(space, key)
            return True

    def _write(self, space: str, key: str, text: str) -> None:
        records = self._spaces.get(space, {})
        if key not in records:
            check_room(space, len(records), self._records_max)
            insort(self._keys.setdefault(space, []), key)
        self._spaces.setdefault(space, records)[key] = text
        assert len(self._keys[space]) == len(self._spaces[space]), "every record has its key"

    def _remove(self, space: str, key: str) -> bool:
        records = self._spaces.get(space, {})
        if records.pop(key, None) is None:
            return False
        keys = self._keys[space]
        del keys[bisect_left(keys, key)]
        assert len(keys) == len(records), "every record has its key"
        if not records:
            # Names of spaces may come from outside: an empty one costs nothing.
            del self._spaces[space], self._keys[space]
        return True


class Away:
    """The methods of a shelf for an event loop: each waits on one daemon thread, in order.

    A cancelled await stops nothing: what was asked for is still done. Usable from several loops.
    """

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def put(self, space: str, key: str, value: Value) -> None:
        """See `Shelf.put`."""
        await self.call(self.shelf.put, space, key, value)

    async def get(self, space: str, key: str) -> Value | None:
        """See `Shelf.get`."""
        return await self.call(self.shelf.get, space, key)

    async def list(
        self, space: str, prefix: str = "", *, after: str = "", limit: int = PAGE
    ) -> Found:
        """See `Shelf.list`."""
        return await self.call(lambda: self.shelf.list(space, prefix, after=after, limit=limit))

    async def delete(self, space: str, key: str) -> bool:
        """See `Shelf.delete`."""
        return await self.call(self.shelf.delete, space, key)

    async def swap(self, space: str, key: str, old: Value | None, new: Value | None) -> bool:
        """See `Shelf.swap`."""
        return await self.call(self.shelf.swap, space, key, old, new)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run anything that waits for the file on the thread, in its turn."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(value)
            else:
                done.set_exception(error)

        def job() -> None:
            value, error = None, None
            try:
                value = function(*arguments)
            except Exception as raised:  # noqa: BLE001 - whoever awaits must hear it
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, error)

        with self._lock:
            if self._closed:
                raise JournalError("this end of the shelf is closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="endstop shelf", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)
        return await done

    def close(self) -> None:
        """Take no more; what was asked for is still done. Idempotent, waits for nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def away(shelf: Shelf) -> Away:
    """A shelf's methods for an event loop, on one thread of its own; see `Away`."""
    return Away(shelf)


# --- what every shelf checks ----------------------------------------------------------------------


def check_names(space: str, key: str) -> None:
    """Raise CallerError for names that no shelf takes."""
    _check_text("space", space, SPACE_CHARS)
    _check_text("key", key, KEY_CHARS)


def check_range(space: str, prefix: str, after: str, limit: int) -> None:
    """Raise CallerError for a range that no shelf lists."""
    _check_text("space", space, SPACE_CHARS)
    for what, text in (("prefix", prefix), ("after", after)):
        if text:
            _check_text(what, text, KEY_CHARS)
    if type(limit) is not int or not 0 < limit <= RECORDS_MAX:
        raise CallerError(f"shelf: a limit is a number from 1 to {RECORDS_MAX}, not {limit!r:.40}")


def _check_text(what: str, text: object, chars: int) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= chars:
        raise CallerError(f"shelf: a {what} is text of 1 to {chars} characters, not {text!r:.80}")
    if TOP in text or "\0" in text or safe_text(text, chars) != text:
        raise CallerError(f"shelf: the {what} {text!r:.80} has characters that no file keeps")


def check_room(space: str, records: int, records_max: int = RECORDS_MAX) -> None:
    """Raise JournalError where one more record would be one too many."""
    if records >= records_max:
        raise JournalError(
            f"the shelf's space {space!r} holds {records} records; delete some before adding more"
        )


def encode_value(value: Value) -> str:
    """A record as text, the same for equal records. Raises CallerError where that cannot be."""
    if not isinstance(value, dict):
        raise CallerError(f"shelf: a record is a dict, not {type(value).__name__}")
    try:
        text = json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise CallerError(f"shelf: the record is no JSON: {str(error)[:200]}") from error
    if len(text) > VALUE_CHARS:
        raise CallerError(
            f"shelf: the record is {len(text)} characters long; {VALUE_CHARS} at most"
        )
    return text


def decode_value(text: str) -> Value:
    """A record from its text."""
    value = json.loads(text)
    assert isinstance(value, dict), "only such records are written"
    return value
