"""The built-in `shell` tool: runs a command on the process worker, with bounded output.

An ordinary tool that anyone could have written: what makes it stoppable is the worker. Its output
is read in large pieces and kept as head and tail, so that memory stays flat whatever the command
writes, and the pipe is drained to the end, so that a flood never blocks its writer (BH74).

A stop sends SIGTERM to everything below at once; from then on the command's ending is ours and not
its result, and the output so far is reported with it. The command keeps the whole grace to clean
up. When the command itself has ended, a descendant that holds the pipe is not waited for (BH30).
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from endstop.core.text import safe_text
from endstop.errors import CallerError, Stopped, WorkerError
from endstop.tools.context import BodyContext, Context
from endstop.tools.tool import tool
from endstop.work import runner, tree
from endstop.work.excerpt import OUTPUT_BYTES, Excerpt
from endstop.work.terminal import LOOK_S, Terminal

_CHUNK = 1 << 20
_REPORT_S = 0.1
_TAIL_BYTES = 1000
_HELD_PIPE_S = 0.05
_OUTPUT_MAX = 4 << 20

# Models write bash; where it is missing, what every system has must do.
_SHELL = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"

_wakers: dict[str, int] = {}


def _wake(context: BodyContext) -> None:
    """Interrupt: wake the body, which waits for the command, from the thread that got the stop."""
    waker = _wakers.get(context.call_id)
    if waker is not None:
        try:
            os.write(waker, b"\0")
        except OSError:
            # Full or closed: the body is awake or over.
            return


class _Command:
    """A running command: its process, its output, and whether we told it to end."""

    def __init__(
        self,
        ctx: Context,
        started: subprocess.Popen[bytes],
        limit: int,
        terminal: Terminal | None = None,
    ) -> None:
        self.ctx = ctx
        self.terminal = terminal
        self.process = started
        self.output = Excerpt(limit)
        self.began = time.monotonic()
        self.told_to_end = False
        self.exited_at: float | None = None
        self.reported = 0
        self.report_at = 0.0

    def result(self) -> dict[str, Any]:
        return {
            "exit_code": self.process.returncode,
            "output": self.output.text(),
            "total_bytes": self.output.total,
            "seconds": round(time.monotonic() - self.began, 3),
        }

    def report(self, *, now: float) -> None:
        """Say what is new: a bounded tail for whoever watches, head and tail for a later kill."""
        if self.output.total == self.reported or now < self.report_at:
            return
        self.reported = self.output.total
        self.report_at = now + _REPORT_S
        host = runner.current()
        if host is not None:
            # Before the progress: whoever saw a line of output will find it after a kill as well.
            partial = {"t": "partial", "call": self.ctx.call_id, "output": self.result()}
            host.channel.send(partial)
        self.ctx.progress(self.output.last(_TAIL_BYTES))

    def end_tree(self) -> None:
        """SIGTERM to everything that this command has started."""
        if self.told_to_end:
            return
        self.told_to_end = True
        me = tree.identify(os.getpid())
        assert me is not None, "a process can see itself"
        tree.ask_to_end(tree.Scope(me, os.environ.get(tree.MARKER, "")))

    def pump(self, wake: int) -> None:
        """Read until the output ends, or the command has ended and its pipe is held by others."""
        pipe = self._pipe()
        os.set_blocking(pipe, False)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            pin = _pin(self.process.pid)
            if pin is not None:
                selector.register(pin, selectors.EVENT_READ)
            try:
                while not self._step(selector, pipe, wake, pin):
                    continue
            finally:
                if pin is not None:
                    os.close(pin)

    def _pipe(self) -> int:
        if self.terminal is not None:
            return self.terminal.ours
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def _step(
        self, selector: selectors.BaseSelector, pipe: int, wake: int, pin: int | None
    ) -> bool:
        """One wait; true when it is over."""
        ready = {key.fd for key, _ in selector.select(self._wait_s(pin))}
        if wake in ready:
            os.read(wake, 64)
        ended = self.exited_at is not None
        if not ended and self.process.poll() is not None:
            self.exited_at = time.monotonic()
            if pin is not None:
                selector.unregister(pin)
        elif not ended and self.ctx.cancelled:
            self.end_tree()
        over = False
        if pipe in ready:
            over = self._read(pipe)
            if over:
                selector.unregister(pipe)
        if self.terminal is not None and self.exited_at is None:
            self.terminal.look(self.output.last(_TAIL_BYTES))
        now = time.monotonic()
        self.report(now=now)
        if self.exited_at is None:
            # Its output may end long before it does.
            return False
        # A terminal delivers late: what was written before the end may come after it.
        quiet = pipe not in ready and (ended or self.terminal is None)
        return over or pipe not in selector.get_map() or quiet or self._held_too_long(now)

    def _held_too_long(self, now: float) -> bool:
        return self.exited_at is not None and now >= self.exited_at + 4 * _HELD_PIPE_S

    def _wait_s(self, pin: int | None) -> float | None:
        if self.exited_at is not None:
            return _HELD_PIPE_S
        unreported = self.output.total != self.reported
        report_s = max(0.0, self.report_at - time.monotonic()) if unreported else None
        if self.terminal is not None:
            report_s = LOOK_S if report_s is None else min(report_s, LOOK_S)
        if pin is None:
            # Without pidfd nothing tells that the command ended while others hold its pipe.
            return min(_HELD_PIPE_S, report_s if report_s is not None else _HELD_PIPE_S)
        return report_s

    def _read(self, pipe: int) -> bool:
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            # How a terminal says that nobody has it open any more.
            return True
        self.output.add(chunk)
        if self.terminal is not None:
            self.terminal.heard()
        return not chunk


def _pin(pid: int) -> int | None:
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None


@tool(
    isolation="process",
    resources=["terminal:{terminal}"],
    interrupt=_wake,
)
def shell(
    ctx: Context,
    command: Annotated[str, Field(min_length=1)],
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
    detach: bool = False,
    output_limit: Annotated[int, Field(ge=1, le=_OUTPUT_MAX)] = OUTPUT_BYTES,
    terminal: str = "default",
    pty: bool = False,
) -> dict[str, Any]:
    """Run a shell command and return its exit code and output.

    Standard output and standard error come in one stream. A non-zero exit code is a result, not an
    error. Processes that the command leaves running are stopped when it ends, unless `detach`.

    Args:
        command: The command line, for bash where there is one and sh otherwise.
        cwd: Directory to run in; by default the one of the program.
        env: Environment variables to set in addition.
        stdin: Text for its standard input; by default there is none.
        detach: Start it in the background and return its job id and pid at once; it keeps running
            after this call, and its output is not kept.
        output_limit: Bytes of output to keep; beyond that the middle is left out.
        terminal: Commands with the same terminal name run one after the other.
        pty: Give it a terminal of its own, for commands that ask for a password or a confirmation:
            a human is asked, and the command waits for the answer.
    """
    if cwd is not None and not Path(cwd).is_dir():
        raise CallerError(f"cwd: {safe_text(cwd, 300)!r} is no directory")
    if pty and (detach or stdin is not None):
        raise CallerError("pty cannot be given together with stdin or detach")
    if detach:
        return _detach(ctx, command, cwd, env, stdin)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    _wakers[ctx.call_id] = waker
    try:
        if not pty:
            return _run(ctx, command, cwd, env, stdin, output_limit, wake)
        own = Terminal(ctx, lambda: _wake(ctx))
        try:
            return _run_on(own, ctx, command, cwd, env, output_limit, wake)
        finally:
            own.close()
    finally:
        del _wakers[ctx.call_id]
        os.close(wake)
        os.close(waker)


def _run(
    ctx: Context,
    command: str,
    cwd: str | None,
    env: dict[str, str] | None,
    stdin: str | None,
    limit: int,
    wake: int,
) -> dict[str, Any]:
    with _input(stdin) as given:
        started = subprocess.Popen(
            [_SHELL, "-c", command],
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _finish(_Command(ctx, started, limit), wake)


def _run_on(
    own: Terminal,
    ctx: Context,
    command: str,
    cwd: str | None,
    env: dict[str, str] | None,
    limit: int,
    wake: int,
) -> dict[str, Any]:
    """The same on a terminal."""
    started = subprocess.Popen(
        own.argv(_SHELL, command),
        cwd=cwd,
        env={"TERM": "dumb", **os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return _finish(_Command(ctx, started, limit, own), wake)


def _finish(running: _Command, wake: int) -> dict[str, Any]:
    started = running.process
    while True:
        try:
            running.pump(wake)
            break
        except Stopped:
            # SIGTERM reached this process too, at most once; the command keeps its whole grace.
            running.told_to_end = True
    if started.stdout is not None:
        started.stdout.close()
    if not running.told_to_end:
        return running.result()
    stopped = Stopped(f"the command was stopped; {_ending(started.returncode)}")
    stopped.output = running.result()  # type: ignore[attr-defined]
    raise stopped


def _input(text: str | None) -> Any:
    """What the command reads: nothing, or a file that holds the text; a pipe could block us."""
    if text is None:
        return open(os.devnull, "rb")
    # Imported here: most commands have no input, and starting must stay quick.
    import tempfile

    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(text.encode(errors="surrogateescape"))
    file.seek(0)
    return file


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"it ended with status {code}"
    return f"it ended by {signal.Signals(-code).name}"


def _detach(
    ctx: Context, command: str, cwd: str | None, env: dict[str, str] | None, stdin: str | None
) -> dict[str, Any]:
    if stdin is not None:
        raise CallerError("stdin cannot be given together with detach")
    host = runner.current()
    if host is None:
        raise WorkerError("detach needs the process worker: run this tool in isolation 'process'")
    answer = host.channel.ask(
        {
            "t": "detach",
            "call": ctx.call_id,
            "argv": [_SHELL, "-c", command],
            "cwd": cwd,
            "env": env or {},
            "label": safe_text(command, 300),
        }
    )
    if "error" in answer:
        raise WorkerError(f"the job could not be started: {answer['error']}")
    return {"job": answer["job"], "pid": answer["pid"]}
