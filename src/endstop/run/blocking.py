"""The blocking driver: the same engine for programs that have no event loop.

The caller's thread is the timer: while it waits for its batch it lets happen what is due. Async
bodies run on worker loops (`work/loops.py`), hooks and handlers on a loop thread of theirs; each is
started when the first one needs it. Ctrl-C while a batch runs stops the run by the ladder, a second
one kills, and KeyboardInterrupt is raised only when every call has its answer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from endstop.config import Config
from endstop.core import inputs as i
from endstop.core.state import CallState
from endstop.core.terms import Isolation, Limits, Mode, Phase, Reason, ToolCall
from endstop.run.approvals import Handler
from endstop.run.base import BaseRuntime, BatchTerms
from endstop.run.blocking_run import BlockingRun as BlockingRun
from endstop.run.cancelling import BlockingCancellation
from endstop.run.clock import Clock, monotonic
from endstop.run.errands import Errands
from endstop.run.hooks import (
    After,
    Before,
    HookCall,
    Observer,
    Preparing,
    failure_of,
    hook_name,
    preparing,
    refusal,
)
from endstop.run.plans import Plan
from endstop.run.promise import Promise
from endstop.run.results import BatchResult, CallResult
from endstop.run.resuming import resume_blocking
from endstop.run.waiting import Bell, CtrlC
from endstop.run.waits import wait_for
from endstop.store.protocol import Journal
from endstop.tools.tool import Tool
from endstop.work.loops import LoopsWorker
from endstop.work.loopthread import LoopThread
from endstop.work.thread import DaemonThreads

log = logging.getLogger("endstop.run")

HOOK_THREADS = 8


class BlockingRuntime(BaseRuntime):
    """Runs tool calls for a caller that blocks; use it as `with BlockingRuntime(tools) as rt:`."""

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
        clock: Clock = monotonic,
        bell: Bell | None = None,
    ) -> None:
        super().__init__(
            tools,
            journal=journal,
            config=config,
            before=before,
            after=after,
            observers=observers,
            carry=carry,
            clock=clock,
        )
        self._bell = bell if bell is not None else Bell()
        self._loop_thread = LoopThread()
        self._hook_threads = DaemonThreads(HOOK_THREADS, "endstop-hook")
        self.engine.driver = self
        worker = LoopsWorker(self.engine.tell)
        # The body that talks to a peer is a coroutine, too; it has slots of its own.
        self.engine.workers[Isolation.COROUTINE] = self.engine.workers[Isolation.REMOTE] = worker
        self._ask_with(approve, self._loop_thread.loop)
        self._errands = Errands(self)
        self.engine.recover()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
    ) -> BlockingRun:
        """Open a run; see `Runtime.run`."""
        opening = self._opening(run_id, limits, parent, detached, after, labels)
        self.engine.tell(opening)
        self._errands.begin()
        return BlockingRun(self, opening.run)

    def resume(self, run_id: str) -> BlockingRun:
        """Take up a run whose driver is gone; see `Runtime.resume`."""
        return resume_blocking(self, run_id)

    def execute(self, calls: Iterable[ToolCall], **terms: Any) -> BatchResult:
        """Run the tool calls of one reply in a run of their own; see `Run.execute`."""
        with self.run() as run:
            return run.execute(calls, **terms)

    def _execute(
        self, run: BlockingRun, calls: Iterable[ToolCall], terms: BatchTerms
    ) -> BatchResult:
        with CtrlC(lambda mode: self.cancel(run.id, mode=mode)) as ctrl_c:
            batch, unprepared = self._submit(run.id, calls, terms)
            for call_id, plan in unprepared:
                self._begin_preparing(call_id, run.id, plan)
            parked = self._parking.begin()
            wait = wait_for(self.engine, batch)
            self._until(wait.over, None)
            if parked is not None:
                self._go_on(parked)
            result = self._results(wait)
            run.batches.append(result)
            self._show(wait.calls)
        if ctrl_c.pressed:
            # Every call has its answer in `run.batches` before the caller is interrupted.
            raise KeyboardInterrupt
        return result

    def _go_on(self, parked: str) -> None:
        """Let a body that waited for its own batch go on, once it has a slot again."""
        promise = self._parking.end(parked)
        if promise is not None:
            self._until(promise, None)
            self._parking.resumed(parked)

    def _until(self, promise: Promise, timeout_s: float | None) -> bool:
        """Wait until something is over, letting happen what is due; false when out of time."""
        promise.then(self._bell.ring)
        clock = self.engine.clock
        give_up = None if timeout_s is None else clock() + timeout_s
        while not promise.done:
            seen = self._bell.rings()
            due = self.engine.next_due()
            now = clock()
            if due is not None and due <= now:
                self.engine.tick()
                continue
            if give_up is not None and give_up <= now:
                return False
            if promise.done:
                break
            instants = [at for at in (due, give_up) if at is not None]
            self._bell.wait(seen, min(instants) - now if instants else None)
        return True

    # -- stopping

    def cancel(
        self,
        target: str,
        reason: Reason | str = Reason.CANCELLED_BY_USER,
        mode: Mode | str = Mode.INTERRUPT,
    ) -> BlockingCancellation:
        """Stop a run, batch or call, from any thread; accepted when this returns (law 2).

        Call `wait()` on what it returns to wait until it is over and to learn what ended how.
        Raises as `Runtime.cancel` does.
        """
        return BlockingCancellation(self, target, self._cancel(target, reason, mode))

    def suspend(self, run_id: str) -> bool:
        """Let a run go in which nothing runs; see `Runtime.suspend`."""
        over = self._begin_suspend(run_id)
        if over is None:
            return False
        self._until(over, None)
        self._check_suspended(over)
        self.engine.journal.release(run_id)
        return True

    def close(self, *, suspend: bool = False) -> None:
        """Stop what still runs (reason `shutdown`), and let go; see `Runtime.close`."""
        if self._closed:
            return
        self._closed = True
        for over in self._stop_all(suspend):
            self._until(over, None)
        self._hook_threads.close()
        self._close_handlers()
        for worker in set(self.engine.workers.values()):
            worker.close()
        self._loop_thread.close()
        self._errands.close()
        self.engine.journal.close()

    # -- what the engine asks of a driver

    def alarm(self, due: float) -> None:
        """See `driver.Driver`."""
        self._bell.ring()

    def settled(self, call: CallState) -> None:
        """See `driver.Driver`; the after-hooks are called when the batch is over."""

    def stop_hook(self, plan: Plan) -> None:
        """See `driver.Driver`. A thread cannot be stopped; what the hook answers comes too late."""
        if plan.hook_task is not None:
            plan.hook_task.cancel()

    # -- hooks

    def _begin_preparing(self, call_id: str, run_id: str, plan: Plan) -> None:
        steps = preparing(plan, call_id, run_id, self.hooks.before, self.planner)
        try:
            hook, seen = next(steps)
        except StopIteration as done:
            self.engine.tell(done.value)
            return
        # The wait for a free thread is part of the hook's time: wedged hooks use up only that.
        if not self._begin_hook(call_id, hook):
            steps.close()
            return
        try:
            self._hook_threads.queue(lambda: self._prepare(call_id, steps, hook, seen))
        except RuntimeError as error:
            words = f"no hook thread can be started: {error}"
            self.engine.tell(refusal(call_id, Reason.HOOK_FAILED, words))

    def _begin_hook(self, call_id: str, hook: Before) -> bool:
        limit_s = self.config.timeouts.hooks
        began = i.HookBegan(call=call_id, hook=f"hook {hook_name(hook)}", limit_s=limit_s)
        return self.engine.tell(began)

    def _prepare(self, call_id: str, steps: Preparing, hook: Before, seen: HookCall) -> None:
        """Drive the preparing of one call; an answer that comes too late changes nothing."""
        call = self.engine.state.calls.get(call_id)
        begun = call is not None and call.phase is Phase.PREPARING
        try:
            while begun:
                try:
                    answer = self._ask_hook(hook, seen)
                except BaseException as error:
                    hook, seen = steps.throw(failure_of(error))
                else:
                    hook, seen = steps.send(answer)
                begun = self._begin_hook(call_id, hook)
            steps.close()
        except StopIteration as done:
            self.engine.tell(done.value)

    def _ask_hook(self, hook: Callable[..., Any], seen: object) -> Any:
        answer = hook(seen)
        if not inspect.isawaitable(answer):
            return answer

        async def wait() -> Any:
            try:
                return await answer
            except Exception:
                raise
            except BaseException as error:
                raise failure_of(error) from None

        return asyncio.run_coroutine_threadsafe(wait(), self._loop_thread.loop()).result()

    def _show(self, calls: Iterable[CallState]) -> None:
        """Let the after-hooks see the recorded results; their failures are logged, nothing more.

        Law 1 one-door: a call whose body never began has nothing to show.
        """
        if not self.hooks.after:
            return
        shown = [self.engine.result(call) for call in calls if call.started]
        for hook in self.hooks.after:
            for result in shown:
                self._show_one(hook, result)

    def _show_one(self, hook: After, result: CallResult) -> None:
        over = Promise(threading.Lock())

        def work() -> None:
            try:
                self._ask_hook(hook, result)
            except BaseException:
                log.exception("after-hook %s failed; the result stands", hook_name(hook))
            finally:
                over.keep()

        limit_s = self.config.timeouts.hooks
        if not self._hook_threads.submit(work) or not self._until(over, limit_s):
            log.error("after-hook %s did not return in time; the result stands", hook_name(hook))
