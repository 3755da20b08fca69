"""The calls of a process worker: what their hosts say, and what an ending means.

Everything runs on the worker's loop. What an ending means is decided by what *we* did, not by what
came back; `process.py` says how. A host can speak for the one call that it has, and for no other.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from endstop.core.inputs import BodyEnded, Claimed, Progressed, StartFailed
from endstop.core.payload import safe_text
from endstop.core.terms import How
from endstop.work import tree
from endstop.work.hosts import End, Ended, Host
from endstop.work.ioloop import IoLoop
from endstop.work.jobs import Jobs
from endstop.work.pool import KILL_S, Pool, PoolOptions
from endstop.work.protocol import Job, Tell
from endstop.work.telling import decode

_SETTLE_S = 2.0
_EXIT_WAIT_S = 0.25
_TERM_SHARE = 0.2
_TERM_MAX_S = 1.0
# What is left for the sweep of a grace in which leftovers may end by themselves.
_GRACE_SHARE = 0.9
_CLOSED = "the process worker was closed before the body began"
_WITHDRAWN = "it was stopped before its body began"


class Calls:
    """Follows each call from its host's claim to its end."""

    def __init__(self, loop: IoLoop, tell: Tell, options: PoolOptions) -> None:
        self._loop = loop
        self._tell = tell
        self.pool = Pool(loop, tell, options, self._connect)
        self.jobs = Jobs(loop, self.pool.boot)
        self._settles = 0

    def _connect(self, host: Host) -> None:
        host.on_control = self._on_control
        host.on_channel = self._on_channel
        host.on_lost = self._on_lost

    def start(self, job: Job) -> None:
        """Take a job; it is claimed when a host is ready to run it."""
        if self.pool.closed:
            self._tell(StartFailed(call=job.call, message=_CLOSED))
            return
        self.pool.pending.append(job)
        self.pool.feed()

    def ask(self, call: str) -> None:
        """Send the cooperative message; SIGTERM follows after a part of the grace."""
        host = self.pool.by_call.get(call)
        if host is None or host.job is None or host.asked_at is not None or host.doomed:
            return
        host.asked_at = time.monotonic()
        host.channel.send({"t": "stop", "call": call})
        if host.claimed:
            delay_s = min(_TERM_MAX_S, _TERM_SHARE * host.job.contract.grace_s)
            self._loop.after(delay_s, lambda: self._term(host, call))

    def answer(self, call: str, question: str, text: str) -> None:
        """Hand an answer on to the body that asked."""
        host = self.pool.by_call.get(call)
        if host is not None and host.claimed and not host.doomed:
            host.channel.send({"t": "answered", "call": call, "question": question, "text": text})

    def kill(self, call: str) -> None:
        """Kill the whole tree of a call and tell its end; a no-op if its body is over."""
        for waiting in [job for job in self.pool.pending if job.call == call]:
            self.pool.pending.remove(waiting)
            self._tell(StartFailed(call=call, message=_WITHDRAWN))
        host = self.pool.by_call.get(call)
        if host is None:
            return
        host.hurry.set()
        if self._is_over(host, call):
            return
        if host.claimed:
            host.signalled = True
            self.pool.doom(host, self._stopped_end(host, call))
        else:
            self.pool.release(host)
            self.pool.doom(host)
            self._tell(StartFailed(call=call, message=_WITHDRAWN))

    def close(self) -> None:
        """End every host and what runs in it; detached jobs live on."""
        self.pool.closed = True
        for waiting in self.pool.pending:
            self._tell(StartFailed(call=waiting.call, message=_CLOSED))
        self.pool.pending.clear()
        for host in list(self.pool.hosts):
            if host.job is None:
                self.pool.doom(host)
            else:
                # One that is settling tells its own end, and is not used again.
                self.kill(host.job.call)
        self.pool.end_loop_if_done()

    def _on_channel(self, host: Host, frame: dict[str, Any]) -> None:
        if host.doomed or host.job is None or frame.get("call") != host.call:
            return
        try:
            self._take(host, host.job.call, frame)
        except (KeyError, TypeError, ValueError) as error:
            # A body can write to the channel if it means to; it only harms its own call.
            self._lost(host, f"it sent a frame that makes no sense: {error!r:.200}")

    def _take(self, host: Host, call: str, frame: dict[str, Any]) -> None:
        match frame["t"]:
            case "claim":
                yes = not host.claimed and self._tell(Claimed(call=call))
                host.claimed = host.claimed or yes
                host.channel.send({"t": "answer", "n": frame["n"], "yes": yes})
                if not yes:
                    self.pool.free(host)
            case "unstartable" if not host.claimed:
                # What a failed import left half done must not meet the next call.
                self.pool.free(host, reuse=False)
                self._tell(StartFailed(call=call, message=safe_text(frame["error"], 4000)))
            case "tell" if host.claimed and host.last is None:
                told = decode(frame, call)
                yes = told is not None and self._tell(told)
                if "n" in frame:
                    host.channel.send({"t": "answer", "n": frame["n"], "yes": yes})
            case "heard" if host.claimed:
                host.heard = True
            case "partial" if host.claimed:
                host.partial = frame["output"]
            case "detach" if host.claimed and host.last is None:
                self._detach(host, frame)
            case "end" if host.claimed and host.last is None:
                self._end(host, frame)
            case other:
                self._lost(host, f"it sent {safe_text(other, 100)!r} at the wrong time")

    def _detach(self, host: Host, frame: dict[str, Any]) -> None:
        def reply(answer: dict[str, Any]) -> None:
            if not host.doomed:
                host.channel.send({"t": "answer", "n": frame["n"], **answer})

        if host.asked_at is not None:
            reply({"error": "the call was asked to stop: nothing is started any more"})
        else:
            assert host.job is not None
            self.jobs.start(host.job.call, frame, reply)

    def _end(self, host: Host, frame: dict[str, Any]) -> None:
        """The body says that it is over; what it left behind comes first."""
        host.last = end = End.read(frame)
        look = end.forked or host.asked_at is not None
        self._settle(host, look=look)
        if not look and end.how is How.RETURNED:
            # Nothing to wait for: the host only throws away what was printed.
            self._tell_end(host, None, ())

    def _settle(self, host: Host, *, look: bool) -> None:
        """Ask the host for what was printed and, with `look`, for what still lives."""
        self._settles += 1
        host.settles = number = self._settles
        host.control.send({"t": "settle", "n": number, "look": look, "keep": False})

        def late() -> None:
            if host.settles == number and not host.doomed:
                self._lost(host, "the host does not answer")

        self._loop.after(_SETTLE_S, late)

    def _on_control(self, host: Host, frame: dict[str, Any]) -> None:
        match frame["t"]:
            case "ready":
                host.runner = tree.identify(frame["pid"])
            case "failed":
                self._lost(host, f"it could not start: {safe_text(frame['error'], 4000)}")
            case "exit":
                # The end may still lie in the channel: a body may exit right after it.
                host.channel.read()
                self._lost(host, _how_it_died(frame["status"]))
            case "settled" if frame["n"] == host.settles:
                host.settles = 0
                self._settled(host, frame)
            case _:
                return

    def _settled(self, host: Host, frame: dict[str, Any]) -> None:
        output = {key: frame[key] for key in ("stdout", "stderr") if frame[key]} or host.printed
        if frame["left"] == 0:
            self._finish(host, output, ())
            return
        if host.swept:
            # Not even a sweep made it quiet: now the runner goes as well, with its whole group.
            self._say_left(host, ("processes that start each other anew",))
            self.pool.doom(host, lambda ended: self._tell_end(host, output, ended.survivors))
            return
        host.swept = True
        self._sweep_left(host, output)

    def _sweep_left(self, host: Host, output: dict[str, str]) -> None:
        assert host.runner is not None
        scope = host.scope._replace(spared=frozenset({host.runner}))
        bound_s, patience = KILL_S, None
        if host.job is not None:
            bound_s = host.job.contract.kill_s
            if host.asked_at is not None:
                patience = host.asked_at + _GRACE_SHARE * host.job.contract.grace_s

        def sweep() -> None:
            if patience is not None:
                _let_end(scope, patience, host.hurry)
            swept = tree.sweep(scope, bound_s)
            self._loop.post(lambda: self._swept(host, output, swept))

        threading.Thread(target=sweep, name="endstop-sweep", daemon=True).start()

    def _swept(self, host: Host, output: dict[str, str], swept: tree.Swept) -> None:
        if host.doomed:
            return
        self._say_left(host, swept.ended)
        if swept.survivors:
            self._finish(host, output, swept.survivors)
        else:
            # The host has the last word on whether it is quiet below.
            host.printed = output
            self._settle(host, look=True)

    def _say_left(self, host: Host, ended: tuple[str, ...]) -> None:
        if ended and host.job is not None and host.asked_at is None:
            what = f"stopped what the call left running: {', '.join(ended[:10])}"
            self._tell(Progressed(call=host.job.call, message=safe_text(what, 2000)))

    def _finish(self, host: Host, output: dict[str, str], survivors: tuple[str, ...]) -> None:
        """The end of a call in a host that lives on."""
        assert host.last is not None, "an end is told after the body's own"
        threads = host.last.threads
        self._tell_end(host, output, survivors)
        self.pool.free(host, reuse=not survivors and not threads)

    def _tell_end(
        self, host: Host, output: dict[str, str] | None, survivors: tuple[str, ...]
    ) -> None:
        if host.job is None:
            return
        assert host.last is not None, "an end is told after the body's own"
        call, end = host.job.call, host.last
        self.pool.release(host)
        host.job = None
        how = How.STOPPED if host.signalled else end.how
        returned = how is How.RETURNED
        # What a signalled body returned is not its result, but it is what it produced.
        made = _first(end.output, host.partial, output, end.value)
        self._tell(
            BodyEnded(
                call=call,
                how=how,
                value=end.value if returned else None,
                error=None if returned else end.error,
                output=None if returned else made,
                survivors=survivors,
            )
        )

    def _term(self, host: Host, call: str) -> None:
        # A body that has noticed the stop is ending its own affairs, and has the whole grace.
        if self._is_over(host, call) or host.heard:
            return
        host.signalled = True
        scope = host.scope
        threading.Thread(
            target=tree.ask_to_end, args=(scope,), name="endstop-term", daemon=True
        ).start()

    def _is_over(self, host: Host, call: str) -> bool:
        """Whether the body ended by itself; an end that lies in the channel counts."""
        if not host.doomed:
            host.channel.read()
        return host.doomed or host.call != call or host.last is not None

    def _stopped_end(self, host: Host, call: str) -> Callable[[Ended], None]:
        def told(ended: Ended) -> None:
            self._tell(
                BodyEnded(
                    call=call,
                    how=How.STOPPED,
                    output=_first(host.partial, ended.output),
                    survivors=ended.survivors,
                )
            )

        return told

    def _on_lost(self, host: Host, control: bool, why: str) -> None:
        if host.doomed:
            return
        if control:
            self._lost(host, f"its host died: {why}")
            return

        def late() -> None:
            if not host.doomed:
                self._lost(host, "it closed its channel to the runtime")

        # How the runner died comes on the other line, most often before this is due.
        self._loop.after(_EXIT_WAIT_S, late)

    def _lost(self, host: Host, why: str) -> None:
        """The runner or host is gone or useless, and not because of us."""
        job = host.job
        if host.doomed:
            return
        if job is None:
            self.pool.doom(host)
            self.pool.feed()
            return
        message = f"the process of tool {job.tool.name!r} was lost: {why}"
        if host.last is not None:
            self.pool.doom(host, lambda ended: self._tell_end(host, ended.output, ended.survivors))
        elif host.signalled:
            self.pool.doom(host, self._stopped_end(host, job.call))
        elif host.claimed:
            self.pool.doom(host, lambda ended: self._tell_lost(host, job.call, message, ended))
        else:
            self.pool.release(host)
            self.pool.doom(host, lambda ended: self._start_failed(job.call, message, ended))

    def _start_failed(self, call: str, message: str, ended: Ended) -> None:
        printed = (ended.output or {}).get("stderr", "")
        self._tell(StartFailed(call=call, message=safe_text(f"{message}\n{printed}".strip(), 4000)))

    def _tell_lost(self, host: Host, call: str, message: str, ended: Ended) -> None:
        self._tell(
            BodyEnded(
                call=call,
                how=How.LOST,
                error=message,
                output=_first(host.partial, ended.output),
                survivors=ended.survivors,
            )
        )


def _let_end(scope: tree.Scope, deadline: float, hurry: threading.Event) -> None:
    """Tell what a stopped body left behind to end, and leave it the rest of the grace."""
    tree.ask_to_end(scope)
    while not hurry.is_set() and (now := time.monotonic()) < deadline:
        left = [one.who for one in tree.members(scope)]
        if not left or tree.wait_dead(left, min(deadline, now + 0.05)):
            return


def _first(*candidates: Any) -> Any:
    """The first that says something; of a dict, what says something."""
    for one in candidates:
        if isinstance(one, dict):
            one = {key: value for key, value in one.items() if value not in ("", None)}
        if one:
            return one
    return None


def _how_it_died(status: int) -> str:
    if status >= 0:
        return f"it exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"it was killed by signal {-status} ({name})"
