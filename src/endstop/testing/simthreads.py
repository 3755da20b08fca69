"""Testing: threads on the virtual clock of a `SimLoop`, of which one runs at a time.

Public test tool. A simulated thread is a real one that runs only while the loop waits for it: it
begins in a step of the loop, and whenever it waits it hands control back. So plain functions and
the blocking driver run as they are, in an order that the seed decides. Nothing here may wait on
anything but the hand-over.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable

from endstop.run.waiting import Bell
from endstop.testing.simloop import SimLoop
from endstop.tools.context import Context
from endstop.work.thread import DaemonThreads


class Gone(BaseException):
    """Raised in a simulated thread that will never be continued: the simulation is over."""


class SimThread:
    """One simulated thread; `SimThreads.start` makes it."""

    def __init__(self, loop: SimLoop, function: Callable[[], None], name: str) -> None:
        self.name = name
        self.over = False
        self.parked = False
        self._loop = loop
        self._function = function
        # Locks used as signals: taken by who waits, released by who lets it go on.
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._gone = False
        self._woken = False
        self._parks = 0
        self._context = contextvars.copy_context()
        self._real = threading.Thread(target=self._serve, name=name, daemon=True)

    def begin(self) -> None:
        """Run until it first waits. A step of the loop."""
        self._real.start()
        self._back.acquire()

    def _serve(self) -> None:
        _here.thread = self
        try:
            self._context.run(self._function)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - what a thread raises is reported, not lost
            self._loop.errors.append(error)
        finally:
            self.over = True
            self._back.release()

    def park(self, timeout_s: float | None) -> bool:
        """Hand control back until `wake`, or for so long; whether it was woken. On its own."""
        assert current_thread() is self, "a thread parks itself"
        if self._gone:
            raise Gone
        self._parks += 1
        timer = None
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, self._resume, self._parks)
        self.parked, self._woken = True, False
        self._back.release()
        self._go.acquire()
        if timer is not None:
            timer.cancel()
        if self._gone:
            raise Gone
        return self._woken

    def wake(self) -> None:
        """Let a parked thread go on, in a later step; once."""
        if self.parked and not self._woken:
            self._woken = True
            self._loop.call_soon(self._resume, self._parks)

    def _resume(self, park: int) -> None:
        # A timer and a wake may both come; the second must not end the next wait.
        if not self.parked or park != self._parks:
            return
        self.parked = False
        self._go.release()
        self._back.acquire()

    def end(self) -> None:
        """Unwind a thread that is still parked; what it does meanwhile reaches nobody."""
        self._gone = True
        # A body that swallows everything is left where it is: it is a daemon.
        for _ in range(20):
            if self.over or not self.parked:
                return
            self._resume(self._parks)


class SimThreads:
    """The threads of one simulation."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self._threads: list[SimThread] = []
        loop.waiting = self.listing

    def start(self, function: Callable[[], None], name: str) -> SimThread:
        """Run a function on a thread of its own, from the next step on."""
        thread = SimThread(self.loop, function, name)
        self._threads.append(thread)
        self.loop.call_soon_threadsafe(thread.begin)
        return thread

    def end(self) -> None:
        """Unwind every thread that is still parked."""
        for thread in self._threads:
            thread.end()

    def listing(self) -> list[str]:
        """The threads that are not over."""
        return [f"thread {one.name}" for one in self._threads if one.parked and not one.over]


class SimPool(DaemonThreads):
    """A bounded pool of simulated threads, for hooks."""

    def __init__(self, threads: SimThreads, limit: int) -> None:
        super().__init__(limit, "sim-hook")
        self._threads = threads
        self._left = limit
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, function: Callable[[], None], *, queue: bool = False) -> bool:
        """See `DaemonThreads.submit`."""
        self._check_open()
        if not self._left and not queue:
            return False
        self.queue(function)
        return True

    def queue(self, function: Callable[[], None]) -> None:
        """See `DaemonThreads.queue`."""
        self._check_open()
        self._waiting.append(function)
        self._begin()

    def close(self) -> None:
        """See `DaemonThreads.close`."""
        self._closed = True

    def _begin(self) -> None:
        if not self._left or not self._waiting:
            return
        self._left -= 1
        function = self._waiting.popleft()

        def work() -> None:
            try:
                function()
            finally:
                self._left += 1
                self._begin()

        self._threads.start(work, "hook")


class _Here(threading.local):
    thread: SimThread | None = None


_here = _Here()


def current_thread() -> SimThread | None:
    """The simulated thread that runs here, if one does."""
    return _here.thread


def hang(seconds: float) -> None:
    """Wait so long on the virtual clock and hear no stop: what a wedged plain function does.

    Raises RuntimeError outside of a simulated thread.
    """
    thread = current_thread()
    if thread is None:
        raise RuntimeError("hang() works inside a plain tool that runs in a simulation")
    until = thread._loop.time() + seconds
    while (left := until - thread._loop.time()) > 0:
        thread.park(left)


async def hang_async(seconds: float) -> None:
    """Wait so long on the loop's clock and swallow every cancel: what a wedged coroutine does."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


class SimContext(Context):
    """The context of a plain function on a simulated thread: it waits on the virtual clock."""

    __slots__ = ("_waiting",)

    def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """See `Context.wait_cancelled`."""
        if self.cancelled:
            return True
        thread = current_thread()
        assert thread is not None, "a simulated context is used on a simulated thread"
        self._waiting = thread
        thread.park(timeout_s)
        return self.cancelled

    def _waiter(self) -> tuple[Callable[[], None], Callable[[float | None], bool]]:
        """See `Context._waiter`."""
        thread = current_thread()
        assert thread is not None, "a simulated context is used on a simulated thread"
        woken: list[bool] = []

        def wake() -> None:
            woken.append(True)
            thread.wake()

        def wait(timeout_s: float | None) -> bool:
            if not woken:
                thread.park(timeout_s)
            return bool(woken)

        return wake, wait

    def stop(self) -> None:
        """See `BodyContext.stop`."""
        super().stop()
        waiting = getattr(self, "_waiting", None)
        if waiting is not None:
            waiting.wake()


class SimBell(Bell):
    """How the blocking driver waits in a simulation; see `run.waiting.Bell`."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[SimThread] = []

    def ring(self) -> None:
        """Wake whoever waits."""
        self._rings += 1
        for thread in self._waiting:
            thread.wake()

    def rings(self) -> int:
        """How often it was rung."""
        return self._rings

    def wait(self, seen: int, timeout_s: float | None) -> None:
        """Wait for a ring after the `seen` first ones, at most so long of virtual time."""
        thread = current_thread()
        assert thread is not None, "the blocking driver runs on a simulated thread"
        if self._rings != seen:
            return
        self._waiting.append(thread)
        try:
            thread.park(timeout_s)
        finally:
            self._waiting.remove(thread)
