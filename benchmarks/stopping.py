"""How fast a stop is, and what waiting costs.

Every row says what was stopped and checks that it was: the bodies counted, the processes gone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks import bodies
from benchmarks.measure import Sample, Stopwatch, interleave
from benchmarks.noop import QUICK_ROUNDS, ROUNDS, Counter, LoopRunner
from benchmarks.rows import Row, beside, plain
from endstop import AsyncContext, Context, Outcome, Run, Runtime, Tool, ToolCall, tool
from endstop.core.events import CallSettled
from endstop.work.shell import shell

WAITERS = 100
HOLDS_S = 1.0
HOLDS_AT_LEAST_S = 0.2
"""How long the cancel comes after the holder has begun."""
WAITERS_MS, COROUTINE_MS, TREE_MS = 10.0, 5.0, 100.0
READY_S = 30.0

KEY: dict[str, Any] = {"resources": ("tool:shared-by-all",), "grace": 30.0}


def call(name: str, **arguments: object) -> ToolCall:
    """One prebuilt call."""
    return ToolCall(model_id="", tool=name, arguments=arguments)


async def until(ready: Callable[[], bool]) -> None:
    """Poll for what gives no other sign; far from any clock."""
    give_up = perf_counter() + READY_S
    while not ready():
        if perf_counter() > give_up:
            raise AssertionError(f"not ready after {READY_S:g} s")
        await asyncio.sleep(0.002)


# --- waiters ------------------------------------------------------------------------------------


class Queue:
    """A holder that heeds nothing for a second, and those that wait behind it."""

    def __init__(self, mode: str) -> None:
        self.started = Counter()
        self.holding = threading.Event()
        started, holding = self.started, self.holding

        @tool(**KEY)
        def hold() -> None:
            holding.set()
            time.sleep(HOLDS_S)

        @tool(name="wait", **KEY)
        async def wait_async() -> None:
            started.bump()

        @tool(name="wait", **KEY)
        def wait_plain() -> None:
            started.bump()

        self.tools = [hold, wait_async if mode == "async" else wait_plain]

    async def story(self) -> tuple[float, int, int]:
        """Milliseconds from the cancel to the last waiter's ending, bodies begun, threads taken."""
        settled: list[tuple[float, Outcome]] = []

        def watch(event: object) -> None:
            if isinstance(event, CallSettled) and not event.call.endswith(".0"):
                settled.append((perf_counter(), event.outcome))

        self.holding.clear()
        asked_calls = [call("hold"), *[call("wait") for _ in range(WAITERS)]]
        async with Runtime(self.tools, observers=[watch]) as rt, rt.run() as run:
            before = threading.active_count()
            batch = asyncio.create_task(run.execute(asked_calls))
            await until(self.holding.is_set)
            await asyncio.sleep(HOLDS_AT_LEAST_S)
            threads = threading.active_count() - before - 1
            asked = perf_counter()
            cancelled = run.cancel()
            results = await batch
            await cancelled
        outcomes = {outcome for _, outcome in settled}
        if len(settled) != WAITERS or outcomes != {Outcome.CANCELLED} or len(results) <= WAITERS:
            raise AssertionError(f"{len(settled)} waiters settled, as {outcomes}")
        return (max(at for at, _ in settled) - asked) * 1e3, self.started.take(), threads


def waiters(quick: bool) -> Iterator[Row]:
    """100 calls behind a holder of one second, cancelled while they wait."""
    rounds = 1 if quick else 5
    for mode in ("async", "threaded"):
        queue = Queue(mode)
        told = [asyncio.run(queue.story()) for _ in range(rounds)]
        common: dict[str, Any] = {
            "journal": "memory",
            "resources": "one key",
            "effect": "effectful",
        }
        yield plain(
            "waiters",
            mode,
            WAITERS,
            statistics.median(ms for ms, _, _ in told),
            "ms",
            target=WAITERS_MS,
            rounds=rounds,
            note="from the cancel until the last waiter was settled and shown to an observer; "
            f"worst {max(ms for ms, _, _ in told):.2f} ms",
            **common,
        )
        begun = sum(begun for _, begun, _ in told)
        yield plain(
            "waiters-begun", mode, WAITERS, begun, "bodies", target=0, rounds=rounds, **common
        )
        threads = max(threads for _, _, threads in told)
        yield plain(
            "waiters-threads", mode, WAITERS, threads, "threads", target=0, rounds=rounds, **common
        )


# --- one call stopped ---------------------------------------------------------------------------


async def stop_once(run: Run, asked: ToolCall, ready: Callable[[], bool]) -> float:
    """Milliseconds from the cancel of a running call until its ending and its proof are there."""
    batch = asyncio.create_task(run.execute([asked]))
    await until(ready)
    began = perf_counter()
    report = await run.cancel()
    took_ms = (perf_counter() - began) * 1e3
    (result,) = await batch
    if not report.over or result.outcome is not Outcome.CANCELLED or result.alive:
        raise AssertionError(f"it was not stopped: {result!r}, survivors {result.survivors}")
    return took_ms


def stops(
    name: str,
    mode: str,
    tools: list[Tool],
    once: Callable[[Runtime], Awaitable[float]],
    rounds: int,
) -> Row:
    """The median of several stops on one warm runtime."""

    async def story() -> list[float]:
        async with Runtime(tools) as rt:
            return [await once(rt) for _ in range(rounds + 1)][1:]

    took = asyncio.run(story())
    targets = {"cancel-coroutine": COROUTINE_MS, "cancel-tree": TREE_MS}
    return plain(
        name,
        mode,
        1,
        statistics.median(took),
        "ms",
        target=targets.get(name),
        journal="memory",
        effect="effectful",
        rounds=rounds,
        executed=rounds + 1,
        note=f"best {min(took):.2f} ms, worst {max(took):.2f} ms",
    )


def cancel_coroutine(quick: bool) -> Iterator[Row]:
    """A coroutine that heeds the cancel."""
    running = threading.Event()

    @tool(resources=())
    async def rest(ctx: AsyncContext) -> None:
        running.set()
        await asyncio.sleep(60)

    async def once(rt: Runtime) -> float:
        running.clear()
        async with rt.run() as run:
            return await stop_once(run, call("rest"), running.is_set)

    yield stops("cancel-coroutine", "async", [rest], once, 5 if quick else 50)


def cancel_thread(quick: bool) -> Iterator[Row]:
    """A thread that sleeps in `ctx.sleep`."""
    running = threading.Event()

    @tool(resources=())
    def rest(ctx: Context) -> None:
        running.set()
        ctx.sleep(60)

    async def once(rt: Runtime) -> float:
        running.clear()
        async with rt.run() as run:
            return await stop_once(run, call("rest"), running.is_set)

    yield stops("cancel-thread", "threaded", [rest], once, 5 if quick else 50)


FAMILY = "sleep 60 & echo $! >>{0}/pids; (sleep 60 & echo $! >>{0}/pids; : >{0}/ready; wait) & wait"


def cancel_tree(quick: bool) -> Iterator[Row]:
    """A shell with a child and a grandchild; the time includes the proof that all are gone."""

    async def once(rt: Runtime) -> float:
        with TemporaryDirectory(prefix="endstop-bench-") as folder:
            place = Path(folder)
            async with rt.run() as run:
                asked = call("shell", command=FAMILY.format(folder))
                took_ms = await stop_once(run, asked, (place / "ready").exists)
            pids = [int(pid) for pid in (place / "pids").read_text().split()]
        if len(pids) != 2 or any(alive(pid) for pid in pids):
            raise AssertionError(f"processes are left of {pids}")
        return took_ms

    yield stops("cancel-tree", "process", [shell], once, 3 if quick else 15)


def alive(pid: int) -> bool:
    """Whether a process of that number is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def process_call(quick: bool) -> Iterator[Row]:
    """A warm call of a process tool, beside a warm `ProcessPoolExecutor(1)`."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    times = 20
    nothing = tool(isolation="process", resources=())(bodies.nothing)
    asked = [call("nothing")]

    async def ours_in(rt: Runtime) -> Sample:
        watch = Stopwatch()
        async with rt.run() as run:
            with watch:
                results = [(await run.execute(asked))[0] for _ in range(times)]
        if not all(result.ok for result in results):
            raise AssertionError(f"a call did not succeed: {results}")
        return watch.sample(times)

    with ProcessPoolExecutor(1) as pool, LoopRunner(nothing, None) as loop:

        def floor() -> Sample:
            watch = Stopwatch()
            with watch:
                for _ in range(times):
                    pool.submit(bodies.nothing).result()
            return watch.sample(times)

        pair = interleave(floor, lambda: loop.wait(lambda: ours_in(loop.runtime)), rounds)
    yield beside(
        pair,
        name="process-call",
        mode="process",
        n=1,
        floor="ProcessPoolExecutor(1)",
        journal="memory",
        resources="none",
        effect="effectful",
        executed=times * (rounds + 1),
        note="CPU is that of this process alone; look at the wall time",
    )
