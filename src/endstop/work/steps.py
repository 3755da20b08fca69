"""One step of foreign code beside a body: its end is kept as a value and never reaches the loop.

For bodies that talk to a peer in several steps, each with a bound of its own. A plain function runs
on a daemon thread: it must not block the loop, and nobody ever joins it (law 19 any-payload).
Nothing here decides what a step's end means.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from typing import Any

from endstop.work.thread import DaemonThreads

THREADS = 256
"""Threads for the plain functions of all peers; a step that finds none free waits for one."""

_threads = DaemonThreads(THREADS, "endstop-agent")
# The loop keeps only weak references to tasks, and a step may outlive whoever began it.
_running: set[asyncio.Task[Any]] = set()


class Step:
    """A step that has begun; `value` or `error` is there when its task is done."""

    __slots__ = ("error", "on_loop", "task", "value")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.on_loop = False
        self.task = asyncio.get_running_loop().create_task(self._run(function, arguments))
        _running.add(self.task)
        self.task.add_done_callback(_running.discard)

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.task.done()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most `timeout_s`; returns whether it is over. Never stops it."""
        if not self.task.done():
            await asyncio.wait({self.task}, timeout=timeout_s)
        return self.task.done()

    def stop(self) -> None:
        """Ask it to stop, once nobody is interested in its end any more; a thread goes on."""
        self.task.cancel()

    async def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            if inspect.iscoroutinefunction(function):
                answer = function(*arguments)
            else:
                answer = await on_thread(function, *arguments)
            if inspect.isawaitable(answer):
                # From here on a stop of the task is felt by the function itself.
                self.on_loop = True
                answer = await answer
            self.value = answer
        except BaseException as error:
            self.error = error


def on_thread(
    function: Callable[..., Any], *arguments: Any, threads: DaemonThreads = _threads
) -> asyncio.Future[Any]:
    """Run a plain function on a thread, in the caller's context variables; its end as a future.

    `threads` are others than those of all peers, for what could take all of these.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(settle: Callable[..., None], what: Any) -> None:
        if not done.done():
            settle(what)

    def work() -> None:
        try:
            value = context.run(function, *arguments)
        except BaseException as error:
            # A future takes no StopIteration, and a task that re-raised a SystemExit ends the loop.
            failure = error if isinstance(error, Exception) else Raised(error)
            if isinstance(error, StopIteration):
                failure = RuntimeError(f"it raised {error!r:.200}")
            outcome: tuple[Callable[..., None], Any] = (done.set_exception, failure)
        else:
            outcome = (done.set_result, value)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, *outcome)

    threads.queue(work)
    return done


class Raised(Exception):
    """A plain function raised what is no ordinary error: SystemExit, a cancel, an interrupt."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
