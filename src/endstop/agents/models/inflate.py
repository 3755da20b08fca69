"""Models: compressed answers, inflated in small pieces.

Nobody asks for compression here, but proxies do as they like. A few bytes can stand for gigabytes,
so nothing is inflated in one go: the caller counts the pieces and stops when it is too much.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE = 64 * 1024
"""Bytes of the largest piece that comes out at once."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class CannotInflate(Exception):
    """The compression is unknown or broken; the message continues "the answer …"."""


class Inflater:
    """Inflates one body, by the name of its content coding. Raises `CannotInflate`."""

    def __init__(self, coding: str) -> None:
        names = [name for one in coding.lower().split(",") if (name := one.strip())]
        unknown = [name for name in names if name not in ("identity", "gzip", "x-gzip", "deflate")]
        real = [name for name in names if name != "identity"]
        if unknown or len(real) > 1:
            raise CannotInflate(f"is compressed as {coding[:60]!r}")
        self._plain = not real
        self._zlib = None if self._plain else zlib.decompressobj(_GZIP_OR_ZLIB)

    @property
    def whole(self) -> bool:
        """Whether what has been read so far may be all."""
        return self._zlib is None or self._zlib.eof

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The pieces that `chunk` brings, none larger than `PIECE` where it was compressed."""
        if self._zlib is None:
            yield chunk
            return
        rest, full = chunk, False
        # A piece that came out full may have left more inside.
        while (rest or full) and not self._zlib.eof:
            try:
                piece = self._zlib.decompress(rest, PIECE)
            except zlib.error as error:
                raise CannotInflate(f"is not what its compression promises ({error})") from None
            rest, full = self._zlib.unconsumed_tail, len(piece) == PIECE
            if piece:
                yield piece
