"""The async driver: asyncio, on the caller's loop.

It waits on futures, is woken from any thread, and keeps one timer on the loop. All decisions are
the core's; this file only says how to wait for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from endstop.config import Config
from endstop.core import inputs as i
from endstop.core.terms import Isolation, Limits, Mode, Reason, ToolCall
from endstop.errors import CallerError, NotFound
from endstop.run.approvals import Handler
from endstop.run.base import BaseRuntime, BatchTerms
from endstop.run.clock import clock_of
from endstop.run.errands import Errands
from endstop.run.handles import Cancellation, Run
from endstop.run.hooking import HOOK_THREADS, AsyncHooks, loops_of, resolve, wake_there
from endstop.run.hooks import After, Before, Observer
from endstop.run.promise import Promise
from endstop.run.results import BatchResult
from endstop.run.resuming import resume_on
from endstop.run.waits import wait_for
from endstop.store.protocol import Journal
from endstop.tools.tool import Tool
from endstop.work.coroutine import CoroutineWorker
from endstop.work.loops import WorkerLoops
from endstop.work.protocol import Worker
from endstop.work.thread import DaemonThreads


class Runtime(AsyncHooks, BaseRuntime):
    """Runs tool calls on the loop that it is first used on.

    Use it as `async with Runtime(tools) as rt:`; leaving stops what still runs (reason `shutdown`),
    within the bounds of the stop ladder, and closes the journal.

    `bodies` says where coroutine bodies run: on this loop too ("caller-loop", the default), or on
    worker loops of their own ("own-loop", or `WorkerLoops`), where a body that blocks its loop
    cannot freeze stops, deadlines and listings (law 6 bounded-stop).
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        journal: Journal | str | None = None,
        config: Config | None = None,
        before: Sequence[Before] = (),
        after: Sequence[After] = (),
        observers: Sequence[Observer] = (),
        carry: Sequence[str] = (),
        approve: Handler | None = None,
        bodies: str | WorkerLoops = "caller-loop",
    ) -> None:
        super().__init__(
            tools,
            journal=journal,
            config=config,
            before=before,
            after=after,
            observers=observers,
            carry=carry,
            clock=_no_clock,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._apart = loops_of(bodies, self.engine.tell)
        self._timer: asyncio.TimerHandle | None = None
        self._hook_threads = DaemonThreads(HOOK_THREADS, "endstop-hook")
        self._after_tasks: dict[str, set[asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ask_with(approve, self._own_loop)
        self._errands = Errands(self)

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is loop or (self._apart is not None and self._apart.owns(loop)):
            return loop
        if self._loop is not None:
            raise CallerError("a runtime belongs to one event loop; make another for this one")
        self._check_open()
        self._loop = loop
        self._thread = threading.get_ident()
        self.engine.clock = clock_of(loop)
        self.engine.driver = self
        self.engine.shows_results = bool(self.hooks.after)
        worker: Worker = self._apart or CoroutineWorker(self.engine.tell, loop)
        # The body that talks to a peer is a coroutine, too; it has slots of its own.
        self.engine.workers[Isolation.COROUTINE] = self.engine.workers[Isolation.REMOTE] = worker
        self.engine.recover()
        return loop

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "nobody is asked before the first run"
        return self._loop

    # -- runs

    def run(
        self,
        run_id: str | None = None,
        *,
        limits: Limits | None = None,
        parent: str | None = None,
        detached: bool = False,
        after: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Run:
        """Open a run: one agent execution, which can be cancelled from this moment (law 2).

        `limits` is its budget; `parent` the call that it works for, whose cancel reaches it unless
        it is `detached`. `after` is a run that it continues: calls of which that one left unknown
        what they did are remembered (law 10). `labels` are kept with it, such as whose it is, and
        found by `journal.labelled`. Raises CallerError for an id that is taken, NotFound
        where `after` is not known here or in the journal.
        """
        self._start()
        opening = self._opening(run_id, limits, parent, detached, after, labels)
        self.engine.tell(opening)
        self._errands.begin()
        return Run(self, opening.run)

    def _prepare_run(self, labels: Mapping[str, str]) -> tuple[Run, i.OpenRun]:
        """A run to be opened in one step with its first batch, and what opens it; see `_submit`."""
        self._start()
        opening = self._opening(labels=labels)
        self._errands.begin()
        return Run(self, opening.run), opening

    async def resume(self, run_id: str) -> Run:
        """Take up a run whose driver is gone, and let it go on (law 16 survives-restart).

        What is recorded as over keeps its answer and never runs again; what had not begun goes on
        where it stood; approvals are still pending. Of what may have begun, calls of read-only and
        idempotent tools run again, under the same effect key and with what is left of their time; a
        tool with a reconciler is asked first; the outcome of the others stays unknown (law 10).
        Wait for the answers with `Run.finish`. A run that has ended comes back closed.

        Raises NotFound for a run that the journal does not know, CallerError for one that is driven
        by somebody.
        """
        self._start()
        return await resume_on(self, run_id)

    async def execute(self, calls: Iterable[ToolCall], **terms: Any) -> BatchResult:
        """Run the tool calls of one reply in a run of their own; see `Run.execute`."""
        async with self.run() as run:
            return await run.execute(calls, **terms)

    async def _execute(
        self, run: Run, calls: Iterable[ToolCall], terms: BatchTerms, note: i.Note | None = None
    ) -> BatchResult:
        """See `Run.execute`. A `note` is recorded with the calls; where the run takes none any
        more, there is no batch, and its result is empty."""
        self._start()
        batch, unprepared = self._submit(
            run.id, calls, terms, first=() if note is None else (note,)
        )
        if not batch:
            self._check_owned(run.id)
            return BatchResult(batch, [])
        for call_id, plan in unprepared:
            self._begin_preparing(call_id, run.id, plan)
        parked = self._parking.begin()
        wait = wait_for(self.engine, batch)
        cancelled = await self._until(
            wait.over,
            lambda: self.engine.tell(i.Cancel(target=run.id, reason=Reason.CANCELLED_BY_USER)),
        )
        if parked is not None:
            cancelled = await self._go_on(parked) or cancelled
        if cancelled and wait.over.error is not None:
            raise asyncio.CancelledError
        result = self._results(wait)
        run.batches.append(result)
        cancelled = await self._finish_after_hooks(batch) or cancelled
        if cancelled:
            # The results are recorded and in `run.batches`: nothing that was paid for is lost.
            raise asyncio.CancelledError
        return result

    async def _go_on(self, parked: str) -> bool:
        """Let a body that waited for its own batch go on; returns whether it was cancelled."""
        promise = self._parking.end(parked)
        if promise is None:
            return False
        cancelled = await self._until(promise, lambda: None)
        self._parking.resumed(parked)
        return cancelled

    async def _until(self, promise: Promise, on_cancel: Callable[[], Any]) -> bool:
        """Wait until something is over, whatever happens to the waiting task.

        A native cancel of the waiter is passed on once, and waited out: what it waits for ends by
        the stop ladder, which is bounded. Returns whether there was one.
        """
        loop = self._start()
        cancelled = False
        while not promise.done:
            waiter: asyncio.Future[None] = loop.create_future()
            promise.then(lambda waiter=waiter: self._wake(waiter))  # type: ignore[misc]
            try:
                await waiter
            except asyncio.CancelledError:
                if not cancelled:
                    cancelled = True
                    # A run that was let go in this moment has nothing left here to be stopped.
                    with suppress(NotFound):
                        on_cancel()
        return cancelled

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        here = threading.get_ident() == self._thread
        if here and (self._apart is None or waiter.get_loop() is self._loop):
            resolve(waiter)
        else:
            wake_there(waiter)

    # -- stopping

    def cancel(
        self,
        target: str,
        reason: Reason | str = Reason.CANCELLED_BY_USER,
        mode: Mode | str = Mode.INTERRUPT,
    ) -> Cancellation:
        """Stop a run, batch or call, from any thread; accepted when this returns (law 2).

        Await what it returns to wait until it is over and to learn what ended how. Idempotent; a
        stronger mode (`drain` < `interrupt` < `kill`) escalates. Of a run that nobody drives any
        more, the journal says at once how it ends (law 16 survives-restart). Raises NotFound for an
        unknown id and for a run that has ended, CallerError for one that another program drives.
        """
        return Cancellation(self, target, self._cancel(target, reason, mode))

    async def suspend(self, run_id: str) -> bool:
        """Let a run go in which nothing runs: it leaves memory, and anybody may resume it.

        What has not begun stays pending in the journal, approvals among it; whoever waits for the
        run here gets `RunSuspended`. False, and nothing happens, while anything of it runs, once it
        is cancelled or over, and while a run that it belongs to is still here (law 17
        children-settle). Raises NotFound for a run that is not here.
        """
        over = self._begin_suspend(run_id)
        if over is None:
            return False
        cancelled = await self._until(over, lambda: None)
        self._check_suspended(over)
        await self._in_hook_thread(lambda: self.engine.journal.release(run_id))
        if cancelled:
            raise asyncio.CancelledError
        return True

    async def close(self, *, suspend: bool = False) -> None:
        """Stop what still runs (reason `shutdown`), within the ladder's bounds, and let go.

        With `suspend`, what has not begun is not settled: its runs are let go as they are, for
        whoever resumes them (laws 15 record-first and 16 survives-restart).
        """
        if self._closed:
            return
        self._closed = True
        if self._loop is not None:
            for over in self._stop_all(suspend):
                await self._until(over, lambda: None)
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self._hook_threads.close()
        self._close_handlers()
        for worker in set(self.engine.workers.values()):
            worker.close()
        self._errands.close()
        self.engine.journal.close()

    # -- what the engine asks of a driver

    def alarm(self, due: float) -> None:
        """See `driver.Driver`."""
        if threading.get_ident() == self._thread:
            self._arm(due)
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arm, due)

    def _arm(self, due: float) -> None:
        assert self._loop is not None
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.engine.tick()

    def _on_loop(self, function: Callable[[], Any]) -> None:
        if threading.get_ident() == self._thread:
            function()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)


def _no_clock() -> float:
    raise CallerError("an async runtime is used inside a running event loop")
