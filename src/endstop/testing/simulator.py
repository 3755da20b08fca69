"""Testing: plays a story on the real drivers, on a virtual clock and in a seeded order.

Public test tool. What runs is the engine, the async `Runtime` or the `BlockingRuntime` and, for
coroutines, the real worker; threads and processes are simulated (`SimWorker`), and so are the
clock, the order and the journal's delays. After every event the laws are checked, and the promises
of the whole when it is over. The same settings give the same trace. `docs/testing.md` explains it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from endstop.config import Config
from endstop.core import events as e
from endstop.core.inputs import Claimed, Input
from endstop.core.terms import Isolation, Mode
from endstop.errors import EndstopError, NotFound
from endstop.run.audience import Audience
from endstop.run.blocking import HOOK_THREADS, BlockingRun, BlockingRuntime
from endstop.run.cancelling import BlockingCancellation
from endstop.run.handles import Run
from endstop.run.results import CallResult, CancelReport
from endstop.run.runtime import Runtime
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Journal
from endstop.testing.acting import World
from endstop.testing.laws import at_rest, check_state, check_story
from endstop.testing.promises import Log, check_bounds, check_honest, check_shown, without_rewrites
from endstop.testing.simjournal import Crashed, OutsideJournal, SimJournal
from endstop.testing.simloop import SimLoop
from endstop.testing.simthreads import SimBell, SimPool, SimThreads, current_thread
from endstop.testing.simulated import (
    Asking,
    Driver,
    Interrupt,
    Settings,
    Simulated,
    check_answers,
)
from endstop.testing.simworker import Fate, SimWorker
from endstop.tools.asking import naming
from endstop.tools.tool import Tool
from endstop.work.coroutine import CoroutineWorker
from endstop.work.protocol import Job

LATE_S = 1_000.0
"""Virtual seconds in which abandoned workers may still end, after everything was answered."""


Answer = Callable[["Sim", Any], None]


class Sim:
    """One simulation: a loop, a runtime on it, and everybody who watches."""

    def __init__(
        self,
        settings: Settings,
        *,
        tools: Callable[[Sim], Iterable[Tool]],
        config: Config | None = None,
        before: Sequence[Callable[..., Any]] = (),
        after: Sequence[Callable[..., Any]] = (),
        fate: Callable[[Job], Fate] | None = None,
        answer: Answer | None = None,
        journal: Callable[[], Journal] | None = None,
        bodies_report: bool = False,
    ) -> None:
        self.settings = settings
        self.loop = SimLoop(settings.seed, shuffle=settings.shuffle)
        self.threads = SimThreads(self.loop)
        self.world = World(self.loop, self.stop)
        self.told = Simulated(settings=settings)
        self.journal = self._journal(settings, journal)
        self.runtime: Runtime | BlockingRuntime
        self._tools = tools
        self._config = config if config is not None else Config()
        self._before = before
        self._after = after
        self._fate = fate
        self._answer = answer
        self._bodies_report = bodies_report
        self._waiters: list[asyncio.Future[Any]] = []
        self._callers: dict[str, asyncio.Future[Any]] = {}
        self._must_be_cancelled: dict[str, float] = {}
        self.runs: dict[str, Run | BlockingRun] = {}
        self.parents: set[str] = set()
        self._coroutines: CoroutineWorker | None = None
        self._closing = False
        self._opened = False

    def _journal(
        self, settings: Settings, real: Callable[[], Journal] | None
    ) -> SimJournal | OutsideJournal:
        if real is not None:
            return OutsideJournal(self.loop, real())
        most = settings.commit_s
        delay_s = None if most is None else partial(self._draw_commit_s, most)
        return SimJournal(self.loop, delay_s=delay_s, trouble=settings.trouble)

    def _draw_commit_s(self, most: float) -> float:
        return self.loop.random.random() * most

    # -- running

    def play(
        self, askings: Sequence[Asking], *, stops: Sequence[tuple[float, str, Mode]] = ()
    ) -> Simulated:
        """Run everything to its end; what came of it."""
        told = self.told
        self.loop.on_step = self._on_step
        for at, target, mode in stops:
            self.loop.call_at(at, self.stop, target, mode)
        # The same seed tells the same story, to the names in it.
        names = naming.set(map(str, itertools.count()).__next__)
        try:
            self.loop.run_until_complete(self.loop.create_task(self._story(askings), name="story"))
            self.loop.drain(self.loop.time() + LATE_S)
            self._check_whole()
        except Crashed:
            told.crashed = True
        except EndstopError as error:
            told.wrong.append(f"law 6 bounded-stop: {error}")
        finally:
            naming.reset(names)
            told.steps = self.loop.steps
            told.log = self.journal.log
            told.committed = self.journal.committed()
            if isinstance(self.journal, SimJournal):
                told.appends = self.journal.appends
            self._let_go()
        told.wrong += self.world.wrong
        return told

    def _let_go(self) -> None:
        """Unwind whoever is left; what they say meanwhile reaches nobody."""
        if self._opened:
            self.runtime.engine.journal = MemoryJournal()
            self.runtime.engine.audience = Audience(None)
        self.threads.end()
        bodies = self._coroutines._bodies.values() if self._coroutines is not None else ()
        self.loop.let_go([body.task for body in bodies if body.task is not None])

    async def _story(self, askings: Sequence[Asking]) -> None:
        self._open()
        for asking in askings:
            name = f"caller of {asking.run}"
            caller: Callable[[Asking], Coroutine[Any, Any, None]]
            caller = self._ask_async if self.settings.driver == "async" else self._ask_blocking
            self._callers[asking.run] = self.loop.create_task(caller(asking), name=name)
        if self.settings.closes_s is not None:
            await asyncio.sleep(self.settings.closes_s)
            await self._close()
        for waiter in self._callers.values():
            await asyncio.wait([waiter])
            self._note(waiter)
        for waiter in self._waiters:
            await asyncio.wait([waiter])
            self._note(waiter)
        await self._close()

    def _note(self, waiter: asyncio.Future[Any]) -> None:
        if waiter.cancelled():
            return
        error = waiter.exception()
        if error is not None:
            self.told.errors.append(error)
            lost = isinstance(error, NotFound) and "nothing here has" in str(error)
            if lost or not isinstance(error, EndstopError):
                self.told.wrong.append(f"law 4 one-answer: a caller was raised {error!r}")

    def _open(self) -> None:
        common: dict[str, Any] = {
            "tools": self._tools(self),
            "journal": self.journal,
            "config": self._config,
            "before": self._before,
            "after": self._after,
            "observers": [self._saw],
        }
        if self.settings.driver == "async":
            runtime = Runtime(**common)
            runtime._start()
            self.runtime = runtime
        else:
            blocking = BlockingRuntime(**common, clock=self.loop.time, bell=SimBell())
            blocking._ask_hook = self._ask_hook  # type: ignore[method-assign]
            self.runtime = blocking
        engine = self.runtime.engine
        engine.aside = self.loop.call_soon_threadsafe
        self.runtime._hook_threads = SimPool(self.threads, HOOK_THREADS)
        tell = engine.tell if self._bodies_report else self._tell
        coroutines = CoroutineWorker(tell, self.loop)
        # Every start takes the same number of steps, whichever driver asks for it.
        coroutines.on_loop(0)
        self._coroutines = coroutines
        engine.workers[Isolation.COROUTINE] = engine.workers[Isolation.REMOTE] = coroutines
        for kind in (Isolation.THREAD, Isolation.PROCESS):
            engine.workers[kind] = SimWorker(kind, tell, self.threads, self._fate)

        self._opened = True

    def _tell(self, said: Input) -> bool:
        """What the workers tell; a body that may begin does so in the same step."""
        taken = self.runtime.engine.tell(said)
        if taken and isinstance(said, Claimed):
            self.world.begins(said.call)
        return taken

    async def _close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if isinstance(self.runtime, Runtime):
            await self.runtime.close(suspend=self.settings.suspends)
        else:
            close = partial(self.runtime.close, suspend=self.settings.suspends)
            await self.on_thread(close, "close")

    async def _ask_async(self, asking: Asking) -> None:
        await asyncio.sleep(asking.begins_s)
        assert isinstance(self.runtime, Runtime)
        async with self.runtime.run(asking.run, limits=asking.limits) as run:
            self.told.results[asking.run] = run.batches
            self.runs[asking.run] = run
            for calls, terms in asking.batches:
                self._told_of(await run.execute(calls, **terms))

    async def _ask_blocking(self, asking: Asking) -> None:
        await asyncio.sleep(asking.begins_s)
        await self.on_thread(partial(self._ask_on_thread, asking), f"caller of {asking.run}")

    def _ask_on_thread(self, asking: Asking) -> None:
        assert isinstance(self.runtime, BlockingRuntime)
        with self.runtime.run(asking.run, limits=asking.limits) as run:
            self.told.results[asking.run] = run.batches
            self.runs[asking.run] = run
            for calls, terms in asking.batches:
                self._told_of(run.execute(calls, **terms))

    def on_thread(self, function: Callable[[], Any], name: str) -> asyncio.Future[Any]:
        """Run a function on a simulated thread; its end as a future."""
        future: asyncio.Future[Any] = self.loop.create_future()

        def work() -> None:
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - handed to whoever waits
                self.loop.call_soon_threadsafe(future.set_exception, error)
            else:
                self.loop.call_soon_threadsafe(future.set_result, value)

        self.threads.start(work, name)
        return future

    def _ask_hook(self, hook: Callable[..., Any], seen: object) -> Any:
        """An async hook under the blocking driver runs on this loop, not on a thread's own."""
        answer = hook(seen)
        if not asyncio.iscoroutine(answer):
            return answer
        thread = current_thread()
        assert thread is not None
        task = self.loop.create_task(answer)
        task.add_done_callback(lambda _: thread.wake())
        while not task.done():
            thread.park(None)
        return task.result()

    # -- stopping

    def close_run(self, name: str) -> None:
        """Close a run now, whatever it does; one that has not begun is left alone."""
        run = self.runs.get(name)
        if run is not None:
            run.close()

    def stop(self, target: str, mode: Mode = Mode.INTERRUPT) -> None:
        """Cancel a run, a batch or a call now; what does not exist (yet) is left alone."""
        engine = self.runtime.engine
        try:
            calls = engine.calls_of(target)
            cancellation = self.runtime.cancel(target, mode=mode)
        except NotFound:
            return
        self.world.must_not_begin.update(call.id for call in calls if not call.started)
        waiter: asyncio.Future[Any]
        if self.settings.driver == "async":
            waiter = self.loop.create_task(self._await_cancel(cancellation), name=f"stop {target}")
        else:
            assert isinstance(cancellation, BlockingCancellation)
            wait = cancellation.wait
            waiter = self.on_thread(lambda: self._stopped(wait()), f"stop {target}")
        self._waiters.append(waiter)

    async def _await_cancel(self, cancellation: Any) -> None:
        self._stopped(await cancellation)

    def _told_of(self, results: Iterable[CallResult]) -> None:
        """Law 15: what a caller is told is recorded, as durably as an ending has to be."""
        committed = self.journal.committed()
        self.told.wrong += [
            f"law 15 record-first: a caller was told of {result.call_id} before it was recorded"
            for result in results
            if result._settled not in committed
        ]

    def _stopped(self, report: CancelReport) -> None:
        self.told.cancels.append(report)
        self._told_of(report.ended)
        if not report.over:
            self.told.wrong.append(f"law 6 bounded-stop: the cancel of {report.target} is not over")

    def _on_step(self, step: int) -> None:
        interrupt = self.settings.interrupt
        if interrupt is not None and interrupt.at_step == step:
            self._interrupt(interrupt)

    def _interrupt(self, interrupt: Interrupt) -> None:
        if interrupt.target != "task":
            if self._opened:
                self.stop(interrupt.target, interrupt.mode)
            return
        for name, caller in self._callers.items():
            run = self.runtime.engine.state.runs.get(name) if self._opened else None
            if run is not None and run.open_batches and not caller.done():
                self._must_be_cancelled[name] = self.loop.time()
            caller.cancel()

    # -- watching

    def _saw(self, event: e.Event) -> None:
        if self.loop.halted:
            return
        self.told.trace.append((self.loop.time(), event))
        if isinstance(event, e.RunOpened) and event.parent_call is not None:
            self.parents.add(event.parent_call.partition("/")[0])
        self.told.wrong += self._check_state()
        interrupt = self.settings.interrupt
        if interrupt is not None and interrupt.after_event == len(self.told.trace):
            self._interrupt(interrupt)
        if isinstance(event, e.ApprovalAsked | e.QuestionAsked) and self._answer is not None:
            self._answer(self, event)

    def _check_state(self) -> list[str]:
        state = self.runtime.engine.state
        # A run that is over may be forgotten, but for its abandoned calls; the books of it and of
        # its parents are complete, what they were added up from is not there any more.
        partial_books = [f"law 20 paid-once: {run.id} " for run in state.runs.values() if run.ended]
        partial_books += [f"law 20 paid-once: {run} " for run in self.parents]
        wrong = [one for one in check_state(state) if not one.startswith(tuple(partial_books))]
        return without_rewrites(wrong, self.journal.log) if wrong else wrong

    def _unheard(self, log: Log) -> list[str]:
        """Law 7: a native cancel of whoever waits for a run cancels the run.

        Unless its batch ended in that very instant: then there was nothing left to cancel.
        """
        cancelled = {event.run for _, event in log if isinstance(event, e.RunCancelled)}
        closed = {(event.run, at) for at, event in log if isinstance(event, e.BatchClosed)}
        return [
            f"law 7 every-wait-listens: {run} goes on though nobody waits for it"
            for run, at in self._must_be_cancelled.items()
            if run not in cancelled and (run, at) not in closed
        ]

    def _check_whole(self) -> None:
        told, log = self.told, self.journal.log
        told.log = log
        state = self.runtime.engine.state
        whole = self.settings.trouble is None
        story = check_story([event for _, event in log], complete=whole)
        told.wrong += without_rewrites(story, log)
        told.wrong += check_shown(told.events, log, complete=whole)
        if whole:
            told.wrong += self._unheard(log)
        told.wrong += check_bounds(log, complete=whole)
        told.wrong += check_honest(log, self.world)
        told.wrong += self._check_state()
        told.wrong += check_answers(told)
        told.wrong += [f"law 19 any-payload: {error!r} escaped" for error in self.loop.errors]
        if not at_rest(state):
            left = sorted(c.id for c in state.calls.values() if c.alive or c.settled is None)
            told.wrong.append(f"law 9 on-the-books: {left} never came to rest")


__all__ = ["Asking", "Driver", "Interrupt", "Settings", "Sim", "Simulated"]
