"""Resuming a run on each driver: ask the reconcilers, let the run go on, wait for its answers.

The two halves say the same with another way of waiting; `resume.py` says what it means.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from endstop.core import inputs as i
from endstop.core.terms import Reason
from endstop.core.text import describe_error
from endstop.run.answers import in_order
from endstop.run.plans import Plan
from endstop.run.promise import Promise
from endstop.run.reconciling import answer_of, no_answer, question_of
from endstop.run.results import BatchResult
from endstop.run.resume import take
from endstop.run.waiting import CtrlC
from endstop.run.waits import waits_of
from endstop.tools.tool import Tool

if TYPE_CHECKING:
    from endstop.run.blocking import BlockingRuntime
    from endstop.run.blocking_run import BlockingRun
    from endstop.run.handles import Run
    from endstop.run.runtime import Runtime

SILENT = "it did not answer in time"


async def resume_on(runtime: Runtime, run_id: str, tools: Mapping[str, Tool] | None = None) -> Run:
    """See `Runtime.resume`; `tools` are those that its calls may name, if not the runtime's."""
    from endstop.run.handles import Run

    taken = take(runtime, run_id, tools)
    if taken.ended:
        over = Run(runtime, run_id)
        over.batches, over.closed = taken.results(), True
        return over
    try:
        told = await asyncio.gather(*[_ask(runtime, plan) for plan in taken.ask])
    except BaseException:
        taken.let_go()
        raise
    unprepared = taken.go_on(told)
    run = Run(runtime, run_id)
    run.batches = taken.results()
    _begin(runtime, run_id, unprepared)
    return run


def _begin(
    runtime: Runtime | BlockingRuntime, run_id: str, unprepared: list[tuple[str, Plan]]
) -> None:
    # What was asked while nobody drove it comes first, a rule that was revoked above all.
    runtime._errands.catch_up()
    for call_id, plan in unprepared:
        runtime._begin_preparing(call_id, run_id, plan)
    runtime._ask_again(run_id)


async def _ask(runtime: Runtime, plan: Plan) -> i.Reconciled:
    limit_s = runtime.config.timeouts.hooks
    try:
        answer = await asyncio.wait_for(runtime._ask_hook(*question_of(plan)), limit_s)
        return answer_of(plan, answer)
    except TimeoutError:
        return no_answer(plan, SILENT)
    except Exception as error:
        return no_answer(plan, describe_error(error))


async def finish_on(runtime: Runtime, run: Run) -> list[BatchResult]:
    """See `Run.finish`."""
    cancelled = False
    cancel = i.Cancel(target=run.id, reason=Reason.CANCELLED_BY_USER)
    known = {result.batch_id: result for result in run.batches}
    for wait in waits_of(runtime.engine, run.id):
        if wait.batch in known:
            continue
        stopped = await runtime._until(wait.over, lambda: runtime.engine.tell(cancel))
        if stopped and wait.over.error is not None:
            raise asyncio.CancelledError
        known[wait.batch] = runtime._results(wait)
        cancelled = await runtime._finish_after_hooks(wait.batch) or stopped or cancelled
    run.batches = in_order(known)
    if cancelled:
        raise asyncio.CancelledError
    return list(run.batches)


def resume_blocking(runtime: BlockingRuntime, run_id: str) -> BlockingRun:
    """See `Runtime.resume`."""
    from endstop.run.blocking_run import BlockingRun

    taken = take(runtime, run_id)
    if taken.ended:
        over = BlockingRun(runtime, run_id)
        over.batches, over.closed = taken.results(), True
        return over
    try:
        told = _ask_all(runtime, taken.ask)
    except BaseException:
        taken.let_go()
        raise
    unprepared = taken.go_on(told)
    run = BlockingRun(runtime, run_id)
    run.batches = taken.results()
    _begin(runtime, run_id, unprepared)
    return run


def _ask_all(runtime: BlockingRuntime, plans: Sequence[Plan]) -> list[i.Reconciled]:
    asked: list[tuple[Plan, Promise, list[i.Reconciled]]] = []
    for plan in plans:
        over, said = Promise(threading.Lock()), list[i.Reconciled]()

        def work(plan: Plan = plan, over: Promise = over, said: Any = said) -> None:
            try:
                said.append(answer_of(plan, runtime._ask_hook(*question_of(plan))))
            except BaseException as error:
                said.append(no_answer(plan, describe_error(error)))
            finally:
                over.keep()

        runtime._hook_threads.queue(work)
        asked.append((plan, over, said))
    limit_s = runtime.config.timeouts.hooks
    return [
        said[0] if runtime._until(over, limit_s) else no_answer(plan, SILENT)
        for plan, over, said in asked
    ]


def finish_blocking(runtime: BlockingRuntime, run: BlockingRun) -> list[BatchResult]:
    """See `Run.finish`; Ctrl-C stops the run, as in `execute`."""
    with CtrlC(lambda mode: runtime.cancel(run.id, mode=mode)) as ctrl_c:
        known = {result.batch_id: result for result in run.batches}
        for wait in waits_of(runtime.engine, run.id):
            if wait.batch not in known:
                runtime._until(wait.over, None)
                known[wait.batch] = runtime._results(wait)
                runtime._show(wait.calls)
        run.batches = in_order(known)
    if ctrl_c.pressed:
        raise KeyboardInterrupt
    return list(run.batches)
