"""Coroutine bodies: one task each, on one event loop.

That loop is the runtime's own, or one of the worker loops of `work/loops.py`. A coroutine can only
be asked: a stop cancels its task once and sets the flag of its context. There is no kill, so
the core abandons a body that swallows the cancel, and this worker tells of its late end. A body
that blocks the loop blocks everything on it; it is timed step by step and reported.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any

from endstop.core.inputs import Claimed
from endstop.core.record import maker
from endstop.core.terms import Isolation
from endstop.tools.context import AsyncContext, BodyContext, enter
from endstop.work.bodythreads import Threads
from endstop.work.ending import interrupt, raised, returned
from endstop.work.protocol import Job, Sight, Tell

log = logging.getLogger("endstop.work")

_claimed = maker(Claimed)

SLOW_STEP_S = 0.1
"""A body that holds the loop longer than this in one step is reported."""

BLOCKED_S = 0.5
"""From here on the report is a warning; a shorter step may be the fault of a busy machine."""


class CoroutineWorker:
    """Runs async bodies as tasks on `loop`."""

    kind = Isolation.COROUTINE

    def __init__(self, tell: Tell, loop: asyncio.AbstractEventLoop) -> None:
        self._tell = tell
        self._loop = loop
        self._thread = threading.get_ident()
        self._bodies: dict[str, Body] = {}

    def on_loop(self, thread: int) -> None:
        """Say which thread the loop runs on, if it is not the one that made the worker."""
        self._thread = thread

    def start(self, job: Job) -> None:
        if threading.get_ident() == self._thread:
            begin(job, self._loop, self._tell, self._bodies)
        else:
            self._loop.call_soon_threadsafe(begin, job, self._loop, self._tell, self._bodies)

    def ask(self, call: str) -> None:
        body = self._bodies.get(call)
        if body is None:
            return
        body.stop()
        interrupt(body.job.tool, body)
        if threading.get_ident() == self._thread:
            body.cancel()
        else:
            self._loop.call_soon_threadsafe(body.cancel)

    def kill(self, call: str) -> None:
        """Nothing: a coroutine cannot be killed, and the ladder knows it (design §4)."""

    def answer(self, call: str, question: str, text: str) -> None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        if body is not None:
            body.answered(question, text)

    def look(self, call: str) -> Sight | None:
        body = self._bodies.get(call)
        if body is None or body.task is None:
            return None
        return Sight(call=call, where="event loop", stack=body.stack())

    def close(self) -> None:
        """Forget what is still running; its late end has nobody to tell.

        `asyncio.run` would wait for ever for a task that swallows its cancel, so a task that was
        abandoned is taken out of the list that it goes through (law 6 bounded-stop).
        """
        for body in list(self._bodies.values()):
            body.stop()
            if body.task is not None:
                asyncio._unregister_task(body.task)
                body.task._log_destroy_pending = False  # type: ignore[attr-defined]


def begin(
    job: Job,
    loop: asyncio.AbstractEventLoop,
    tell: Tell,
    bodies: dict[str, Body],
    here: Callable[[], bool] | None = None,
) -> None:
    """Make the task of a body, on the thread of its loop; it is in `bodies` until it is over.

    `here` is asked in its first step whether it is to begin here at all.
    """
    body = bodies[job.call] = Body(job, tell)
    # Not by the loop's task factory: an eager one would run the body here and now.
    run = _run(body, tell, bodies, here)
    # A context of its own: a task that is not to begin here may come to its turn while the one
    # elsewhere runs, and no two threads can be in one. And a job that kept the context of its body
    # could be freed by the collector only.
    context = job.context.copy()
    body.task = asyncio.Task(run, loop=loop, name=job.call, context=context)


async def _run(
    body: Body, tell: Tell, bodies: dict[str, Body], here: Callable[[], bool] | None
) -> None:
    """Claim, run, tell. Nothing that the body raises may reach the loop (law 19)."""
    call = body.call_id
    try:
        if here is not None:
            if not here():
                return
            # Since it was made, another attempt may have come and gone under this name.
            bodies[call] = body
        # The task is the worker: it asks at the last instant, in the same step in which the body
        # begins (law 1 one-door).
        if not tell(_claimed(call=call)):
            return
        try:
            end = returned(call, await _timed(body.begin(), body.job.tool.name))
        except BaseException as error:
            end = raised(call, error)
            # A body that is only being collected has no loop any more, and may not wait.
            if body.cancelled and not isinstance(error, GeneratorExit):
                # What it started on threads is still doing it (law 5 honest-effect).
                await body.threads.over()
        tell(end)
    finally:
        # Telling its end may have begun the next attempt.
        if bodies.get(call) is body:
            del bodies[call]
        # Its task's context knows it: else only the collector could free what a body leaves.
        body.task = None


class Body(AsyncContext):
    """One running coroutine: its context, which is all that its function sees, and its task.

    One object for both: they are made for every call.
    """

    __slots__ = ("coroutine", "job", "task", "threads")

    def __init__(self, job: Job, tell: Tell) -> None:
        AsyncContext.__init__(self, call_id=job.call, effect_key=job.effect_key, tell=tell)
        self.job = job
        self.task: asyncio.Task[None] | None = None
        self.coroutine: Any = None
        self.threads = Threads()

    def begin(self) -> Any:
        """Enter the body's context and call its function; returns the coroutine."""
        tool, kwargs = self.job.tool, self.job.kwargs
        enter(self)
        if tool.context_param is not None:
            kwargs = {**kwargs, tool.context_param: self}
        self.coroutine = tool.fn(**kwargs)
        return self.coroutine

    def cancel(self) -> None:
        """Cancel the task, once: a second native cancel would break its cleanup (law 6)."""
        task = self.task
        if task is not None:
            # Else it was over by itself, before its loop came to the stop.
            task.cancel()

    @property
    def runs(self) -> bool:
        """Whether it is in the middle of a step right now, seen from another thread."""
        return bool(getattr(self.coroutine, "cr_running", False))

    def stack(self) -> tuple[str, ...]:
        """Where the body is, the outermost line first."""
        return tuple(
            f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            for frame in self._frames()
        )

    def _frames(self) -> list[Any]:
        found: list[Any] = []
        inner = self.coroutine
        while inner is not None and len(found) < 20:
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
            if frame is not None:
                found.append(frame)
            inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
        return found


def threads_of(context: BodyContext) -> Threads | None:
    """The threads of a body, where it is one of these."""
    return context.threads if isinstance(context, Body) else None


@types.coroutine
def _timed(coroutine: Any, tool: str) -> Generator[Any, Any, Any]:
    """Await a coroutine and time each of its steps, to find the one that blocks the loop (law 19).

    What it awaits goes through untouched, in both directions.
    """
    resume, value = coroutine.send, None
    while True:
        began = monotonic()
        try:
            waits_for = resume(value)
        except StopIteration as done:
            return done.value
        finally:
            if monotonic() - began > SLOW_STEP_S:
                _report(tool, monotonic() - began)
        try:
            value = yield waits_for
            resume = coroutine.send
        except GeneratorExit:
            # Nobody will drive it any more; the collector may have closed it before this.
            coroutine.close()
            raise
        except BaseException as error:
            resume, value = coroutine.throw, error


def _report(tool: str, seconds: float) -> None:
    log.log(
        logging.WARNING if seconds >= BLOCKED_S else logging.INFO,
        "tool %s blocked its event loop for %.2f s: nothing else ran there, and if it is the "
        "runtime's own loop, no stop and no deadline either; make it a plain function, or isolate "
        "it in a process",
        tool,
        seconds,
    )
