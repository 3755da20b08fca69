"""Models: an incremental reader of server-sent events.

Bytes go in as they arrive, however they are chunked; whole events come out. It knows nothing of
what an event means, and it holds a bounded amount however long a line or an event grows.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of one line, and of the data of one event, unless the caller says otherwise."""

_BOM = b"\xef\xbb\xbf"


class TooLong(Exception):
    """A line or an event is longer than allowed; the message says which and how long it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: its `event` field ("" where it has none) and its lines of data, joined."""

    name: str = ""
    data: str = ""


class Events:
    """Reads one stream of events. Raises `TooLong`, and nothing else, whatever comes in."""

    def __init__(self, *, limit: int = LINE_LIMIT) -> None:
        assert limit > 0, "an event has to fit"
        self._limit = limit
        self._line = bytearray()
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._started = False
        # A line that ended in CR at the end of a chunk may turn out to have ended in CR LF.
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are whole now that `chunk` has arrived, in order."""
        found: list[Event] = []
        if not chunk:
            return found
        ended_in_cr = chunk.endswith(b"\r")
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if len(self._line) + len(line) > self._limit:
                raise TooLong(f"a line of the stream is longer than {self._limit} bytes")
            self._line += line
            if len(line) == len(piece):
                break
            event = self._end_line()
            if event is not None:
                found.append(event)
        self._after_cr = ended_in_cr
        return found

    def end(self) -> Event | None:
        """What the stream broke off in the middle of, if anything; it may be any part of an event.

        By the rules of server-sent events it counts for nothing. It is of use only to see whether
        a mark that says all by itself came without the blank line after it.
        """
        if self._line:
            self._end_line()
        return self._end_event()

    def _end_line(self) -> Event | None:
        line = bytes(self._line)
        self._line.clear()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._size += len(value) + 1
                if self._size > self._limit + 1:
                    raise TooLong(f"an event of the stream is longer than {self._limit} bytes")
                self._data.append(value)
            case b"event":
                self._name = value.decode(errors="replace")
            case _:
                # Comments, ids and reconnection times; nobody reconnects to a model's reply.
                pass
        return None

    def _end_event(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data, self._size = "", [], 0
        if not data:
            return None
        return Event(name=name, data=b"\n".join(data).decode(errors="replace"))
