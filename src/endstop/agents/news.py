"""Agents: news of a run for the loop that drives it, without polling (law 7 every-wait-listens).

One observer per runtime, however many loops there are; it only rings. News are what a loop may have
to react to at once: words of a user, calls that were taken in, a stop, a closing, an end.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from endstop.agents import notes
from endstop.core import events as e
from endstop.errors import NotFound
from endstop.run.runtime import Runtime

NEWS = (
    e.RunCancelled,
    e.RunClosing,
    e.RunSuspending,
    e.RunInterrupted,
    e.RunEnded,
    # What was said just before it must still reach it.
    e.BatchOpened,
)


class News:
    """A bell that rings when something happened to one run; belongs to one event loop.

    It rings between `listen` and `close`, which may be called in turn, and once more when the run
    is over.
    """

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self._board = _board_of(runtime)
        self._run = run_id
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None
        # Heard also where an observer that is slow keeps the others from being told (law 18). A run
        # that is not here any more is over.
        with suppress(NotFound):
            runtime.engine.promise(run_id).then(self.ring)

    def listen(self) -> None:
        """Ring for what happens from now on."""
        self._board.enter(self._run, self)

    def close(self) -> None:
        """Ring no more."""
        self._board.leave(self._run, self)

    def ring(self) -> None:
        """Something happened; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            return

    def _wake(self) -> None:
        self._rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, task: asyncio.Task[Any] | None, due: float | None) -> None:
        """Wait for a ring, for the end of `task`, or for the instant `due` of the loop's clock.

        Returns at once where it rang since the last wait. Cancelling the wait leaves the task.
        """
        if not self._rung:
            waiter = self._waiter = self._loop.create_future()
            waiting: set[asyncio.Future[Any]] = {waiter} if task is None else {waiter, task}
            timeout = None if due is None else max(0.0, due - self._loop.time())
            try:
                await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._waiter = None
                waiter.cancel()
        self._rung = False


class _Board:
    """Who waits for news of which run of one runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[News, ...]] = {}

    def enter(self, run_id: str, news: News) -> None:
        with self._lock:
            self._waiting[run_id] = (*self._waiting.get(run_id, ()), news)

    def leave(self, run_id: str, news: News) -> None:
        with self._lock:
            left = tuple(one for one in self._waiting.get(run_id, ()) if one is not news)
            if left:
                self._waiting[run_id] = left
            else:
                self._waiting.pop(run_id, None)

    def seen(self, event: e.Event) -> None:
        """The observer of the runtime."""
        if (isinstance(event, e.Noted) and event.kind == notes.USER) or isinstance(event, NEWS):
            for news in self._waiting.get(event.run, ()):
                news.ring()


_boards: WeakKeyDictionary[Runtime, _Board] = WeakKeyDictionary()
_making = threading.Lock()


def _board_of(runtime: Runtime) -> _Board:
    with _making:
        board = _boards.get(runtime)
        if board is None:
            board = _boards[runtime] = _Board()
            runtime.observe(board.seen)
        return board
