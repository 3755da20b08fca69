"""The command line's output: standard output belongs to the answer, and to nothing else.

Tools print, and so do the programs that they start; whatever goes to standard output while they
run is sent to standard error, so that what a reader gets is exactly the document.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
import sys
from types import TracebackType
from typing import Self

GONE = (errno.EPIPE, errno.EIO)
"""Errors of a write whose reader has gone: a pipe that is closed, a terminal that hung up."""


class Answer:
    """Keeps standard output for one document while it is entered."""

    def __init__(self) -> None:
        self._kept = -1
        self.failed = False

    def __enter__(self) -> Self:
        sys.stdout.flush()
        self._kept = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._kept >= 0:
            os.close(self._kept)
            self._kept = -1

    def write(self, text: str) -> None:
        """Write the document. A reader that has gone away is not an error of ours.

        Anything else, such as a full disk, is said, and kept in `failed`: the calls have run.
        """
        data = text.encode("utf-8", errors="backslashreplace")
        while data and self._kept >= 0:
            try:
                data = data[os.write(self._kept, data) :]
            except OSError as error:
                if error.errno not in GONE:
                    complain(f"the answer cannot be written: {(error.strerror or '?').lower()}")
                    self.failed = True
                return


def line(text: str) -> None:
    """One line on standard error, whoever still reads it (law 18 audience-free)."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in GONE:
            raise
        nobody_reads(2)


def complain(message: str) -> None:
    """One line on standard error, in the one style of errors."""
    line(f"endstop: {message}")


def ready_streams() -> None:
    """Make the standard streams usable, whatever they were when the program was started.

    One that is closed leads nowhere from now on: otherwise the next file that is opened would get
    its number, and whoever prints would write into that. Characters that a terminal's encoding
    lacks are shown as escapes.
    """
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            nobody_reads(descriptor)
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_terminal() -> None:
    """The terminal has hung up: what would be shown on it leads nowhere from now on."""
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            nobody_reads(descriptor)


def nobody_reads(descriptor: int) -> None:
    """From now on this stream leads nowhere: a reader that has gone changes nothing else."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


class _Complaints(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            complain(f"{record.levelname.lower()}: {record.getMessage()}")
        except (TypeError, ValueError):
            self.handleError(record)


def hear_warnings() -> None:
    """Show what the library logs as warnings or worse, in the one style of errors."""
    log = logging.getLogger("endstop")
    if not log.handlers:
        log.addHandler(_Complaints(logging.WARNING))
        log.propagate = False
