"""Bodies in processes of their own, which can be killed with everything that they started.

Theory of operation. A *host* (`host.py`) is a small process that never runs foreign code; it forks
a *runner* (`runner.py`), in which bodies run one at a time, warm and again and again. Both talk
frames (`wire.py`) to this worker: the runner on the channel (calls, claims, ends), the host on the
control line (output, leftovers, how the runner died). All state is kept by one thread, the loop
(`ioloop.py`): the hosts in `pool.py`, their calls in `calls.py`. What blocks, which is sweeping a
process tree (`tree.py`), gets a thread of its own.

    start ─► call ─► claim? ─► told Claimed, yes ─► body ─► end ─► settled ─► told BodyEnded
                        └─ no: nothing runs            └─ leftovers: swept first

What an ending means is decided by what *we* did and not by what came back (design, "What our
own stop causes is never the body's result"):

* a body that ended by itself before we sent any signal: as it says, also after a cooperative stop;
* a body that we signalled (SIGTERM or SIGKILL): stopped, whatever value or exit code comes;
* a runner or host that died without us: lost, with how it died.

What a call leaves behind without having declared it detached is killed, also when it returned: a
returned result stays returned, and a progress message names what was stopped. A host that could not
be proved clean, that holds threads of a body, or whose tool file has changed is not used again.

Nothing here may decide whether a call runs, wait on the loop, or signal a process by number.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from endstop.core.inputs import StartFailed
from endstop.core.terms import Isolation
from endstop.errors import CallerError
from endstop.work import tree
from endstop.work.calls import Calls
from endstop.work.excerpt import OUTPUT_BYTES
from endstop.work.ioloop import IoLoop
from endstop.work.jobs import DetachedJob
from endstop.work.pool import KILL_S, PoolOptions
from endstop.work.protocol import Job, Sight, Tell
from endstop.work.wire import FRAME_BYTES

__all__ = ["DetachedJob", "ProcessWorker"]


class ProcessWorker:
    """Runs bodies in warm host processes and kills their whole tree (law 11 whole-tree).

    `slots` bounds the hosts (the core never grants more). `carry` names context variables as
    "module:VARIABLE" whose JSON-able values are set around the body. `frame_bytes` bounds arguments
    and results, `output_bytes` what is kept of stdout and of stderr, head and tail. A host that is
    idle for `idle_s` seconds is retired. With `spare`, one host more than is in use is kept ready,
    within `slots`.
    """

    kind = Isolation.PROCESS

    def __init__(
        self,
        tell: Tell,
        *,
        slots: int = 8,
        carry: Sequence[str] = (),
        frame_bytes: int = FRAME_BYTES,
        output_bytes: int = OUTPUT_BYTES,
        idle_s: float = 60.0,
        spare: bool = True,
    ) -> None:
        """Starts nothing yet. Raises `CallerError` for options that make no sense."""
        for name, value in (
            ("slots", slots),
            ("frame_bytes", frame_bytes),
            ("output_bytes", output_bytes),
        ):
            if value < 1:
                raise CallerError(f"ProcessWorker: {name} is at least 1, not {value}")
        options = PoolOptions(
            slots=slots,
            carry={name: _variable(name) for name in carry},
            frame_bytes=frame_bytes,
            output_bytes=output_bytes,
            idle_s=idle_s,
            spare=spare,
        )
        self._loop = IoLoop("endstop-process-io")
        self._tell = tell
        self._calls = Calls(self._loop, tell, options)
        _workers.add(self)

    def start(self, job: Job) -> None:
        """Begin towards the body; what cannot be started is told as `StartFailed`."""
        if not self._loop.post(lambda: self._calls.start(job)):
            self._tell(StartFailed(call=job.call, message="the process worker is closed"))

    def ask(self, call: str) -> None:
        """Send the cooperative message now; SIGTERM to the tree after a fifth of the grace, at most
        one second, unless the body has noticed by then: one that blocks is unwound by `Stopped`,
        once. Cleaning up has the whole grace either way (law 6 bounded-stop)."""
        self._loop.post(lambda: self._calls.ask(call))

    def kill(self, call: str) -> None:
        """SIGKILL the whole tree, prove it, tell `BodyEnded`; a no-op if the body is over."""
        self._loop.post(lambda: self._calls.kill(call))

    def answer(self, call: str, question: str, text: str) -> None:
        """Give a body the answer to its question; it crosses in a frame and is kept nowhere."""
        self._loop.post(lambda: self._calls.answer(call, question, text))

    def look(self, call: str) -> Sight | None:
        """Where a body is: its runner's pid, and the command lines of what it has started."""
        host = self._calls.pool.by_call.get(call)
        if host is None:
            return None
        below = [one.who for one in tree.descendants(host.who) if one.who != host.runner]
        pid = host.who.pid if host.runner is None else host.runner.pid
        stack = tuple(tree.name(who) for who in below)
        return Sight(call=call, where=f"process {pid}", stack=stack, pid=pid)

    def jobs(self) -> tuple[DetachedJob, ...]:
        """The detached jobs that are not over, oldest first."""
        return self._calls.jobs.list()

    def stop_job(self, job: str | int) -> tuple[str, ...]:
        """Kill a detached job's whole tree, by id or pid; returns survivors by name.

        Blocks for at most some seconds. Raises `NotFound` for what is no job of this worker.
        """
        return self._calls.jobs.stop(job, KILL_S)

    def close(self) -> None:
        """Take no more work, kill all hosts and what runs in them; detached jobs live on."""
        self._loop.post(self._calls.close)

    def join(self, timeout_s: float | None = None) -> bool:
        """After `close`: wait until every host is gone; false if that took too long."""
        return self._loop.join(timeout_s)

    def _forget_in_child(self) -> None:
        """After a fork, in the child: a copy of our lines would hide our end from the hosts."""
        for host in [*self._calls.pool.hosts, *self._calls.pool.ending]:
            host.forget_in_child()
        self._calls.jobs.forget_in_child()
        self._loop.forget_in_child()


def _variable(name: str) -> ContextVar[Any]:
    module, _, variable = name.rpartition(":")
    try:
        found = getattr(import_module(module), variable)
    except (ImportError, AttributeError, ValueError) as error:
        raise CallerError(f"carry: {name!r} is no 'module:VARIABLE': {error}") from error
    if not isinstance(found, ContextVar):
        raise CallerError(f"carry: {name!r} is a {type(found).__name__}, not a context variable")
    return found


def _after_fork() -> None:
    for worker in list(_workers):
        worker._forget_in_child()


_workers: weakref.WeakSet[ProcessWorker] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
