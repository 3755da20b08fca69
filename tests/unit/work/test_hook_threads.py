"""Plain hooks share a few threads; a call waits for one of them and is not refused for that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from endstop import (
    BatchResult,
    BlockingRuntime,
    CallResult,
    Config,
    HookCall,
    Outcome,
    Reason,
    Runtime,
    ToolCall,
    tool,
)
from endstop.config import Timeouts

CALLS = 100


def calls(n: int = CALLS) -> list[ToolCall]:
    return [ToolCall(model_id=f"c{i}", tool="nothing", arguments={}) for i in range(n)]


@tool(resources=())
async def nothing() -> None:
    """Does nothing."""


def on_async(**options: Any) -> BatchResult:
    async def story() -> BatchResult:
        async with Runtime([nothing], **options) as rt:
            return await rt.execute(calls())

    return asyncio.run(story())


def on_blocking(**options: Any) -> BatchResult:
    with BlockingRuntime([nothing], **options) as rt:
        return rt.execute(calls())


both = pytest.mark.parametrize("execute", [on_async, on_blocking])
Execute = Callable[..., BatchResult]


@both
def test_more_calls_than_hook_threads_are_all_asked_about_and_all_run(execute: Execute) -> None:
    asked: list[str] = []

    def before(call: HookCall) -> None:
        asked.append(call.call_id)

    batch = execute(before=[before])
    assert {result.outcome for result in batch} == {Outcome.SUCCEEDED}
    assert sorted(asked) == sorted(result.call_id for result in batch)


@both
def test_after_hooks_see_every_result(execute: Execute) -> None:
    seen: list[str] = []

    def after(result: CallResult) -> None:
        seen.append(result.call_id)

    batch = execute(after=[after])
    assert sorted(seen) == sorted(result.call_id for result in batch)


@both
def test_law_6_wedged_hooks_refuse_the_calls_behind_them_in_their_own_time(
    execute: Execute,
) -> None:
    release = threading.Event()
    asked: list[str] = []

    def before(call: HookCall) -> None:
        asked.append(call.call_id)
        release.wait(60)

    try:
        batch = execute(before=[before], config=Config(timeouts=Timeouts(hooks=0.3)))
        assert {(r.outcome, r.reason) for r in batch} == {(Outcome.REJECTED, Reason.HOOK_FAILED)}
        assert 0 < len(asked) < CALLS
    finally:
        release.set()


def test_law_1_a_call_that_is_over_is_not_asked_about() -> None:
    release, wedged = threading.Event(), threading.Semaphore(0)
    asked: list[str] = []

    def before(call: HookCall) -> None:
        asked.append(call.call_id)
        wedged.release()
        release.wait(60)

    async def story() -> BatchResult:
        async with Runtime([nothing], before=[before]) as rt, rt.run() as run:
            batch = asyncio.create_task(run.execute(calls()))
            await asyncio.to_thread(wedged.acquire)
            await run.cancel()
            return await batch

    batch = asyncio.run(story())
    before_release = len(asked)
    release.set()
    assert {result.outcome for result in batch} == {Outcome.CANCELLED}
    assert before_release < CALLS

    with BlockingRuntime([nothing], before=[before]) as rt, rt.run() as run:
        release.clear()
        asked.clear()

        def stop() -> None:
            wedged.acquire()
            run.cancel()

        stopper = threading.Thread(target=stop)
        while wedged.acquire(blocking=False):
            pass
        stopper.start()
        batch = run.execute(calls())
        stopper.join()
        assert {result.outcome for result in batch} == {Outcome.CANCELLED}
        before_release = len(asked)
        release.set()
    assert before_release < CALLS
