"""The doorbell of a journal: how one process wakes another without anybody polling.

A datagram socket beside the journal, named after the owner that listens on it. A ring carries
nothing: whoever hears it looks into the journal, which alone is believed. Only what must never be
in a file, a secret, comes as a letter, and is worth nothing without the request that names it.
Where no socket can be made (another file system, another platform) nothing is heard, and whoever
waits looks more often.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from endstop.store.owner import exists, parse_owner

_PREFIX, _SUFFIX = ".endstop-", ".bell"
# The shortest limit of any platform for the path of a socket is 104 bytes, with its final zero.
_ADDRESS_BYTES = 100
LETTER_BYTES = 8_192
"""Most of one letter, with the name by which it is asked for."""
LETTERS_MAX = 64
_NAME_BYTES = 32


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
        self._letters: dict[str, str] = {}
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
                while data := key.fileobj.recv(LETTER_BYTES):  # type: ignore[union-attr]
                    self._keep(data)
        return bool(ready)

    def _keep(self, data: bytes) -> None:
        if len(data) <= _NAME_BYTES:
            return
        while len(self._letters) >= LETTERS_MAX:
            # Whoever sent it has given up long ago, or never had a request for it.
            del self._letters[next(iter(self._letters))]
        name = data[:_NAME_BYTES].decode("ascii", "replace")
        self._letters[name] = data[_NAME_BYTES:].decode("utf-8", "replace")

    def letter(self, name: str) -> str | None:
        """The letter with this name, handed out once; None where it has not come."""
        self.wait(0)
        return self._letters.pop(name, None)

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


def send(journal: Path, owner: str, text: str) -> str | None:
    """Send a letter to an owner; returns the name to ask for it by, None where it cannot be sent.

    Nothing of it is in any file.
    """
    name = secrets.token_hex(_NAME_BYTES // 2)
    data = name.encode() + text.encode("utf-8", "replace")
    return name if len(data) <= LETTER_BYTES and ring(journal, owner, data) else None


def ring(journal: Path, owner: str, data: bytes = b"!") -> bool:
    """Ring the bell of an owner; false where nobody listens."""
    if not hasattr(socket, "AF_UNIX"):
        return False
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell,
            _address(_path(journal, owner)) as address,
        ):
            bell.setblocking(False)
            bell.sendto(data, address)
    except BlockingIOError:
        # So many rings wait there that one more would say nothing new; a letter would.
        return len(data) == 1
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
