"""An event loop on a daemon thread of its own.

It is never joined: a body that blocks it cannot hold up the end of the process. What a task on it
raises ends that task and nothing else, a SystemExit included (law 19 any-payload).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

log = logging.getLogger("endstop.work")

CLEANUP_S = 0.1
"""How long what was left on a loop may take to end when the loop does."""


class LoopThread:
    """Starts its loop at first use."""

    def __init__(self, name: str = "endstop-loop") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises RuntimeError where no thread can be started."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._serve, args=(loop,), name=self._name, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            return self._loop

    @property
    def ident(self) -> int:
        """The thread of the loop; 0 before it was started."""
        return (self._thread.ident or 0) if self._thread is not None else 0

    def close(self) -> None:
        """Ask the loop to end; not waited for."""
        with self._lock:
            if self._loop is not None and not self._closing:
                self._closing = True
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._closing:
            try:
                loop.run_forever()
            except BaseException:
                # asyncio lets an exit that a task raised through to here; it is that task's end.
                log.exception("a task that a body left on its event loop raised an exit")
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        try:
            # Time for their cleanup; whoever swallows the cancel is left where it is.
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=CLEANUP_S))
            # Generators that were left in the middle hold things open, connections for example.
            with contextlib.suppress(TimeoutError):
                loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), CLEANUP_S))
        finally:
            if not asyncio.all_tasks(loop):
                loop.close()
