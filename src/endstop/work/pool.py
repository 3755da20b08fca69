"""The hosts of a process worker: started within a limit, kept warm, retired, ended with proof.

Everything runs on the worker's loop. The pool knows which host is free and for what; what is said
on a host's lines, and what an ending means, is `calls.py`'s business.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from endstop.core.inputs import StartFailed
from endstop.core.payload import Unserialisable, to_data
from endstop.errors import WorkerError
from endstop.work.excerpt import OUTPUT_BYTES
from endstop.work.hosts import Ended, Host
from endstop.work.ioloop import IoLoop
from endstop.work.protocol import Job, Tell
from endstop.work.wire import FRAME_BYTES

KILL_S = 2.0
"""Bound of a sweep that belongs to no call, in seconds."""

_PRELOAD_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Limits of a pool; `ProcessWorker` says what they mean."""

    slots: int = 8
    carry: Mapping[str, ContextVar[Any]] = field(default_factory=dict)
    frame_bytes: int = FRAME_BYTES
    output_bytes: int = OUTPUT_BYTES
    idle_s: float = 60.0
    spare: bool = True


class Pool:
    """The hosts and the jobs that wait for one."""

    def __init__(
        self, loop: IoLoop, tell: Tell, options: PoolOptions, wire: Callable[[Host], None]
    ) -> None:
        self._loop = loop
        self._tell = tell
        self._options = options
        # Connects a new host to whoever listens to its lines.
        self._wire = wire
        self.hosts: list[Host] = []
        self.ending: set[Host] = set()
        self.pending: list[Job] = []
        self.by_call: dict[str, Host] = {}
        self._known: dict[str, None] = {}
        self.closed = False

    def boot(self) -> dict[str, Any]:
        """What every new host is told."""
        path = [entry or os.getcwd() for entry in sys.path]
        return {"path": path, "output_bytes": self._options.output_bytes}

    def feed(self) -> None:
        """Give waiting jobs to hosts: idle ones, else new ones within the limit."""
        while self.pending and not self.closed:
            job = self.pending[0]
            for old in [host for host in self.hosts if host.job is None and _outdated(host)]:
                self.doom(old)
            host = next((host for host in self.hosts if host.idle_since is not None), None)
            settling = sum(one.job is None and one.last is not None for one in self.hosts)
            full = len(self.hosts) >= self._options.slots
            if host is None and (full or settling >= len(self.pending)):
                # A host will be free in a moment (sooner than a new one), and feeds then.
                return
            self.pending.pop(0)
            try:
                self._assign(host or self._spawn(), job)
            except WorkerError as error:
                self._tell(StartFailed(call=job.call, message=str(error)))
        self._keep_spare()

    def _spawn(self) -> Host:
        host = Host(self._loop, self.boot(), self._options.frame_bytes)
        self._wire(host)
        self.hosts.append(host)
        assert len(self.hosts) <= self._options.slots, "no more hosts than slots"
        return host

    def _keep_spare(self) -> None:
        """After the first use: one host ready that has loaded the tools in use."""
        wanted = self._options.spare and not self.closed and len(self.hosts) < self._options.slots
        if not wanted or not self.by_call or any(host.job is None for host in self.hosts):
            return
        try:
            host = self._spawn()
        except WorkerError:
            # The call that needs it will try again and say what is wrong.
            return
        paths = [path for address in self._known if (path := _file_of(address))]
        host.files = {path: _changed_at(path) for path in paths}
        host.channel.send({"t": "load", "addresses": list(self._known)})
        self._set_idle(host)

    def _set_idle(self, host: Host) -> None:
        assert host.job is None, "a host with a call is not idle"
        host.idle_since = since = time.monotonic()

        def retire() -> None:
            if host.idle_since == since and not host.doomed:
                self.doom(host)

        self._loop.after(self._options.idle_s, retire)

    def _assign(self, host: Host, job: Job) -> None:
        """Send a call to a host. Raises `WorkerError` if it cannot be sent; the host stays."""
        host.idle_since = None
        try:
            address = job.tool.address
            if address is None:
                raise WorkerError(f"tool {job.tool.name!r} has no address to be imported from")
            path = _file_of(address)
            if path and path not in host.files:
                host.files[path] = _changed_at(path)
            self._remember(address)
            host.channel.send(self._call_frame(job, address))
        except (WorkerError, ValueError, TypeError, RecursionError, OSError) as error:
            self._set_idle(host)
            raise WorkerError(f"the call cannot be sent to a process: {error}") from error
        host.job = job
        self.by_call[job.call] = host
        if job.contract.start_s is not None:
            self._loop.after(job.contract.start_s, lambda: self._give_up_loading(host, job))

    def _give_up_loading(self, host: Host, job: Job) -> None:
        """An import that hangs must not keep a host for ever, also if its call was withdrawn."""
        if host.job is not job or host.claimed or host.doomed:
            return
        self.release(host)
        self.doom(host)
        message = f"its tool was not loaded within {job.contract.start_s:g} s"
        self._tell(StartFailed(call=job.call, message=message))
        self.feed()

    def _call_frame(self, job: Job, address: str) -> dict[str, Any]:
        unset = object()
        carried = {
            name: to_data(value, where=f"context variable {name}")
            for name, variable in self._options.carry.items()
            if (value := job.context.get(variable, unset)) is not unset
        }
        return {
            "t": "call",
            "call": job.call,
            "tool": job.tool.name,
            "address": address,
            "arguments": job.arguments,
            "kwargs": _as_data(job.kwargs),
            "context_param": job.tool.context_param,
            "effect_key": job.effect_key,
            "carry": carried,
            "cwd": os.getcwd(),
        }

    def _remember(self, address: str) -> None:
        self._known[address] = None
        while len(self._known) > _PRELOAD_MAX:
            del self._known[next(iter(self._known))]

    def release(self, host: Host) -> None:
        """The host's call is over for whoever looks."""
        if host.job is not None and self.by_call.get(host.job.call) is host:
            del self.by_call[host.job.call]

    def free(self, host: Host, *, reuse: bool = True) -> None:
        """The host has no call any more: keep it warm, or let it go."""
        self.release(host)
        host.forget_call()
        if reuse and not self.closed:
            self._set_idle(host)
        else:
            self.doom(host)
        self.feed()

    def doom(self, host: Host, then: Callable[[Ended], None] | None = None) -> None:
        """Kill the host with its tree, on a thread of its own; then tell."""
        assert not host.doomed, "a host is ended once"
        bound_s = KILL_S if host.job is None else host.job.contract.kill_s
        host.idle_since = None
        self.hosts.remove(host)
        self.ending.add(host)
        control = host.detach_lines()

        def end() -> None:
            ended = host.end(control, bound_s)
            self._loop.post(lambda: self._gone(host, ended, then))

        threading.Thread(target=end, name="endstop-kill", daemon=True).start()

    def _gone(self, host: Host, ended: Ended, then: Callable[[Ended], None] | None) -> None:
        self.ending.discard(host)
        self.release(host)
        if then is not None:
            then(ended)
        self.feed()
        self.end_loop_if_done()

    def end_loop_if_done(self) -> None:
        """After `close`: nothing is left to wait for once the last host is gone."""
        if self.closed and not self.hosts and not self.ending:
            self._loop.end()


def _file_of(address: str) -> str | None:
    where = address.rpartition(":")[0]
    return where if where.endswith(".py") else None


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _outdated(host: Host) -> bool:
    return any(_changed_at(path) != seen for path, seen in host.files.items())


def _as_data(kwargs: dict[str, Any]) -> dict[str, Any] | None:
    try:
        made = to_data(kwargs, strict=True)
    except Unserialisable:
        return None
    return made if isinstance(made, dict) else None
