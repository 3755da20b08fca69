"""Thread bodies: a bounded pool of daemon threads that nobody ever joins.

Python cannot stop a thread. A stop raises the flag of the body's context and calls the tool's own
interrupt; a body that heeds neither is abandoned by the core, keeps its thread, its slot and its
resources, and its late end is told when it comes (law 9 on-the-books). The threads are daemons and
not registered with the interpreter's exit, so a wedged tool never holds up the end of the process;
that is why this is not concurrent.futures, whose threads are joined at exit.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from endstop.core.inputs import Claimed, StartFailed
from endstop.core.record import maker
from endstop.core.terms import Isolation
from endstop.errors import RuntimeClosed
from endstop.tools.context import Context, enter
from endstop.work.ending import interrupt, raised, returned
from endstop.work.protocol import Job, Sight, Tell
from endstop.work.stacks import stack_of

log = logging.getLogger("endstop.work")

_claimed = maker(Claimed)


class DaemonThreads:
    """Runs functions on at most `limit` warm daemon threads."""

    def __init__(self, limit: int, name: str) -> None:
        assert limit > 0, "a pool has at least one thread"
        self._limit = limit
        self._name = name
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Threads without a job, less the jobs without a thread: below 0 where jobs wait.
        self._idle = 0
        self._count = 0
        self._closed = False

    def submit(self, function: Callable[[], None], *, queue: bool = False) -> bool:
        """Run `function` on a thread; false, and nothing is run, if all are taken.

        With `queue` it waits for the next thread instead: for callers that count for themselves
        and know that one is about to be free. Raises RuntimeClosed after `close()`.
        """
        with self._lock:
            self._check_open()
            if self._idle <= 0 and self._count >= self._limit:
                return False
            self._put(function)
            return True

    def queue(self, function: Callable[[], None]) -> None:
        """Run `function` on the next thread that is free.

        For a caller that bounds by itself how many run at once. Raises RuntimeClosed after
        `close()`.
        """
        with self._lock:
            self._check_open()
            self._put(function)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("the runtime is closed; make a new one")

    def _put(self, function: Callable[[], None]) -> None:
        if self._idle > 0 or self._count >= self._limit:
            self._idle -= 1
        else:
            name = f"{self._name}-{self._count + 1}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
            self._count += 1
            assert self._count <= self._limit, "there are no more threads than the limit"
        self._jobs.put(function)

    def lend(self, threads: int) -> None:
        """Allow so many more threads, or fewer: while one waits for another, it does not count."""
        with self._lock:
            self._limit += threads
            assert self._limit > 0, "only what was lent is taken back"
            if self._idle < 0 and self._count < self._limit:
                name = f"{self._name}-{self._count + 1}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._count += 1
                self._idle += 1

    def close(self) -> None:
        """Let idle threads end; whoever is busy ends when it can, and is not waited for."""
        with self._lock:
            self._closed = True
            for _ in range(self._count):
                self._jobs.put(None)

    def _serve(self) -> None:
        while (function := self._jobs.get()) is not None:
            try:
                function()
            except BaseException:
                log.exception("a thread of endstop failed; this is a bug in endstop")
            del function
            with self._lock:
                if self._count > self._limit:
                    self._count -= 1
                    return
                # More may be queued than there are idle threads: then this one is not idle.
                self._idle += 1


class ThreadWorker:
    """Runs plain functions on a bounded pool of daemon threads."""

    kind = Isolation.THREAD

    def __init__(self, tell: Tell, limit: int) -> None:
        self._tell = tell
        self._threads = DaemonThreads(limit, "endstop-tool")
        self._bodies: dict[str, _Body] = {}

    def start(self, job: Job) -> None:
        body = self._bodies[job.call] = _Body(job, self._tell)
        # The core counts the slots, and gives one away in the moment in which an ending is told or
        # a call is withdrawn. Its thread is free only a moment later, so the call may have to wait
        # for it here; for a wedged body it never does, because that keeps its slot.
        try:
            # A copy: a job that kept the context of its body could be freed by the collector only.
            self._threads.queue(partial(job.context.copy().run, self._run, body))
        except RuntimeError as error:
            del self._bodies[job.call]
            self._tell(StartFailed(call=job.call, message=f"no thread can be started: {error}"))

    def ask(self, call: str) -> None:
        body = self._bodies.get(call)
        if body is not None:
            body.stop()
            interrupt(body.job.tool, body)

    def lend(self, threads: int) -> None:
        """Allow more threads while bodies wait for the ends of others, and take them back after."""
        self._threads.lend(threads)

    def kill(self, call: str) -> None:
        """Nothing: a thread cannot be killed, and the ladder knows it (design §4)."""

    def answer(self, call: str, question: str, text: str) -> None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        if body is not None:
            body.answered(question, text)

    def look(self, call: str) -> Sight | None:
        body = self._bodies.get(call)
        if body is None:
            return None
        stack = stack_of(body.thread or 0)
        return Sight(call=call, where=f"thread {body.thread}", stack=stack)

    def close(self) -> None:
        self._threads.close()

    def _run(self, body: _Body) -> None:
        call, tell = body.call_id, self._tell
        body.thread = threading.get_ident()
        try:
            if not tell(_claimed(call=call)):
                return
            try:
                end = returned(call, body.run())
            except BaseException as error:
                end = raised(call, error)
            tell(end)
        finally:
            # Telling its end may have begun the next attempt.
            if self._bodies.get(call) is body:
                del self._bodies[call]


class _Body(Context):
    """One running function: its context, which is all that it sees, and its thread.

    One object for both: they are made for every call.
    """

    __slots__ = ("job", "thread")

    def __init__(self, job: Job, tell: Tell) -> None:
        Context.__init__(self, call_id=job.call, effect_key=job.effect_key, tell=tell)
        self.job = job
        self.thread: int | None = None

    def run(self) -> Any:
        """Run the function; on its own thread, in the caller's context variables."""
        tool, kwargs = self.job.tool, self.job.kwargs
        enter(self)
        if tool.context_param is not None:
            kwargs = {**kwargs, tool.context_param: self}
        return tool.fn(**kwargs)
