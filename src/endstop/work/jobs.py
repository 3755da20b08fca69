"""Detached jobs: commands that a body hands over, which survive its call (law 11 whole-tree).

A detached job has a host of its own, started by the runtime and not by the body, so that the tree
and the marker of the call's host never include it. It survives the call, the run, the worker and
this process, until its command ends or `stop` kills its whole tree.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from endstop.errors import NotFound, WorkerError
from endstop.work import tree
from endstop.work.hosts import Host
from endstop.work.ioloop import IoLoop

Reply = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedJob:
    """A job that outlives the call that started it.

    `id` is what `stop_job` takes, `call` the call that started it, `pid` the command's process,
    `started_at` wall-clock seconds since the epoch.
    """

    id: str
    call: str
    pid: int
    started_at: float
    command: str


class Jobs:
    """The detached jobs of one worker. `start` runs on the loop, the rest from any thread."""

    def __init__(self, loop: IoLoop, boot: Callable[[], dict[str, Any]]) -> None:
        self._loop = loop
        self._boot = boot
        self._jobs: dict[str, tuple[DetachedJob, Host]] = {}
        self._lock = threading.Lock()

    def start(self, call: str, frame: dict[str, Any], reply: Reply) -> None:
        """Start a command under a host of its own; `reply` gets its id and pid, or an error."""
        command = {"argv": frame["argv"], "cwd": frame["cwd"], "env": frame["env"]}
        try:
            host = Host(self._loop, {**self._boot(), "command": command})
        except WorkerError as error:
            reply({"error": str(error)})
            return
        began = time.time()

        def on_control(host: Host, said: dict[str, Any]) -> None:
            match said["t"]:
                case "ready":
                    job = DetachedJob(
                        id=host.marker[:12],
                        call=call,
                        pid=said["pid"],
                        started_at=began,
                        command=frame["label"],
                    )
                    with self._lock:
                        self._jobs[job.id] = (job, host)
                    reply({"job": job.id, "pid": job.pid})
                case "failed":
                    reply({"error": said["error"].strip().splitlines()[-1]})
                case _:
                    # It tells how its command ended; the job is over when all of it is.
                    return

        # A job's host has no use for the second line.
        host.channel.release().close()
        host.on_control = on_control
        host.on_lost = self._lost

    def _lost(self, host: Host, control: bool, why: str) -> None:
        with self._lock:
            self._jobs = {key: kept for key, kept in self._jobs.items() if kept[1] is not host}
        # It ends by itself now; its zombie is ours to collect.
        threading.Thread(target=host.process.wait, name="endstop-reap", daemon=True).start()

    def list(self) -> tuple[DetachedJob, ...]:
        """The jobs that are not over, oldest first."""
        with self._lock:
            # Asked of the system, because nobody listens to its line once the worker is closed.
            for key, (_, host) in list(self._jobs.items()):
                if not tree.alive(host.who):
                    host.process.poll()
                    del self._jobs[key]
            return tuple(job for job, _ in self._jobs.values())

    def stop(self, job: str | int, bound_s: float) -> tuple[str, ...]:
        """Kill the whole tree of a job, by id or by pid; returns the survivors by name.

        Blocks, at most about `bound_s`. Raises `NotFound` for what is no job (any more).
        """
        with self._lock:
            found = [
                (key, host)
                for key, (one, host) in self._jobs.items()
                if job == one.id or (isinstance(job, int) and job == one.pid)
            ]
            for key, _ in found:
                del self._jobs[key]
        if not found:
            raise NotFound(f"no detached job {job!r}: it is over, or never was one of this worker")
        (_, host) = found[0]
        first = tree.sweep(host.scope, bound_s, prove=False)
        tree.send(host.who, signal.SIGKILL)
        tree.wait_dead([host.who], time.monotonic() + bound_s)
        proof = tree.sweep(host.scope, bound_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            host.process.wait(0.5)
        return proof.survivors or first.survivors

    def forget_in_child(self) -> None:
        """After a fork, in the child: the lines belong to the parent alone."""
        for _, host in self._jobs.values():
            host.forget_in_child()
