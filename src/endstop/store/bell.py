"""The doorbell of a journal: how one process wakes another without anybody polling.

A datagram socket beside the journal, named after the owner that listens on it. A ring carries
nothing: whoever hears it looks into the journal, which alone is believed. Where no socket can be
made (another file system, another platform) nothing is heard, and whoever waits looks more often.
"""

from __future__ import annotations

import errno
import hashlib
import os
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from endstop.store.owner import exists, parse_owner

_PREFIX, _SUFFIX = ".endstop-", ".bell"
# The shortest limit of any platform for the path of a socket is 104 bytes, with its final zero.
_ADDRESS_BYTES = 100


class Bell:
    """What one owner listens on; `heard` is false where others cannot ring it."""

    def __init__(self, journal: Path, owner: str) -> None:
        self._journal = journal
        self._owner = owner
        self._inside, self._wake = socket.socketpair()
        self._outside = _listen(journal, owner)
        self._selector = selectors.DefaultSelector()
        for one in (self._inside, self._outside):
            if one is not None:
                one.setblocking(False)
                self._selector.register(one, selectors.EVENT_READ)
        self._wake.setblocking(False)
        self._closed = False

    @property
    def heard(self) -> bool:
        """Whether other processes can ring."""
        return self._outside is not None

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until somebody rings, at most `timeout_s`; many rings are one."""
        try:
            ready = self._selector.select(timeout_s)
        except (OSError, ValueError):
            if self._closed:
                return False
            raise
        for key, _ in ready:
            with suppress(OSError):
                while key.fileobj.recv(64):  # type: ignore[union-attr]
                    continue
        return bool(ready)

    def ring(self) -> None:
        """Wake whoever waits in this process; from any thread."""
        with suppress(BlockingIOError, OSError):
            self._wake.send(b"!")

    def close(self) -> None:
        """Listen no more. Idempotent; whoever waits should be rung first."""
        if self._closed:
            return
        self._closed = True
        self._selector.close()
        self._inside.close()
        self._wake.close()
        if self._outside is not None:
            self._outside.close()
            with suppress(OSError):
                _path(self._journal, self._owner).unlink()


def ring(journal: Path, owner: str) -> bool:
    """Ring the bell of an owner; false where nobody listens."""
    if not hasattr(socket, "AF_UNIX"):
        return False
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell,
            _address(_path(journal, owner)) as address,
        ):
            bell.setblocking(False)
            bell.sendto(b"!", address)
    except BlockingIOError:
        # So many rings wait there that one more would say nothing new.
        return True
    except OSError:
        return False
    return True


def _listen(journal: Path, owner: str) -> socket.socket | None:
    if not hasattr(socket, "AF_UNIX"):
        return None
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        with _address(_path(journal, owner)) as address:
            bell.bind(address)
    except OSError:
        bell.close()
        return None
    _sweep(journal)
    return bell


def _path(journal: Path, owner: str) -> Path:
    """Where an owner's bell is: short, and the same for everybody who knows the owner."""
    known = parse_owner(owner)
    digest = hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    pid = known.pid if known is not None else 0
    return Path(os.path.realpath(journal)).parent / f"{_PREFIX}{pid}-{digest}{_SUFFIX}"


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """A name for a socket's path that the system takes, however deep the folder is."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _sweep(journal: Path) -> None:
    """Remove the bells of processes that were killed: their socket answers no more."""
    for path in Path(os.path.realpath(journal)).parent.glob(f"{_PREFIX}*{_SUFFIX}"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        # Both must say so: a process may live in another container, and one just born may not
        # listen yet.
        if pid.isdecimal() and not exists(int(pid)) and _refuses(path):
            with suppress(OSError):
                path.unlink()


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell, _address(path) as address:
        try:
            bell.connect(address)
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False
