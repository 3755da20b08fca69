"""A program that the runtime talks to over two pipes, under a host of its own (`host.py`).

The host leads the program's session, adopts whatever it leaves behind, drains and bounds what it
writes to standard error, and kills all of it when this process is gone, for whatever reason: a
program started here never outlives who started it (law 11 whole-tree). The pipes themselves lead
straight to the program. Nothing here reads or understands what is said on them.

The constructor and `forget_in_child` aside, what blocks says so: it belongs on a thread.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from endstop.core.text import safe_text
from endstop.errors import WorkerError
from endstop.work import tree
from endstop.work.hosts import Host
from endstop.work.ioloop import IoLoop

STDERR_BYTES = 16 << 10
"""Bytes of standard error that are kept, head and tail."""

_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a program gets of our environment: nothing that is likely to be a secret."""

_START_S = 10.0


class Remains(NamedTuple):
    """A program that is over: what is known of its end, in full."""

    status: int | None
    stderr: str
    survivors: tuple[str, ...]


def plain_environment() -> dict[str, str]:
    """The part of our environment that every program may see."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


class Program:
    """One running program. `on_exit` is called once, on a thread of ours, when it has ended."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        on_exit: Callable[[], None] = lambda: None,
    ) -> None:
        """Start it; blocks until it runs, at most some seconds. Raises `WorkerError`.

        `env` is added to `plain_environment`. Whoever starts it owns `stdin` and `stdout`, the
        descriptors of our ends of its pipes, and closes them.
        """
        self.status: int | None = None
        self._on_exit = on_exit
        self._told_exit = False
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._problem: str | None = None
        self._host: Host | None = None
        self._remains: Remains | None = None
        self._ending = threading.Lock()
        theirs_in, self.stdin = os.pipe()
        self.stdout, theirs_out = os.pipe()
        try:
            self._start(
                list(argv), {**plain_environment(), **(env or {})}, cwd, theirs_in, theirs_out
            )
        except WorkerError:
            os.close(self.stdin)
            os.close(self.stdout)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        _programs.add(self)

    def _start(
        self, argv: list[str], env: dict[str, str], cwd: str | None, stdin: int, stdout: int
    ) -> None:
        stdio = (stdin, stdout)
        command: dict[str, Any] = {"argv": argv, "cwd": cwd, "env": {}, "stdio": stdio}
        boot = {"path": [], "output_bytes": STDERR_BYTES, "command": command}

        def begin() -> None:
            try:
                host = Host(_io, boot, env=env, stdio=stdio)
            except WorkerError as error:
                self._problem = str(error)
                self._ready.set()
                return
            # A program has no use for the second line.
            host.channel.release().close()
            host.on_control, host.on_lost = self._heard, self._lost
            self._host = host

        _io.post(begin)
        started = self._ready.wait(_START_S)
        if not started or self._problem is not None:
            problem = self._problem or f"it did not start within {_START_S:g} s"
            self.end()
            raise WorkerError(safe_text(problem, 500))

    # -- on the thread of the loop

    def _heard(self, host: Host, frame: dict[str, Any]) -> None:
        match frame["t"]:
            case "ready":
                self._ready.set()
            case "failed":
                self._problem = frame["error"].strip().splitlines()[-1]
                self._ready.set()
            case "exit":
                self.status = frame["status"]
                self._over()
            case _:
                return

    def _lost(self, host: Host, control: bool, why: str) -> None:
        self._problem = self._problem or "the process above it was lost"
        self._ready.set()
        self._over()

    def _over(self) -> None:
        self._ended.set()
        if not self._told_exit:
            self._told_exit = True
            self._on_exit()

    # -- from any thread

    @property
    def pid(self) -> int | None:
        """The process of its host, the root of its tree."""
        return None if self._host is None else self._host.who.pid

    def wait(self, timeout_s: float) -> bool:
        """Block until the program itself has ended; what it started may live on."""
        return self._ended.wait(timeout_s)

    def ask_to_end(self) -> None:
        """SIGTERM to everything that belongs to it. Blocks for a moment."""
        if self._host is not None and self._remains is None:
            tree.ask_to_end(self._host.scope)

    def end(self, bound_s: float = 2.0) -> Remains:
        """Kill all of it and prove that; blocks, bounded. The second time it only says what was."""
        with self._ending:
            if self._remains is not None:
                return self._remains
            host = self._host
            if host is None:
                self._remains = Remains(None, "", ())
                return self._remains
            control = _detached(host)
            if control is None:
                swept = tree.sweep(host.scope, bound_s)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    host.process.wait(0.5)
                self._remains = Remains(self.status, "", swept.survivors)
                return self._remains
            ended = host.end(control, bound_s)
            stderr = "" if ended.output is None else ended.output["stderr"]
            self._remains = Remains(self.status, safe_text(stderr, STDERR_BYTES), ended.survivors)
            self._ended.set()
            return self._remains

    def forget_in_child(self) -> None:
        """After a fork, in the child: a copy of our line would hide our end from the host."""
        if self._host is not None and self._remains is None:
            self._host.forget_in_child()


def _detached(host: Host) -> Any:
    """The control socket of a host, taken off the loop on its own thread; None if it is gone."""
    found: list[Any] = []
    done = threading.Event()

    def take() -> None:
        try:
            if host.control.open:
                found.append(host.detach_lines())
        finally:
            done.set()

    if _io.post(take):
        deadline = time.monotonic() + 1.0
        done.wait(max(0.0, deadline - time.monotonic()))
    return found[0] if found else None


def _after_fork() -> None:
    global _io
    for program in list(_programs):
        program.forget_in_child()
    _io.forget_in_child()
    _io = IoLoop(_io_name)


_io_name = "endstop-program-io"
_io = IoLoop(_io_name)
_programs: weakref.WeakSet[Program] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
