"""The wire between the runtime and a host: JSON frames with a length in front.

Standard library only, and light: every host loads this file. Nothing crosses but data, never a
pickle, and nothing unbounded: a frame above the limit is refused by its sender and, should it come
all the same, breaks the connection before a byte of it is kept.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

FRAME_BYTES = 16 << 20
"""Largest frame, in bytes, unless the worker was told otherwise."""

_LENGTH = struct.Struct(">I")


class FrameTooLong(ValueError):
    """A frame is larger than the wire takes; the message says by how much."""


class WireBroken(Exception):
    """The other side sent what is not a frame; nothing after it can be read."""


def pack(frame: dict[str, Any], limit: int = FRAME_BYTES) -> bytes:
    """One frame as bytes. Raises `FrameTooLong`, and ValueError for what JSON cannot express."""
    body = json.dumps(frame, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > limit:
        raise FrameTooLong(f"takes {len(body)} bytes as JSON, where at most {limit} are carried")
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Turns the bytes of one connection back into frames."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The frames that are complete now. Raises `WireBroken`."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self._limit:
                raise WireBroken(f"a frame of {length} bytes, where at most {self._limit} may come")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _parse(body)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireBroken(f"a frame that is not JSON: {error}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("t"), str):
        raise WireBroken("a frame without a type")
    return frame
