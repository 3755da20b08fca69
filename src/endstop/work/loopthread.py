"""An event loop on a daemon thread of its own, for programs that have none.

It is started when the first async body or hook needs it and is never joined: a body that blocks it
cannot hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import threading

from endstop.core.terms import Isolation
from endstop.work.coroutine import CoroutineWorker
from endstop.work.protocol import Job, Sight, Tell


class LoopThread:
    """Starts its loop at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="endstop-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    @property
    def ident(self) -> int:
        """The thread of the loop; 0 before it was started."""
        return (self._thread.ident or 0) if self._thread is not None else 0

    def close(self) -> None:
        """Ask the loop to end; not waited for."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            # One round for their cleanup; whoever swallows the cancel is left where it is.
            loop.call_later(0.1, loop.stop)
            loop.run_forever()
            if not asyncio.all_tasks(loop):
                loop.close()


class LoopThreadWorker:
    """Runs coroutine bodies on a loop thread."""

    kind = Isolation.COROUTINE

    def __init__(self, tell: Tell, thread: LoopThread) -> None:
        self._tell = tell
        self._thread = thread
        self._lock = threading.Lock()
        self._inner: CoroutineWorker | None = None

    def _worker(self) -> CoroutineWorker:
        with self._lock:
            if self._inner is None:
                self._inner = CoroutineWorker(self._tell, self._thread.loop())
                self._inner.on_loop(self._thread.ident)
            return self._inner

    def start(self, job: Job) -> None:
        self._worker().start(job)

    def ask(self, call: str) -> None:
        self._worker().ask(call)

    def kill(self, call: str) -> None:
        """Nothing: a coroutine cannot be killed, and the ladder knows it (design §4)."""

    def answer(self, call: str, question: str, text: str) -> None:
        self._worker().answer(call, question, text)

    def look(self, call: str) -> Sight | None:
        return self._worker().look(call)

    def close(self) -> None:
        self._thread.close()
