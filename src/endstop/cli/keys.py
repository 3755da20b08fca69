"""The command line's keyboard: single keys from a terminal, and one line that is edited in place.

The terminal is taken only while there is a question and given back as it was. Reading happens on a
thread of its own, so that a human who thinks stops nobody.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import termios
import threading
import tty
from collections.abc import Callable
from typing import Any

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
_MOVES = {
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x01": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x05": "end",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b[3~": "delete",
    "\x15": "clear",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
}


def open_terminal() -> int | None:
    """The terminal that a human sits at, whatever standard input is; None where there is none."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A program in the background that reads from its terminal is stopped by it.
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return terminal
    except OSError:
        pass
    os.close(terminal)
    return None


class Keyboard:
    """Reads keys while it is open; each goes to `put` from the reading thread."""

    def __init__(self, terminal: int, put: Callable[[str], None]) -> None:
        self._terminal = terminal
        self._put = put
        self._saved: list[Any] | None = None
        self._wake = -1
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Take the terminal. What was typed before the question was asked is no answer to it."""
        if self._saved is not None:
            return
        self._saved = termios.tcgetattr(self._terminal)
        tty.setcbreak(self._terminal, termios.TCSAFLUSH)
        woken, self._wake = os.pipe()
        self._thread = threading.Thread(
            target=self._read, args=(woken,), name="endstop-keys", daemon=True
        )
        self._thread.start()

    def forget(self) -> None:
        """Drop what was typed but not read yet."""
        termios.tcflush(self._terminal, termios.TCIFLUSH)

    def close(self) -> None:
        """Give the terminal back as it was. Idempotent."""
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        os.close(self._wake)
        if self._thread is not None:
            self._thread.join(1.0)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, saved)

    def _read(self, woken: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        try:
            while True:
                ready, _, _ = select.select([self._terminal, woken], [], [])
                if woken in ready:
                    return
                chunk = os.read(self._terminal, 1024)
                if not chunk:
                    return
                for key in _KEY.findall(decoder.decode(chunk)):
                    self._put(_MOVES.get(key, key))
        except OSError:
            # The terminal is gone: nobody answers any more, and silence is no consent.
            return
        finally:
            os.close(woken)


class Line:
    """One line of text under a cursor."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.at = len(text)

    def key(self, key: str) -> None:
        """Take one key; what is no text and no move is ignored."""
        match key:
            case "left":
                self.at = max(0, self.at - 1)
            case "right":
                self.at = min(len(self.text), self.at + 1)
            case "home":
                self.at = 0
            case "end":
                self.at = len(self.text)
            case "backspace" if self.at:
                self.text = self.text[: self.at - 1] + self.text[self.at :]
                self.at -= 1
            case "delete":
                self.text = self.text[: self.at] + self.text[self.at + 1 :]
            case "clear":
                self.text, self.at = "", 0
            case _ if len(key) == 1 and key.isprintable():
                self.text = self.text[: self.at] + key + self.text[self.at :]
                self.at += 1
            case _:
                pass
