"""How the async driver asks the hooks and shows them results: on its own loop, plain ones on
threads.

A body that runs batches of its own may live on another loop than the driver (`work/loops.py`); what
belongs to the driver's loop is handed over to it here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from endstop.core import inputs as i
from endstop.core.state import CallState
from endstop.errors import CallerError
from endstop.run.base import BaseRuntime
from endstop.run.hooks import failure_of, hook_name, preparing
from endstop.run.plans import Plan
from endstop.run.promise import Promise
from endstop.run.results import CallResult
from endstop.work.loops import LoopsWorker, WorkerLoops
from endstop.work.protocol import Tell
from endstop.work.thread import DaemonThreads

log = logging.getLogger("endstop.run")

HOOK_THREADS = 8


class AsyncHooks(BaseRuntime):
    """The hooks of an async runtime."""

    _loop: asyncio.AbstractEventLoop | None
    _thread: int
    _hook_threads: DaemonThreads
    _after_tasks: dict[str, set[asyncio.Task[None]]]
    _tasks: set[asyncio.Task[None]]

    def _start(self) -> asyncio.AbstractEventLoop:
        raise NotImplementedError

    async def _until(self, promise: Promise, on_cancel: Callable[[], Any]) -> bool:
        raise NotImplementedError

    # -- what the engine asks of a driver

    def settled(self, call: CallState) -> None:
        """See `driver.Driver`."""
        # Law 1 one-door: a call whose body never began has nothing to show.
        if call.started:
            self._on_loop(lambda: self._begin_after_hooks(call))

    def stop_hook(self, plan: Plan) -> None:
        """See `driver.Driver`."""
        self._on_loop(plan.hook_task.cancel)

    def _on_loop(self, function: Callable[[], Any]) -> None:
        if threading.get_ident() == self._thread:
            function()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _begin_preparing(self, call_id: str, run_id: str, plan: Plan) -> None:
        if not self.hooks.before:
            self._prepare_at_once(call_id, run_id, plan)
            return
        self._on_loop(lambda: self._ask_hooks(call_id, run_id, plan))

    def _ask_hooks(self, call_id: str, run_id: str, plan: Plan) -> None:
        assert self._loop is not None, "a call is prepared on a runtime that was begun"
        task = self._loop.create_task(self._prepare(call_id, run_id, plan))
        plan.hook_task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _prepare_at_once(self, call_id: str, run_id: str, plan: Plan) -> None:
        try:
            next(preparing(plan, call_id, run_id, (), self.planner))
        except StopIteration as done:
            self.engine.tell(done.value)

    async def _prepare(self, call_id: str, run_id: str, plan: Plan) -> None:
        """Drive the preparing of one call; an answer that comes too late changes nothing."""
        steps = preparing(plan, call_id, run_id, self.hooks.before, self.planner)
        try:
            hook, seen = next(steps)
            while True:
                limit_s = self.config.timeouts.hooks
                began = i.HookBegan(call=call_id, hook=f"hook {hook_name(hook)}", limit_s=limit_s)
                if not self.engine.tell(began):
                    steps.close()
                    return
                try:
                    answer = await self._ask_hook(hook, seen)
                except asyncio.CancelledError as error:
                    if plan.hook_task is not None and plan.hook_task.cancelling():
                        raise
                    hook, seen = steps.throw(RuntimeError(f"it was cancelled: {error!r}"))
                except Exception as error:
                    hook, seen = steps.throw(error)
                else:
                    hook, seen = steps.send(answer)
        except StopIteration as done:
            plan.hook_task = None
            self.engine.tell(done.value)

    async def _ask_hook(self, hook: Callable[..., Any], seen: object) -> Any:
        try:
            if inspect.iscoroutinefunction(hook):
                return await hook(seen)
            answer = await self._in_hook_thread(lambda: hook(seen))
            return await answer if inspect.isawaitable(answer) else answer
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            raise failure_of(error) from None

    async def _in_hook_thread(self, function: Callable[[], Any]) -> Any:
        """Run a plain hook off the loop: a hook that blocks must not freeze the rest (law 19)."""
        loop = self._start()
        done: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            if done.done():
                return  # Nobody waits any more: its call is over, or the hook's time is.
            try:
                value = function()
            except BaseException as error:
                failure = failure_of(error)
                tell(lambda: None if done.done() else done.set_exception(failure))
            else:
                tell(lambda: None if done.done() else done.set_result(value))

        def tell(function: Callable[[], Any]) -> None:
            # Nobody waits any more on a loop that is closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(function)

        # The wait for a free thread is part of the hook's time: wedged hooks use up only that.
        self._hook_threads.queue(work)
        return await done

    def _begin_after_hooks(self, call: CallState) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._show(self.engine.result(call)))
        tasks = self._after_tasks.setdefault(call.batch.id, set())
        tasks.add(task)

    async def _show(self, result: CallResult) -> None:
        """Let the after-hooks see a recorded result; their failures are logged, nothing more."""
        for hook in self.hooks.after:
            try:
                await asyncio.wait_for(self._ask_hook(hook, result), self.config.timeouts.hooks)
            except Exception:
                log.exception("after-hook %s failed; the result stands", hook_name(hook))

    async def _finish_after_hooks(self, batch_id: str) -> bool:
        """Wait for the after-hooks of a batch; returns whether the waiter was cancelled."""
        if self.hooks.after and self._start() is not self._loop:
            over = Promise(threading.Lock())
            self._on_loop(lambda: self._finish_for(batch_id, over))
            return await self._until(over, lambda: None)
        cancelled = False
        if self.hooks.after:
            try:
                # Bodies that ended on other threads have sent for their hooks before they kept the
                # promise of the batch: what they sent is on the loop, but it may not have run yet.
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                cancelled = True
        tasks = self._after_tasks.pop(batch_id, None)
        while tasks:
            try:
                _, tasks = await asyncio.wait(tasks)
            except asyncio.CancelledError:
                cancelled = True
        return cancelled

    def _finish_for(self, batch_id: str, over: Promise) -> None:
        """Wait for the after-hooks of a batch for somebody on another loop."""
        assert self._loop is not None, "the results of a batch are shown on the driver's loop"
        task = self._loop.create_task(self._finish_after_hooks(batch_id))
        task.add_done_callback(lambda task: over.keep())


def loops_of(bodies: str | WorkerLoops, tell: Tell) -> LoopsWorker | None:
    """The worker loops that a runtime is to have. Raises CallerError for anything else."""
    if isinstance(bodies, WorkerLoops):
        return LoopsWorker(tell, bodies)
    match bodies:
        case "caller-loop":
            return None
        case "own-loop":
            return LoopsWorker(tell)
        case _:
            raise CallerError(
                f"bodies is {bodies!r:.80}; it is 'caller-loop', 'own-loop' or WorkerLoops(...)"
            )


def resolve(waiter: asyncio.Future[None]) -> None:
    """Let a waiter go on, on its own loop's thread."""
    if not waiter.done():
        waiter.set_result(None)


def wake_there(waiter: asyncio.Future[None]) -> None:
    """Let a waiter go on, from any thread."""
    try:
        waiter.get_loop().call_soon_threadsafe(resolve, waiter)
    except RuntimeError:
        log.debug("the event loop is closed: nobody waits there any more")
