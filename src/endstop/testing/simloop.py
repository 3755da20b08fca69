"""Testing: a deterministic asyncio event loop on a virtual clock.

Public test tool. There is no selector, no socket and no waiting: when nothing is ready, time jumps
to the next timer. What is ready runs in the order of `call_soon`, as asyncio does it, or in an
order drawn from a seed. The same seed gives the same order, every time and on every machine.
Nothing here may look at a real clock, but for the bound on waiting for code outside.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

from endstop.errors import EndstopError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 200_000
TIME_MAX_S = 1_000_000.0
OUTSIDE_S = 30.0
"""How long (real time) a simulation waits for code outside of it, such as a journal's thread."""


class SimulationError(EndstopError):
    """A simulation cannot go on; the message says what it waits for."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set, but the story is not over: somebody waits for ever."""


class Runaway(SimulationError):
    """A story took more steps, or more virtual time, than it may."""


class SimLoop(asyncio.BaseEventLoop):
    """An event loop whose clock is virtual and whose order is drawn from `seed`.

    `shuffle` draws the next callback among all that are ready; without it they run first in, first
    out. `steps_max` and `time_max_s` bound one simulation. `run(coroutine)` runs a whole story;
    raises `Deadlock` where everybody waits and nobody will come, `Runaway` above a bound.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        shuffle: bool = False,
        steps_max: int = STEPS_MAX,
        time_max_s: float = TIME_MAX_S,
    ) -> None:
        super().__init__()
        self.random = random.Random(f"loop {seed}")
        self.steps = 0
        self.on_step: Callable[[int], None] | None = None
        self.errors: list[BaseException] = []
        self.waiting: Callable[[], list[str]] = list
        self._shuffle = shuffle
        self._steps_max = steps_max
        self._time_max_s = time_max_s
        self._now = 0.0
        self._handles: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self._outside = 0
        self._outside_moved = threading.Condition()
        self._stopped: BaseException | None = None
        # Also those that asyncio was told to forget: an abandoned body is unwound here, too.
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_error)

    # -- the clock and the order

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        self._handles.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio; also for threads outside of the simulation, see `outside`."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio; timers of one instant run in the order in which they were set."""
        self._check_open()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def halt(self, error: BaseException) -> None:
        """End the simulation after the step that is under way: `run` raises `error`."""
        if self._stopped is None:
            self._stopped = error

    @property
    def halted(self) -> bool:
        """Whether `halt` was called: what the rest of the step does has not happened."""
        return self._stopped is not None

    def _run_once(self) -> None:
        """One callback; time jumps when none is ready. Called by `run_forever`."""
        if self._outside:
            self._wait_outside()
        self._take_due()
        while not self._handles:
            self._jump()
            self._take_due()
        if self._shuffle:
            self._handles.rotate(-self.random.randrange(len(self._handles)))
        handle = self._handles.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._steps_max:
            raise Runaway(f"more than {self._steps_max} steps at {self._now:g} s\n{self.listing()}")
        if self.on_step is not None:
            self.on_step(self.steps)
        handle._run()
        if self._stopped is not None:
            raise self._stopped

    def _take_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            self._handles.append(heapq.heappop(self._timers)[2])

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise Deadlock(f"at {self._now:g} s nobody can go on\n{self.listing()}")
        when = self._timers[0][0]
        assert when > self._now, "what is due is ready already"
        if when > self._time_max_s:
            raise Runaway(f"more than {self._time_max_s:g} s of virtual time\n{self.listing()}")
        self._now = when

    def listing(self) -> str:
        """Who waits, and where, one line each."""
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=lambda one: one.get_name()):
            frames = task.get_stack(limit=4)
            where = " > ".join(f"{f.f_code.co_qualname}:{f.f_lineno}" for f in frames)
            lines.append(f"  {task.get_name()} at {where or 'its end'}")
        return "\n".join([*lines, *(f"  {one}" for one in self.waiting())]) or "  nobody is left"

    # -- code outside of the simulation

    def outside(self) -> Callable[[], None]:
        """Say that real code outside will come back; time stands still until it calls what this
        returns, from any thread."""
        with self._outside_moved:
            self._outside += 1

        def back() -> None:
            with self._outside_moved:
                self._outside -= 1
                self._outside_moved.notify_all()

        return back

    def _wait_outside(self) -> None:
        """Wait until all code outside is back, so that its pace does not decide the order."""
        with self._outside_moved:
            came = self._outside_moved.wait_for(lambda: not self._outside, OUTSIDE_S)
        if not came:
            raise Deadlock(f"code outside did not come back in {OUTSIDE_S:g} s\n{self.listing()}")

    # -- running

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a story to its end and close the loop; what the story returns."""
        try:
            return self.run_until_complete(self.create_task(story, name="story"))
        finally:
            self.let_go()

    def drain(self, until_s: float) -> None:
        """Run what is left, up to this instant."""
        self.call_at(max(until_s, self._now), self.stop)
        self.run_forever()

    def let_go(self, others: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Unwind whatever is left and close the loop; `others` are tasks that it did not make."""
        for task in (*self._tasks, *others):
            if task.done():
                continue
            asyncio._unregister_task(task)
            coroutine = task.get_coro()
            # Unwound here rather than by the garbage collector, which nobody can foresee.
            with suppress(Exception):
                if coroutine is not None:
                    coroutine.close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._handles.clear()
        self._timers.clear()
        self.close()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(error or SimulationError(str(context.get("message"))))

    def _check_open(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _process_events(self, event_list: object) -> None:
        raise AssertionError("a simulated loop has no selector")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector here."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they come up."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Real threads know no virtual clock. Raises `SimulationError`."""
        raise SimulationError(
            "run_in_executor and to_thread leave the virtual clock; in a simulation make the tool "
            "a plain function that waits with ctx.sleep()"
        )
