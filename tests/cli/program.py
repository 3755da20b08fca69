"""Running `endstop` as a program in the tests: replies, processes, marks and terminals."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import ROOT

TOOLS = str(Path(__file__).with_name("sample_tools.py"))
SAMPLES = ROOT / "tests" / "samples"
PROGRAM = [sys.executable, "-m", "endstop.cli.main"]
PATIENCE_S = 60.0


def environment(**more: str) -> dict[str, str]:
    """The environment of a program: this package, short grace, and nothing of the caller's own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ENDSTOP_")}
    path = os.pathsep.join([str(ROOT / "src"), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**kept, "PYTHONPATH": path, "ENDSTOP_GRACE_S": "0.5", "TERM": "xterm", **more}


def endstop(
    *arguments: object, stdin: str | None = None, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        stdin=None if stdin is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=cwd,
        env=environment(**more),
        check=False,
    )


def start(*arguments: object, **more: str) -> subprocess.Popen[str]:
    """Start the program, away from the terminal of the tests."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
        start_new_session=True,
    )


def reply(path: Path, *calls: tuple[str, dict[str, Any]]) -> Path:
    """Write a chat reply with these calls."""
    body = {
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": f"call_{number}",
                            "type": "function",
                            "function": {"name": name, "arguments": json.dumps(arguments)},
                        }
                        for number, (name, arguments) in enumerate(calls)
                    ],
                },
            }
        ]
    }
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def until(what: str, holds: Callable[[], object]) -> None:
    """Wait until something holds that another process brings about."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"waited too long: {what}"
        time.sleep(0.01)


def marked(mark: Path) -> int:
    """Wait until a body has left its mark; returns the pid that it wrote."""
    until(f"{mark.name} to begin", lambda: mark.exists() and mark.read_text().isdecimal())
    return int(mark.read_text())


def gone(pid: int) -> bool:
    """Whether a process is not there any more, or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


class Terminal:
    """The program on a terminal of its own; standard output goes to a file beside it."""

    def __init__(self, out: Path, *arguments: object, columns: int = 120, **more: str) -> None:
        self.shown = b""
        self._out = out
        command = [*PROGRAM, *map(str, arguments)]
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            answer = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(answer, 1)
            os.execve(command[0], command, environment(COLUMNS=str(columns), LINES="30", **more))

    def read(self, timeout_s: float = 0.1) -> bool:
        """Take in what is shown; false once the program has closed its terminal."""
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return True
        try:
            chunk = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += chunk
        return bool(chunk)

    def expect(self, text: str) -> None:
        """Wait until `text` is shown after what was expected before."""
        end = time.monotonic() + PATIENCE_S
        while text.encode() not in self.shown:
            assert self.read(), f"ended before {text!r} was shown:\n{self.shown.decode()}"
            assert time.monotonic() < end, f"not shown: {text!r} in\n{self.shown.decode()}"
        self.shown = self.shown.partition(text.encode())[2]

    def type(self, keys: str) -> None:
        """Press keys; Ctrl-C is \\x03."""
        os.write(self._master, keys.encode())

    def echoes(self) -> bool:
        """Whether the terminal is as a shell wants it: keys are shown and come by lines."""
        flags = termios.tcgetattr(self._master)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        while self.read(1.0):
            continue
        _, status = os.waitpid(self.pid, 0)
        os.close(self._master)
        return os.waitstatus_to_exitcode(status)

    def answer(self) -> Any:
        """The document on standard output."""
        return json.loads(self._out.read_text(encoding="utf-8"))


__all__ = [
    "PATIENCE_S",
    "SAMPLES",
    "TOOLS",
    "Terminal",
    "endstop",
    "gone",
    "marked",
    "reply",
    "signal",
    "start",
    "until",
]
