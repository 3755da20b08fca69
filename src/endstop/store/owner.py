"""Who drives a run: the identity of a process, and whether such a process is still alive.

Nothing here knows a journal. A bare pid is never trusted: it is checked together with the time at
which its process started and the boot that it belongs to (law 2 right-target).
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
from pathlib import Path
from typing import NamedTuple

_UNKNOWN = "-"
# Dead, though the kernel still lists them until their parent asks.
_ENDED_STATES = frozenset("ZXx")
_numbers = itertools.count(1)


class Owner(NamedTuple):
    """One driver: `number` tells the journals of one process apart."""

    host: str
    boot: str
    pid: int
    started: str
    number: int

    def __str__(self) -> str:
        return f"{self.host}:{self.boot}:{self.pid}:{self.started}:{self.number}"


def this_owner() -> Owner:
    """A new identity for a driver in this process; each call gives another one."""
    pid = os.getpid()
    return Owner(
        host=_host(),
        boot=_boot(),
        pid=pid,
        started=_started(pid) or _UNKNOWN,
        number=next(_numbers),
    )


def parse_owner(text: str) -> Owner | None:
    """The owner that was written as this text, or None where it is not one."""
    parts = text.split(":")
    if len(parts) != 5 or not (parts[2].isdecimal() and parts[4].isdecimal()):
        return None
    return Owner(parts[0], parts[1], int(parts[2]), parts[3], int(parts[4]))


def is_alive(text: str) -> bool:
    """Whether the process that this owner names still exists.

    Where that cannot be known (another host, a text of another version) the answer is yes: a run
    must never be driven twice, and whoever knows better can adopt it by hand.
    """
    owner = parse_owner(text)
    if owner is None or owner.host != _host():
        return True
    if owner.boot != _boot():
        return _UNKNOWN in (owner.boot, _boot())
    started = _started(owner.pid)
    if started is None:
        return False
    return _UNKNOWN in (owner.started, started) or owner.started == started


def in_words(text: str) -> str:
    """Who this owner is, and whether it can be known from here if it lives; for error messages."""
    owner = parse_owner(text)
    if owner is None:
        return "an unknown program, perhaps of another version; whether it lives cannot be told"
    if owner.host == _host():
        return f"pid {owner.pid} on this machine"
    return (
        f"pid {owner.pid} on host {owner.host!r}; whether it lives cannot be told from "
        f"{_host()!r}, so it counts as alive"
    )


def exists(pid: int) -> bool:
    """Whether a process of this machine has this number now, whichever that is."""
    return _started(pid) is not None


def _host() -> str:
    return socket.gethostname().replace(":", "_")


def _boot() -> str:
    """This boot of the machine; only Linux names it in a way that no change of the clock alters."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return _UNKNOWN


if sys.platform == "linux":

    def _started(pid: int) -> str | None:
        """When a process started, in ticks since boot; None where there is no such process."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError:
            return _UNKNOWN
        # The name of the program comes second, in brackets, and may itself hold brackets.
        fields = stat.rpartition(")")[2].split()
        state, started = fields[0], fields[19]
        return None if state in _ENDED_STATES else started

else:

    def _started(pid: int) -> str | None:
        """When a process started, in seconds; None where there is no such process."""
        import psutil

        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return f"{process.create_time():.3f}"
        except psutil.NoSuchProcess:
            return None
        except psutil.AccessDenied:
            return _UNKNOWN
