"""A terminal for a command that insists on one, and the prompts that a human must answer there.

Part of the `shell` tool. A command waits for a human when it has been quiet for a moment and either
reads without echo, as sudo and ssh do for a password, or its last line looks like a prompt. Then
the body asks (`ctx.ask`), so that the wait is listed, pauses the deadline and is withdrawn by a
stop like every other question. If the command goes on by itself, the question is withdrawn.

Nothing here may wait: the shell's loop asks `look` in between.
"""

from __future__ import annotations

import contextlib
import os
import re
import termios
import time
from collections.abc import Callable

from endstop.core.text import safe_text
from endstop.errors import Stopped
from endstop.tools import asking
from endstop.tools.context import Context

LOOK_S = 0.2
"""How often a quiet command is looked at: the end of echo is no output."""
QUIET_S = 0.3
"""A command that was quiet for so long may be waiting."""
_LINE_CHARS = 300
_COLUMNS, _ROWS = 120, 40

_PROMPT = re.compile(
    r"""(?ix)
    (?: \b(?:password|passphrase|passcode|pin|otp|token|user(?:\ ?name)?|login)\b [^\n]{0,200} [:?>]
      | [\[(] \s* y(?:es)? \s* / \s* no? [^\n]{0,40} [\])] \s* [:?]?
      | \b(?:continue|proceed|sure|overwrite|replace|remove|delete|install|accept|trust)\b
        [^\n]{0,200} \?
      | \bpress\ (?:enter|return|any\ key)\b [^\n]{0,100}
    ) \s* $
    """
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


class Terminal:
    """Our end of a pseudo-terminal, and what the command asks on it."""

    def __init__(self, ctx: Context, wake: Callable[[], None]) -> None:
        self.ours, self._theirs = os.openpty()
        self.name = os.ttyname(self._theirs)
        self._ctx = ctx
        self._wake = wake
        self._question: asking.Question | None = None
        self._heard_at = time.monotonic()
        # What was asked and answered, or asked and withdrawn, is not asked again while it stands.
        self._over = False
        self._prepare()

    def _prepare(self) -> None:
        settings = termios.tcgetattr(self._theirs)
        # One kind of line end, as in the output of a pipe.
        settings[1] &= ~termios.ONLCR
        termios.tcsetattr(self._theirs, termios.TCSANOW, settings)
        with contextlib.suppress(OSError):
            termios.tcsetwinsize(self._theirs, (_ROWS, _COLUMNS))

    def argv(self, shell: str, command: str) -> list[str]:
        """How the command is started in a new session, so that the terminal becomes its own."""
        enter = 'exec 0<>"$0" 1>&0 2>&0; exec "$1" -c "$2"'
        return [shell, "-c", enter, self.name, shell, command]

    def heard(self) -> None:
        """The command wrote something: whatever it asked before, it asks no more."""
        self._heard_at = time.monotonic()
        self._over = False
        self._withdraw()

    def look(self, output: str) -> None:
        """Ask a human if the command waits for one; hand an answer on. `output` is its tail."""
        question = self._question
        if question is not None:
            if question.answer is not None:
                self._question = None
                question.close()
                self._write(question.answer)
            return
        if self._over or self._ctx.cancelled or time.monotonic() - self._heard_at < QUIET_S:
            return
        line = _ESCAPES.sub("", output.rpartition("\n")[2]).strip()
        secret = self._reads_in_secret()
        if not secret and not _PROMPT.search(line):
            return
        self._over = True
        text = line or "the command waits for input that it does not show"
        with contextlib.suppress(Stopped):
            self._question = asking.ask(
                self._ctx, safe_text(text, _LINE_CHARS), (), secret, self._wake
            )

    def close(self) -> None:
        """The command is over or must stop."""
        self._withdraw()
        for end in (self.ours, self._theirs):
            os.close(end)

    def _withdraw(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.close()

    def _reads_in_secret(self) -> bool:
        """Whole lines without echo: that is how passwords are read; editors read single keys."""
        flags = termios.tcgetattr(self.ours)[3]
        return bool(flags & termios.ICANON) and not flags & termios.ECHO

    def _write(self, answer: str) -> None:
        # One line: a control character would be a key that nobody meant to press.
        line = _CONTROL.sub("", answer) + "\n"
        self._heard_at = time.monotonic()
        self._over = False
        with contextlib.suppress(OSError):
            os.write(self.ours, line.encode(errors="replace"))
