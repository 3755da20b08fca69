"""The bounds of a server: how large, how slow, how many; and what is refused for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from endstop.a2a.limits import check_above_zero
from endstop.errors import EndstopError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one client may take of a server; sizes in bytes, times in seconds.

    `header_bytes` and `body_bytes` bound a request, `header_s` and `body_s` how long it may take to
    arrive, `values` how many JSON values it may hold: taking them apart holds up everybody else.
    `send_s` is how long a client may take nothing at all of what is sent to it, before its
    connection is closed; its task goes on. `idle_s` is how long a connection without a request
    stays open. `connections` and `streams` are how many there may be at once.
    Raises CallerError for what is not above 0.
    """

    header_bytes: int = 32 * 1024
    body_bytes: int = 8 * 1024 * 1024
    values: int = 50_000
    header_s: float = 10.0
    body_s: float = 30.0
    send_s: float = 60.0
    idle_s: float = 15.0
    connections: int = 4_000
    streams: int = 2_000

    def __post_init__(self) -> None:
        check_above_zero(self)


class CannotServe(EndstopError):
    """A server cannot be where it was asked to be."""


class Refused(Exception):
    """A request is refused: an HTTP status, and words for the client."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def holds_too_much(body: bytes, content: Any, values: int) -> bool:
    """Whether a JSON document, given as text and parsed, holds more values than this.

    A text of many commas is one value: only a document that may hold too much is looked through.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") < values:
        return False
    left, count = [content], 0
    while left and count <= values:
        one = left.pop()
        count += 1
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return count + len(left) > values


def is_no_text(body: bytes, content: Any) -> bool:
    """Whether a JSON document, given as text and parsed, holds text that no answer can hold.

    Half of a pair of surrogates is JSON and no Unicode; it is only there where it was escaped.
    """
    if b"\\ud" not in body and b"\\uD" not in body:
        return False
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


class Slots:
    """Counts what is open at once; all on one event loop."""

    __slots__ = ("limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def check(self) -> None:
        """Raise Refused where there is no room for another."""
        if self.taken >= self.limit:
            raise Refused(503, f"there are {self.limit} streams already; try again later")

    def take(self) -> None:
        """One more is open."""
        self.taken += 1

    def free(self) -> None:
        """One is closed."""
        self.taken -= 1
        assert self.taken >= 0, "what was taken is freed once"
