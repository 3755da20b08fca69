"""The log of requests: one line each, in words for whoever runs the server.

Who, what, and how it ended. Never a token, a message, an argument or a path of ours.
"""

from __future__ import annotations

import logging
import re
from time import monotonic

log = logging.getLogger("endstop.server.requests")

_SAFE = re.compile(r"[\w.:~-]{1,64}")


class Seen:
    """What is seen of one request."""

    __slots__ = (
        "at",
        "error",
        "frames",
        "left",
        "operation",
        "owner",
        "refused",
        "status",
        "stream",
        "task",
    )

    def __init__(self, operation: str) -> None:
        self.at = monotonic()
        self.operation = shown(operation)
        self.task = ""
        self.owner = ""
        # What HTTP or gRPC calls it; nothing where all went well, or where nothing was said.
        self.status = ""
        self.stream = False
        self.frames = 0
        self.refused = ""
        self.error: int | None = None
        self.left = ""


def shown(text: object) -> str:
    """A client's text as it may stand in a log: bounded, printable, on one line."""
    words = str(text)[:100]
    return words if words.isprintable() else repr(words)


def task_id(value: object) -> str:
    """An id that a client names, if it looks like one."""
    return value if isinstance(value, str) and _SAFE.fullmatch(value) else ""


def tell(seen: Seen) -> None:
    """Write the line of a request that is over."""
    if not log.isEnabledFor(logging.INFO):
        return
    words = [seen.owner or "somebody", seen.operation]
    if seen.task:
        words.append(seen.task)
    took_s = monotonic() - seen.at
    took = f"{took_s:.1f} s" if took_s >= 1 else f"{took_s * 1000:.0f} ms"
    if seen.refused:
        end = f"refused with {seen.status}: {seen.refused}"
    elif seen.error is not None:
        end = f"answered with error {seen.error} in {took}"
    elif seen.stream:
        end = f"streamed {seen.frames} frames in {took}"
        end += f", then failed with {seen.status}" if seen.status else ""
    elif seen.status:
        end = f"failed with {seen.status} in {took}"
    else:
        end = f"answered in {took}"
    if seen.left:
        end = f"{end}; {seen.left}"
    log.info("%s: %s", " ".join(words), end)
