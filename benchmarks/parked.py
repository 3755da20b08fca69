"""Runs that wait for a human: what each keeps, what all cost while nothing happens, and a wake."""

from __future__ import annotations

import asyncio
import statistics
import tracemalloc
from collections.abc import Iterator
from time import perf_counter, process_time

from benchmarks.footprint import held_kb
from benchmarks.noop import Counter
from benchmarks.rows import Row, plain
from endstop import BatchResult, Runtime, ToolCall, tool

PARKED, QUICK = 10_000, 500
IDLE_S = 2.0
WOKEN = 100


def parked(quick: bool) -> Iterator[Row]:
    """Many runs in one process, each with one call that waits for its approval."""
    n = QUICK if quick else PARKED
    kb, idle, wake_us, list_us = asyncio.run(_parked(n))
    rest = {"journal": "memory", "effect": "effectful", "executed": WOKEN}
    yield plain(
        "parked-memory", "async", n, kb, "KB/run", note="the task that waits included", **rest
    )
    yield plain("parked-idle", "async", n, idle, "ms CPU/s", note=f"over {IDLE_S:g} s", **rest)
    yield plain(
        "parked-wake", "async", n, wake_us, "us", note="approve to result, median of 100", **rest
    )
    yield plain("parked-list", "async", n, list_us, "us", note="pending(), per question", **rest)


async def _parked(n: int) -> tuple[float, float, float, float]:
    ran = Counter()

    @tool(resources=(), approval="always")
    async def pay(to: str, amount: int) -> str:
        ran.bump()
        return f"{amount} to {to}"

    async def one(rt: Runtime, number: int) -> BatchResult:
        arguments = {"to": f"customer {number}", "amount": number}
        async with rt.run(f"r{number}") as run:
            return await run.execute([ToolCall(model_id="c", tool="pay", arguments=arguments)])

    async with Runtime([pay]) as rt:
        tracemalloc.start()
        try:
            start = held_kb()
            waiting = [asyncio.create_task(one(rt, number)) for number in range(n)]
            while len(rt.engine.state.approvals) < n:
                await asyncio.sleep(0)
            kb = (held_kb() - start) / n
        finally:
            tracemalloc.stop()
        cpu = process_time()
        await asyncio.sleep(IDLE_S)
        idle = (process_time() - cpu) / IDLE_S * 1e3
        began = perf_counter()
        listed = len(rt.pending())
        list_us = (perf_counter() - began) / listed * 1e6
        took = []
        for number in range(0, n, n // WOKEN):
            began = perf_counter()
            rt.approve(f"r{number}/0.0")
            (result,) = await waiting[number]
            took.append(perf_counter() - began)
            if not result.ok:
                raise AssertionError(f"a call that was approved did not run: {result}")
        if ran.take() != WOKEN or listed != n:
            raise AssertionError("not as many waited and ran as should")
        for number in range(n):
            if not waiting[number].done():
                rt.reject(f"r{number}/0.0")
        await asyncio.gather(*waiting)
    return kb, idle, statistics.median(took) * 1e6, list_us
