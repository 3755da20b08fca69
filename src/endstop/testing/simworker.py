"""Testing: a worker on the virtual clock, standing in for threads and processes.

Public test tool. It runs the tools' own functions, on simulated threads, and keeps the same promise
as a real worker: claim, run, tell. What real workers meet at random is decided here by a `Fate`: a
start that is slow, fails or never comes, a worker that is lost, a kill that takes its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from endstop.core.inputs import BodyEnded, Claimed, Input, StartFailed
from endstop.core.terms import How, Isolation
from endstop.testing.simthreads import SimContext, SimThread, SimThreads
from endstop.tools.context import enter
from endstop.work.ending import interrupt, raised, returned
from endstop.work.protocol import Job, Sight, Tell

_BODY_ERRORS = (
    Exception,
    asyncio.CancelledError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What happens to one body beside what its function does; all times are virtual seconds.

    `lost_after_s`: its worker dies so long after the claim. `kill_s`: how long a kill takes; None
    for one that never succeeds.
    """

    start_s: float = 0.0
    start_fails: bool = False
    never_starts: bool = False
    lost_after_s: float | None = None
    kill_s: float | None = 0.0


PLAIN_FATE = Fate()


class SimWorker:
    """Runs plain functions on simulated threads; can kill them if `kind` is a process."""

    def __init__(
        self,
        kind: Isolation,
        tell: Tell,
        threads: SimThreads,
        fate: Callable[[Job], Fate] | None = None,
    ) -> None:
        self.kind = kind
        self._tell = tell
        self._threads = threads
        self._fate = fate
        self._bodies: dict[str, _Body] = {}

    def start(self, job: Job) -> None:
        """See `work.protocol.Worker`."""
        fate = self._fate(job) if self._fate is not None else PLAIN_FATE
        body = self._bodies[job.call] = _Body(job, fate, self._tell)
        loop = self._threads.loop
        if fate.start_fails:
            loop.call_later(fate.start_s, self._fail_to_start, body)
        elif not fate.never_starts:
            loop.call_later(fate.start_s, self._begin, body)

    def _fail_to_start(self, body: _Body) -> None:
        del self._bodies[body.job.call]
        self._tell(StartFailed(call=body.job.call, message="the simulated worker did not start"))

    def _begin(self, body: _Body) -> None:
        job = body.job
        body.thread = self._threads.start(lambda: job.context.run(self._run, body), job.call)

    def ask(self, call: str) -> None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        if body is not None:
            body.ctx.stop()
            interrupt(body.job.tool, body.ctx)

    def kill(self, call: str) -> None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        if body is None or self.kind is not Isolation.PROCESS or body.fate.kill_s is None:
            return
        self._threads.loop.call_later(body.fate.kill_s, self._gone, body, How.STOPPED)

    def _gone(self, body: _Body, how: How) -> None:
        """The worker is dead: its thread stays parked for ever and nothing that it says counts."""
        self._end(body, BodyEnded(call=body.job.call, how=how))

    def answer(self, call: str, question: str, text: str) -> None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        if body is not None:
            body.ctx.answered(question, text)

    def look(self, call: str) -> Sight | None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        return None if body is None else Sight(call=call, where=f"simulated {self.kind}")

    def close(self) -> None:
        """See `work.protocol.Worker`."""

    def _run(self, body: _Body) -> None:
        job = body.job
        if not self._tell(Claimed(call=job.call)):
            self._bodies.pop(job.call, None)
            return
        if body.fate.lost_after_s is not None:
            self._threads.loop.call_later(body.fate.lost_after_s, self._gone, body, How.LOST)
        try:
            end = returned(job.call, body.enter())
        except _BODY_ERRORS as error:
            end = raised(job.call, error)
        self._end(body, end)

    def _end(self, body: _Body, end: BodyEnded) -> None:
        if body.over:
            return
        body.over = True
        self._bodies.pop(body.job.call, None)
        self._tell(end)


class _Body:
    """One simulated body."""

    __slots__ = ("_tell", "ctx", "fate", "job", "over", "thread")

    def __init__(self, job: Job, fate: Fate, tell: Tell) -> None:
        self.job = job
        self.fate = fate
        self.over = False
        self.thread: SimThread | None = None
        self._tell = tell
        self.ctx = SimContext(call_id=job.call, effect_key=job.effect_key, tell=self._told)

    def _told(self, said: Input) -> bool:
        """A worker that is dead says nothing more."""
        return not self.over and self._tell(said)

    def enter(self) -> object:
        tool, kwargs = self.job.tool, self.job.kwargs
        enter(self.ctx)
        if tool.context_param is not None:
            kwargs = {**kwargs, tool.context_param: self.ctx}
        return tool.fn(**kwargs)
