"""Coroutine bodies on worker loops: event loops on threads of their own.

A body that blocks its loop blocks what runs there and nothing else: stops, deadlines and listings
do not live there. Nothing here decides, nothing waits for a body, and no loop is joined.

Theory of operation
-------------------
All bodies share the first loop that answers, its *home*, so that what they share (a client, a lock)
belongs to one loop, as it does in a program with one loop. Whatever is posted to a loop (a start, a
stop) has to be picked up within `LATE_S`; a loop that leaves it lying is *late*: some body blocks
it. A late loop gets nothing new, and starts that lie there unclaimed are moved to the next loop
that answers, a fresh one if need be. Bodies that had begun stay where they are: a coroutine cannot
be moved. They stand still until the one that blocks lets go, and can be stopped meanwhile: their
calls end by the ladder, abandoned at its end (law 6 bounded-stop).

A late loop that answers again is used again. One that a body never lets go of is retired: it stays
late, and is on the books as what its bodies are, abandoned calls that keep their slots (law 9
on-the-books). There are at most `most` loops. Where all of them are late, a call is refused as
saturated. A loop that is not needed any more, and on which nothing was left, ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from endstop.core.inputs import StartFailed
from endstop.core.terms import Isolation
from endstop.errors import CallerError
from endstop.work.bodythreads import BodyThreads
from endstop.work.coroutine import Body, begin, threads_of
from endstop.work.ending import interrupt
from endstop.work.loopthread import LoopThread
from endstop.work.protocol import Job, Sight, Tell
from endstop.work.stacks import stack_of

log = logging.getLogger("endstop.work")

LATE_S = 0.2
"""A loop that leaves something lying for so long is late; a busy machine takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoops:
    """How coroutine bodies share worker loops.

    `per_loop` bounds how many bodies share one (None: all that answers lets them); a body that
    blocks its loop holds up at most so many others, and what bodies share must then not belong to a
    loop. `most` is the number of loops, late ones included. Raises CallerError for less than 1.
    """

    per_loop: int | None = None
    most: int = 16

    def __post_init__(self) -> None:
        for name, value in (("per_loop", self.per_loop or 1), ("most", self.most)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CallerError(f"WorkerLoops: {name} is a whole number above 0, not {value!r}")


class _Place:
    """One worker loop and what is on it. Its fields are read and written under the pool's lock."""

    def __init__(self, thread: LoopThread) -> None:
        self.thread = thread
        self.loop = thread.loop()
        self.loop.set_default_executor(BodyThreads(threads_of))
        self.bodies = 0
        self.unbegun: dict[str, Job] = {}
        self.posted = 0
        # What the loop was woken for and has not come to yet.
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        # Since when something has been lying here that was not picked up.
        self.since: float | None = None
        self.late = False


class LoopsWorker:
    """Runs coroutine bodies on worker loops; see the theory above."""

    kind = Isolation.COROUTINE

    def __init__(self, tell: Tell, terms: WorkerLoops | None = None) -> None:
        self._tell = tell
        self._terms = terms if terms is not None else WorkerLoops()
        self._bodies: dict[str, Body] = {}
        self._places: list[_Place] = []
        self._of_loop: dict[asyncio.AbstractEventLoop, _Place] = {}
        self._lock = threading.Lock()
        self._posts = threading.Condition(self._lock)
        self._watcher: threading.Thread | None = None
        self._watching = False
        self._count = 0
        self._closed = False

    # -- what the engine asks of a worker

    def start(self, job: Job) -> None:
        problem: str | None = None
        saturated = wake = False
        with self._lock:
            try:
                place = None if self._closed else self._choose()
            except (OSError, RuntimeError) as error:
                place, problem = None, f"no event loop can be started: {error}"
            if place is not None:
                place.bodies += 1
                place.unbegun[job.call] = job
                wake = self._post(place, self._begin, place, job.call)
            elif self._closed:
                problem = "the runtime is closed; make a new one"
            elif problem is None:
                saturated = True
                problem = f"all {len(self._places)} worker loops are blocked by what runs on them"
        if problem is not None:
            failed = StartFailed(call=job.call, message=problem, saturated=saturated)
            self._tell(failed)
        elif wake and place is not None:
            self._wake(place)

    def ask(self, call: str) -> None:
        body = self._bodies.get(call)
        task = body.task if body is not None else None
        if body is None or task is None:
            return
        body.stop()
        interrupt(body.job.tool, body)
        with self._lock:
            place = self._of_loop.get(task.get_loop())
            wake = place is not None and self._post(place, self._stop, place, body)
        if wake and place is not None:
            self._wake(place)

    def kill(self, call: str) -> None:
        """Nothing: a coroutine cannot be killed, and the ladder knows it (design §4)."""

    def answer(self, call: str, question: str, text: str) -> None:
        """See `work.protocol.Worker`."""
        body = self._bodies.get(call)
        if body is not None:
            body.answered(question, text)

    def look(self, call: str) -> Sight | None:
        body = self._bodies.get(call)
        task = body.task if body is not None else None
        if body is None or task is None:
            return None
        place = self._of_loop.get(task.get_loop())
        thread = place.thread.ident if place is not None else 0
        # What runs at this moment is on the stack of its thread, whatever it calls.
        stack = stack_of(thread) if body.runs and thread else body.stack()
        if not stack and body.threads.thread:
            thread = body.threads.thread
            return Sight(call=call, where=f"thread {thread}, left behind", stack=stack_of(thread))
        late = ", which it or another body blocks" if place is not None and place.late else ""
        return Sight(call=call, where=f"event loop of thread {thread}{late}", stack=stack)

    def close(self) -> None:
        """Ask every loop to end; what a body still holds up is left behind, not waited for."""
        with self._lock:
            self._closed = True
            self._posts.notify_all()
            places = tuple(self._places)
        for place in places:
            place.thread.close()

    # -- for the drivers

    def owns(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether bodies run on this loop."""
        return loop in self._of_loop

    # -- inside

    def _choose(self) -> _Place | None:
        """The loop for one more body; None where every one is late. Under the lock."""
        if self._watcher is None:
            watcher = threading.Thread(target=self._watch, name="endstop-loops", daemon=True)
            watcher.start()
            self._watcher = watcher
        awake = [place for place in self._places if not place.late]
        bound = self._terms.per_loop
        for place in awake:
            if bound is None or place.bodies < bound:
                return place
        if len(self._places) < self._terms.most:
            place = _Place(LoopThread("endstop-bodies"))
            self._places.append(place)
            self._of_loop[place.loop] = place
            return place
        return min(awake, key=lambda place: place.bodies, default=None)

    def _post(self, place: _Place, function: Callable[..., Any], *arguments: Any) -> bool:
        """Have something called on a loop, which says `_here`, and see that it comes to it.

        Under the lock. Returns whether the loop is to be woken, once for all that is posted until
        it comes to it: waking it costs more than most of what it does.
        """
        self._count += 1
        place.posted += 1
        if place.since is None:
            place.since = monotonic()
        place.calls.append((function, arguments))
        if not self._watching:
            self._watching = True
            self._posts.notify_all()
        return len(place.calls) == 1

    def _wake(self, place: _Place) -> None:
        """Not under the lock: it is the first thing that the loop asks for when it is awake."""
        try:
            place.loop.call_soon_threadsafe(self._run_calls, place)
        except RuntimeError:
            # Closed meanwhile: nobody waits any more for what was posted there.
            log.debug("a worker loop was closed before it came to what was posted to it")

    def _run_calls(self, place: _Place) -> None:
        with self._lock:
            calls, place.calls = place.calls, []
        for function, arguments in calls:
            place.loop.call_soon(function, *arguments)

    def _here(self, place: _Place) -> None:
        """Something that was posted was picked up. Under the lock."""
        place.posted -= 1
        assert place.posted >= 0, "what was posted is picked up once"
        place.since = monotonic() if place.posted else None
        if place.late:
            place.late = False
            for other in self._places:
                # Bodies go to the first loop again: the ones that stood in for it may end.
                if other is not place and not (other.bodies or other.posted or other.late):
                    other.loop.call_soon_threadsafe(self._let_go, other)

    def _begin(self, place: _Place, call: str) -> None:
        job = place.unbegun.get(call)
        if job is None:
            # It was moved, and may have begun elsewhere.
            with self._lock:
                self._here(place)
            return
        begin(job, place.loop, self._tell, self._bodies, lambda: self._may_begin(place, job))

    def _may_begin(self, place: _Place, job: Job) -> bool:
        """Asked in the first step of a body; until then its job may be moved to another loop."""
        with self._lock:
            self._here(place)
            if place.unbegun.get(job.call) is not job:
                return False
            del place.unbegun[job.call]
        task = asyncio.current_task()
        assert task is not None, "a body runs in a task"
        task.add_done_callback(lambda task: self._ended(place))
        return True

    def _stop(self, place: _Place, body: Body) -> None:
        with self._lock:
            self._here(place)
        body.cancel()

    def _ended(self, place: _Place) -> None:
        with self._lock:
            place.bodies -= 1
            assert place.bodies >= 0, "a body ends once"
        self._let_go(place)

    def _let_go(self, place: _Place) -> None:
        """End a loop that is not needed any more; asked on that loop."""
        with self._lock:
            home = next((one for one in self._places if not one.late), place)
            needed = place.bodies or place.posted or place is home or place not in self._places
            # What bodies left there is theirs: a loop with tasks on it goes on.
            if needed or asyncio.all_tasks(place.loop):
                return
            self._places.remove(place)
            del self._of_loop[place.loop]
        place.thread.close()

    def _watch(self) -> None:
        """Find the loops that are late, and start elsewhere what lies there unbegun."""
        seen = 0
        while True:
            with self._lock:
                if self._closed:
                    return
                moved, due = self._look_around(monotonic())
                if not moved:
                    # Most posts are picked up at once, and waking this thread for each of them
                    # would cost more than they do: it looks again by itself while there are any.
                    self._watching = due is not None or self._count != seen
                    seen = self._count
                    self._posts.wait((due or LATE_S) if self._watching else None)
            for job in moved:
                self.start(job)

    def _look_around(self, now: float) -> tuple[list[Job], float | None]:
        """Jobs to be started elsewhere, and in how many seconds the next loop may be late."""
        moved: list[Job] = []
        due: float | None = None
        for place in self._places:
            if place.since is None or place.late:
                continue
            left = place.since + LATE_S - now
            if left > 0:
                due = left if due is None else min(due, left)
                continue
            place.late = True
            moved += place.unbegun.values()
            place.bodies -= len(place.unbegun)
            place.unbegun.clear()
        return moved, due
