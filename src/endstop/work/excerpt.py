"""Head and tail of an endless stream of bytes, in flat memory (law 19 any-payload).

Standard library only, and light: every host loads this file. Nothing here may keep more than
twice its limit, and adding costs time in proportion to what is added, however much came before.
"""

from __future__ import annotations

OUTPUT_BYTES = 64 << 10
"""Bytes of one stream that are kept, unless the worker or tool was told otherwise."""


class Excerpt:
    """Keeps the first and the last half of `limit` bytes and counts the rest."""

    __slots__ = ("_half", "_head", "_tail", "total")

    def __init__(self, limit: int = OUTPUT_BYTES) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if len(chunk) >= self._half:
            self._tail = bytearray(chunk[-self._half :])
            return
        self._tail += chunk
        # Trimmed at twice the limit only, so that many small chunks do not each move the tail.
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def omitted(self) -> int:
        """Bytes that are in neither head nor tail."""
        return self.total - len(self._head) - min(len(self._tail), self._half)

    def text(self) -> str:
        """Head and tail as text, with a line between that counts what is missing."""
        tail = self._tail[-self._half :]
        if self.omitted == 0:
            return (self._head + tail).decode(errors="replace")
        gap = f"\n… {self.omitted} bytes omitted …\n"
        return self._head.decode(errors="replace") + gap + tail.decode(errors="replace")

    def last(self, limit: int) -> str:
        """The last bytes as text, for a progress message."""
        end = bytes(self._tail) if self._tail else bytes(self._head)
        return end[-limit:].decode(errors="replace")
