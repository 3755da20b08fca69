"""The host: the small process above a body that outlives whatever the body does.

Standard library only, and light, and never any foreign code: the host forks the *runner*, which
runs the bodies, and then only watches. One thread, no waiting but in `poll`.

Theory. The host is what makes a kill provable (law 11 whole-tree):

* it leads a session of its own and is a child subreaper, so that everything that a body starts
  stays below it, also when the runner has died (`os._exit`, a crash, out of memory);
* it reaps, so that a zombie is never mistaken for a survivor, and does it outside the runner,
  where waiting for any child would steal the exit codes of the body's own subprocesses;
* it drains stdout and stderr of the runner and of all that inherits them, in flat memory, so that
  a flood never blocks its writer and never costs the runtime's own process a thing;
* its control socket ends when the runtime's process ends, for whatever reason; then the host kills
  its tree and exits. A body that holds the interpreter lock cannot prevent that. (The kernel's own
  parent-death signal is not used: it fires when the starting *thread* ends.)

A detached job gets a host of its own, which runs a command instead of a runner and lives on when
the control socket ends. A program that the runtime talks to (`program.py`) gets one, too: its
command has the two pipes of `stdio` for its input and output, and dies with the control socket.

Frames on the control socket. In: `boot` (once), `settle`, `end`. Out: `failed`, `ready`,
`settled`, `exit`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
import traceback
from typing import Any, NoReturn

from endstop.work import tree
from endstop.work.excerpt import Excerpt
from endstop.work.wire import Unpacker, WireBroken, pack

_CHUNK = 1 << 18
_DRAINS_MAX = 64
_LOOKS_MAX = 20
_END_S = 5.0
_BOOT_BYTES = 8 << 20


class _Host:
    """State of one host process: sockets, pipes, and the child that it watches."""

    def __init__(self, control: socket.socket, boot: dict[str, Any]) -> None:
        self.control = control
        self.frames = Unpacker()
        command = boot.get("command")
        self.detached = command is not None and not command.get("stdio")
        self.marker: str = boot["marker"]
        self.output_bytes: int = boot["output_bytes"]
        # By pipe; once a pipe is closed, by its negative number.
        self.outputs: dict[int, Excerpt] = {}
        self.child = 0
        self.child_over = False
        self.reaped = 0
        self.poll = select.poll()
        self.connected = True

    def watch(self, stdout: int, stderr: int, wake: int) -> None:
        for pipe in (stdout, stderr):
            os.set_blocking(pipe, False)
            self.outputs[pipe] = Excerpt(self.output_bytes)
            self.poll.register(pipe, select.POLLIN)
        self.poll.register(wake, select.POLLIN)
        self.poll.register(self.control.fileno(), select.POLLIN)

    def say(self, frame: dict[str, Any]) -> None:
        if not self.connected:
            return
        try:
            self.control.sendall(pack(frame))
        except OSError:
            # The runtime is gone; the end of the control socket is seen by the loop.
            return

    def read_output(self, pipe: int) -> bool:
        """Take what a pipe holds; true if there may be more. Closes it at its end."""
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self.poll.unregister(pipe)
            os.close(pipe)
            self.outputs[-pipe] = self.outputs.pop(pipe)
            return False
        self.outputs[pipe].add(chunk)
        return True

    def settle(self, number: int, look: bool, keep: bool) -> None:
        """Answer with the output so far and, if wanted, with how much still lives below."""
        for pipe in list(self.outputs):
            # Bounded: a leftover that floods the pipe must not hold the answer back.
            for _ in range(_DRAINS_MAX):
                if pipe < 0 or not self.read_output(pipe):
                    break
        texts = [excerpt.text() for _, excerpt in sorted(self.outputs.items(), key=_by_pipe)]
        left = self.left() if look else 0
        # No child means no descendant: every orphan below becomes a child of this process. It is
        # the one proof that no race with a fork can spoil.
        alone = not self.reap()
        if not keep:
            self.outputs = {pipe: Excerpt(self.output_bytes) for pipe in self.outputs}
        self.say(
            {
                "t": "settled",
                "n": number,
                "stdout": texts[0],
                "stderr": texts[1],
                "left": left,
                "alone": alone,
            }
        )

    def left(self) -> int:
        """How many live below, beside the runner; at least one while there is no saying.

        What forks and exits without end can slip through a look, but not without leaving a corpse:
        a look counts only if nobody died meanwhile.
        """
        me = tree.identify(os.getpid())
        assert me is not None, "a process can see itself"
        before = None
        for _ in range(_LOOKS_MAX):
            self.reap()
            processes = tree.table()
            left = sum(one.who.pid != self.child for one in tree.descendants(me, processes))
            if left:
                return left
            corpses = {
                one.who for one in processes.values() if one.dead and one.parent == self.child
            }
            self.reap()
            seen = (self.reaped, corpses)
            if seen == before:
                return 0
            before = seen
        return 1

    def reap(self) -> bool:
        """Collect dead children; false once there is no child left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.reaped += 1
            if pid == self.child:
                self.child_over = True
                self.say({"t": "exit", "status": os.waitstatus_to_exitcode(status)})

    def read_control(self) -> bool:
        """Handle what the runtime asks; false when it is gone."""
        try:
            data = self.control.recv(_CHUNK)
            frames = list(self.frames.feed(data)) if data else []
        except (OSError, WireBroken):
            return False
        for frame in frames:
            match frame["t"]:
                case "settle":
                    self.settle(frame["n"], frame["look"], frame["keep"])
                case _:
                    return False
        return bool(data)

    def end(self) -> NoReturn:
        """Kill everything below, then go: nothing outlives its host."""
        me = tree.identify(os.getpid())
        assert me is not None, "a process can see itself"
        # The one that reaps is this thread, so the dead are zombies meanwhile, which count as dead.
        scope = tree.Scope(me, self.marker)
        deadline = time.monotonic() + _END_S
        tree.sweep(scope, _END_S)
        while self.reap() and time.monotonic() < deadline:
            tree.sweep(scope, 0.1, hard=True)
        os._exit(0)

    def serve(self, wake: int) -> NoReturn:
        """Watch until the runtime is gone (or, for a detached job, until all of it is over)."""
        while True:
            for descriptor, _ in self.poll.poll():
                if descriptor == wake:
                    os.read(wake, 4096)
                    some = self.reap()
                    if self.detached and self.child_over and not some:
                        os._exit(0)
                elif descriptor == self.control.fileno():
                    if not self.read_control():
                        self.lose_control()
                else:
                    self.read_output(descriptor)

    def lose_control(self) -> None:
        if not self.detached:
            self.end()
        self.poll.unregister(self.control.fileno())
        self.connected = False
        if self.child_over and not self.reap():
            os._exit(0)


def _by_pipe(item: tuple[int, Excerpt]) -> int:
    return abs(item[0])


def _read_boot(control: socket.socket) -> dict[str, Any]:
    frames = Unpacker(_BOOT_BYTES)
    while True:
        data = control.recv(_CHUNK)
        if not data:
            os._exit(0)
        for frame in frames.feed(data):
            return frame


def _wake_on_signals() -> int:
    """A pipe that becomes readable when a child ends; what would end a host is ignored."""
    wake, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # A tool that signals its parent or session must not take the reaper away. A handler, not
    # SIG_IGN: what is ignored stays ignored in a command that is started from here.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    return wake


def _fork_runner(host: _Host, channel: socket.socket, boot: dict[str, Any], wake: int) -> None:
    out_read, out_write = os.pipe()
    error_read, error_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # A group of its own: a body that signals its group does not reach the host.
            os.setpgid(0, 0)
            os.dup2(out_write, 1)
            os.dup2(error_write, 2)
            for descriptor in (out_read, out_write, error_read, error_write, wake):
                os.close(descriptor)
            host.control.close()
            from endstop.work import runner

            runner.main(channel, boot)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    host.child = pid
    channel.close()
    os.close(out_write)
    os.close(error_write)
    host.watch(out_read, error_read, wake)


def _start_command(host: _Host, boot: dict[str, Any], wake: int) -> None:
    command = boot["command"]
    given = command.get("stdio") or (subprocess.DEVNULL, None)
    # What goes to a pipe of the runtime is not seen here: this one is at its end from the start.
    read, write = os.pipe()
    child = subprocess.Popen(
        command["argv"],
        cwd=command["cwd"],
        env={**os.environ, **command["env"]},
        stdin=given[0],
        stdout=write if given[1] is None else given[1],
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert child.stderr is not None
    host.child = child.pid
    host.watch(read, os.dup(child.stderr.fileno()), wake)
    child.stderr.close()
    for number in (write, *(command.get("stdio") or ())):
        os.close(number)
    # The loop reaps, not this object; an object that thinks its child runs would only warn.
    child.returncode = 0


def main(control_number: int, channel_number: int) -> NoReturn:
    """Run a host on two inherited sockets; returns never."""
    os.set_inheritable(control_number, False)
    control = socket.socket(fileno=control_number)
    boot = _read_boot(control)
    host = _Host(control, boot)
    try:
        subreaper = tree.become_subreaper()
        wake = _wake_on_signals()
        if boot.get("command") is not None:
            _start_command(host, boot, wake)
        else:
            os.set_inheritable(channel_number, False)
            _fork_runner(host, socket.socket(fileno=channel_number), boot, wake)
    except Exception:
        host.say({"t": "failed", "error": traceback.format_exc()[-4000:]})
        os._exit(1)
    host.say({"t": "ready", "pid": host.child, "subreaper": subreaper})
    host.serve(wake)
