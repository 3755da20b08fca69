"""One host as its worker sees it: how it is started, and how it is ended with proof.

`start` runs on the worker's loop, `end` on a thread of its own, because a sweep takes time.
Nothing here decides what an end means for a call.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from endstop.core.terms import How
from endstop.core.text import safe_text
from endstop.errors import WorkerError
from endstop.work import tree
from endstop.work.ioloop import IoLoop, Line
from endstop.work.protocol import Job
from endstop.work.wire import FRAME_BYTES, Unpacker, WireBroken, pack

_OUTPUT_WAIT_S = 0.25
_BOOT = Path(__file__).resolve().with_name("boot.py")
_ROOT = _BOOT.parent.parent.parent


class Ended(NamedTuple):
    """A host that is gone: what was killed, what was not, and what it had printed."""

    swept: tuple[str, ...]
    survivors: tuple[str, ...]
    output: dict[str, str] | None


class End(NamedTuple):
    """What a body said about its end, checked."""

    how: How
    value: Any
    error: str | None
    output: Any
    forked: bool
    threads: bool

    @classmethod
    def read(cls, frame: dict[str, Any]) -> End:
        """Raises KeyError or ValueError for a frame that is no end."""
        how = How(frame["how"])
        if how is How.LOST:
            raise ValueError("a body cannot say that it was lost")
        error = None if frame["error"] is None else safe_text(str(frame["error"]))
        forked, threads = bool(frame["forked"]), bool(frame["threads"])
        return cls(how, frame["value"], error, frame.get("output"), forked, threads)


class Host:
    """A host process, its two lines, and the call that it has now."""

    def __init__(
        self,
        loop: IoLoop,
        boot: dict[str, Any],
        frame_bytes: int = FRAME_BYTES,
        *,
        env: dict[str, str] | None = None,
        stdio: tuple[int, ...] = (),
    ) -> None:
        """Start the process. Raises `WorkerError` if the system refuses.

        `env` is its whole environment (default: ours); `stdio` are descriptors for its command.
        """
        self.marker = secrets.token_hex(12)
        control, control_there = socket.socketpair()
        channel, channel_there = socket.socketpair()
        numbers = (control_there.fileno(), channel_there.fileno())
        python = sys.executable
        try:
            self.process = subprocess.Popen(
                [python, str(_BOOT), str(_ROOT), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(*numbers, *stdio),
                start_new_session=True,
                env={**(os.environ if env is None else env), tree.MARKER: self.marker},
            )
        except (OSError, ValueError) as error:
            control.close()
            channel.close()
            raise WorkerError(f"cannot start a host process with {python!r}: {error}") from error
        finally:
            control_there.close()
            channel_there.close()
        who = tree.identify(self.process.pid)
        assert who is not None, "a child that nobody reaped is in the process table"
        self.who: tree.Identity = who
        self.runner: tree.Identity | None = None
        self.born = time.monotonic()
        boot_frame = {**boot, "t": "boot", "marker": self.marker, "frame_bytes": frame_bytes}
        self.control = Line(loop, control, self._control_frame, self._control_lost)
        self.channel = Line(loop, channel, self._channel_frame, self._channel_lost, frame_bytes)
        self.on_control: Callable[[Host, dict[str, Any]], None] = lambda host, frame: None
        self.on_channel: Callable[[Host, dict[str, Any]], None] = lambda host, frame: None
        self.on_lost: Callable[[Host, bool, str], None] = lambda host, control, why: None
        self.doomed = False
        self.idle_since: float | None = None
        self.files: dict[str, int] = {}
        self.settles = 0
        self.forget_call()
        self.control.send(boot_frame)

    def forget_call(self) -> None:
        """Be as before a call."""
        self.job: Job | None = None
        self.claimed = False
        self.asked_at: float | None = None
        # Set by a kill: what waits for this call to end by itself waits no longer.
        self.hurry = threading.Event()
        self.heard = False
        self.signalled = False
        self.swept = False
        self.printed: dict[str, str] = {}
        self.partial: Any = None
        self.last: End | None = None

    @property
    def call(self) -> str | None:
        """The call that this host has now."""
        return None if self.job is None else self.job.call

    @property
    def scope(self) -> tree.Scope:
        """Everything below this host, the runner included."""
        return tree.Scope(self.who, self.marker)

    def _control_frame(self, frame: dict[str, Any]) -> None:
        self.on_control(self, frame)

    def _control_lost(self, why: str) -> None:
        self.on_lost(self, True, why)

    def _channel_frame(self, frame: dict[str, Any]) -> None:
        self.on_channel(self, frame)

    def _channel_lost(self, why: str) -> None:
        self.on_lost(self, False, why)

    def detach_lines(self) -> socket.socket:
        """Take both lines off the loop; the control socket is returned for `end`."""
        self.doomed = True
        self.channel.release().close()
        return self.control.release()

    def forget_in_child(self) -> None:
        """After a fork, in the child: close what would keep this host from seeing our end."""
        self.control.sock.close()
        self.channel.sock.close()

    def end(self, control: socket.socket, bound_s: float) -> Ended:
        """Kill everything below, fetch the output, kill the host, prove it. Blocks, bounded."""
        deadline = time.monotonic() + bound_s
        first = tree.sweep(self.scope, bound_s, prove=False)
        answer = _ask_host(control)
        while answer is not None and not answer["alone"] and time.monotonic() < deadline:
            # Something slipped through the look: what forks and exits without end can do that.
            again = tree.sweep(self.scope, 0.1, prove=False, hard=True)
            first = tree.Swept((*first.ended, *again.ended), again.survivors)
            answer = _ask_host(control)
        output = answer and {"stdout": answer["stdout"], "stderr": answer["stderr"]}
        # Until it is waited for, its number cannot mean another process.
        tree.send(self.who, signal.SIGKILL)
        tree.wait_dead([self.who], max(deadline, time.monotonic() + 0.5))
        proof = tree.sweep(self.scope, max(deadline - time.monotonic(), 0.1))
        control.close()
        survivors = list(proof.survivors)
        if tree.alive(self.who):
            survivors.append(tree.name(self.who))
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Dead, or named above; in no case is it waited for without a bound.
            self.process.wait(0.5)
        return Ended((*first.ended, *proof.ended), tuple(survivors), output)


def _ask_host(control: socket.socket) -> dict[str, Any] | None:
    """What was printed, and whether all below is gone; None without an answer in time (BH30)."""
    frames = Unpacker()
    deadline = time.monotonic() + _OUTPUT_WAIT_S
    try:
        control.setblocking(True)
        control.settimeout(_OUTPUT_WAIT_S)
        control.sendall(pack({"t": "settle", "n": -1, "look": False, "keep": True}))
        while (left := deadline - time.monotonic()) > 0:
            control.settimeout(left)
            data = control.recv(1 << 18)
            if not data:
                return None
            for frame in frames.feed(data):
                if frame["t"] == "settled" and frame["n"] == -1:
                    return frame
    except (OSError, WireBroken):
        # Killed, or broken off in the middle of an older frame: there is no output to be had.
        return None
    return None
