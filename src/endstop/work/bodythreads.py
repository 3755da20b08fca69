"""The threads of coroutine bodies on worker loops: what `asyncio.to_thread` runs its function on.

A coroutine that awaits such a thread is over as soon as it is cancelled; the thread is not, and
goes on with whatever it does. It therefore belongs to the call: a body that was stopped is over
when its threads are, until then its call is stopping, and it ends by the ladder, abandoned with an
unknown effect where they take too long (laws 5 honest-effect, 6 bounded-stop and 9 on-the-books).

Nothing here is ever joined, and the threads are daemons: none of them holds up a stop, a loop or
the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from endstop.errors import CallerError
from endstop.tools.context import BodyContext, current

MOST = 128
"""Threads of one loop. Whatever comes while all of them work waits for the first that ends."""

IDLE_S = 10.0
"""A thread that found nothing to do for so long ends."""


class Threads:
    """The threads that one body is waiting for, or has left behind."""

    __slots__ = ("_working",)

    def __init__(self) -> None:
        self._working: dict[Future[Any], int] = {}

    def began(self, future: Future[Any]) -> None:
        """This thread works for the body now."""
        self._working[future] = threading.get_ident()

    def ended(self, future: Future[Any]) -> None:
        """It does no more."""
        self._working.pop(future, None)

    @property
    def working(self) -> tuple[Future[Any], ...]:
        """What is not over yet."""
        return tuple(self._working)

    @property
    def thread(self) -> int:
        """One of the threads that work; 0 where none does."""
        return next(iter(tuple(self._working.values())), 0)

    async def over(self) -> None:
        """Wait until the last of them has ended."""
        loop = asyncio.get_running_loop()
        for future in self.working:
            ended = loop.create_future()
            future.add_done_callback(partial(_tell, loop, ended))
            await ended


class BodyThreads(ThreadPoolExecutor):
    """The default executor of a worker loop.

    asyncio takes no other class for it; of the base nothing is used, since it joins its threads
    when the process ends.
    """

    def __init__(self, of: Callable[[BodyContext], Threads | None]) -> None:
        super().__init__(max_workers=1)
        self._of = of
        self._changed = threading.Condition()
        self._todo: deque[tuple[Future[Any], Threads | None, Callable[[], Any]]] = deque()
        self._count = 0
        self._idle = 0
        self._over = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on a thread; it belongs to the body that asks, if one does."""
        threads = None
        with contextlib.suppress(CallerError):
            threads = self._of(current())
        future: Future[Any] = Future()
        with self._changed:
            if self._over:
                raise RuntimeError("the loop of these threads is closed")
            self._todo.append((future, threads, partial(fn, *args, **kwargs)))
            if self._idle >= len(self._todo) or self._count >= MOST:
                self._changed.notify()
            else:
                self._start()
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="endstop-body-thread", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._count:
                self._todo.pop()
                raise
            return
        self._count += 1

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._todo or self._over, IDLE_S)
                self._idle -= 1
                if not self._todo:
                    self._count -= 1
                    return
                future, threads, function = self._todo.popleft()
            _work(future, threads, function)
            # Nothing of a call stays with a thread that waits for the next one.
            del future, threads, function

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; what works is left where it is."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


def _work(future: Future[Any], threads: Threads | None, function: Callable[[], Any]) -> None:
    # On the books first: from the next line on, no cancel can keep the function from running.
    if threads is not None:
        threads.began(future)
    try:
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)
    finally:
        if threads is not None:
            threads.ended(future)


def _tell(
    loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], future: Future[Any]
) -> None:
    def here() -> None:
        if not ended.done():
            ended.set_result(None)

    # The loop may be gone by then, and nobody waits any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(here)
