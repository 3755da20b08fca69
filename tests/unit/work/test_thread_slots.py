"""A thread's slot passes from one call to the next, and none is refused because of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from endstop import BlockingRuntime, Config, Outcome, Runtime, ToolCall, tool
from endstop.config import SlotLimits
from endstop.errors import RuntimeClosed
from endstop.work.thread import DaemonThreads

TWO = Config(slots=SlotLimits(thread=2))


def calls(n: int) -> list[ToolCall]:
    return [ToolCall(model_id=f"c{i}", tool="count", arguments={}) for i in range(n)]


def test_law_9_more_calls_than_threads_all_run() -> None:
    seen: list[int] = []

    @tool(resources=())
    def count() -> None:
        seen.append(threading.get_ident())

    with BlockingRuntime([count], config=TWO) as rt:
        batch = rt.execute(calls(200))
    assert {result.outcome for result in batch} == {Outcome.SUCCEEDED}
    assert len(seen) == 200
    assert 1 <= len(set(seen)) <= 2


def test_law_9_a_withdrawn_call_leaves_its_slot_to_one_that_runs() -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    @tool(resources=(), grace=30)
    def count() -> None:
        started.release()
        release.wait(30)

    async def story() -> list[Outcome]:
        async with Runtime([count], config=TWO) as rt, rt.run() as run:
            batch = asyncio.create_task(run.execute(calls(6)))
            for _ in range(2):
                await asyncio.to_thread(started.acquire)
            waiting = [view.call_id for view in rt.calls() if view.phase == "queued"]
            assert len(waiting) == 4
            for call in waiting[::2]:
                await rt.cancel(call)
            release.set()
            return [result.outcome for result in await batch]

    outcomes = asyncio.run(story())
    assert outcomes.count(Outcome.CANCELLED) == 2
    assert outcomes.count(Outcome.SUCCEEDED) == 4


def test_jobs_wait_for_a_thread_and_are_not_refused_by_queue() -> None:
    threads = DaemonThreads(1, "test")
    gate, done = threading.Event(), threading.Semaphore(0)
    assert threads.submit(lambda: (gate.wait(30), done.release())[1])
    assert not threads.submit(done.release), "submit refuses when every thread is taken"
    for _ in range(3):
        threads.queue(done.release)
    assert not threads.submit(done.release), "nor does it pass the jobs that wait"
    gate.set()
    for _ in range(4):
        assert done.acquire(timeout=30)
    threads.close()
    with pytest.raises(RuntimeClosed, match="closed"):
        threads.queue(done.release)
