"""The cost of a call that does nothing, beside the barest way to run the same function.

Every body counts itself, and every sample is refused whose count or answers are not complete.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import Pair, Sample, Side, Stopwatch, compare, in_turn, interleave
from benchmarks.rows import Row, beside, plain
from endstop import BatchResult, BlockingRuntime, Config, Run, Runtime, Tool, ToolCall, tool
from endstop.config import SlotLimits
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Journal
from endstop.store.sqlite import SqliteJournal

THREADS = 8
CALLS = 1000
"""Calls in one sample, in as many batches as that makes."""


class Counter:
    """Counts what really ran; `bump` is one C call, from any thread."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self.bump = self._count.__next__

    def take(self) -> int:
        """How many since the last time."""
        so_far = next(self._count)
        self._count = itertools.count()
        self.bump = self._count.__next__
        return so_far


counter = Counter()


async def noop_async() -> None:
    """Does nothing, on the loop."""
    counter.bump()


def noop_plain() -> None:
    """Does nothing, on a thread."""
    counter.bump()


RESOURCES: dict[str, dict[str, Any]] = {
    "none": {"resources": ()},
    "one key": {"resources": ("tool:shared-by-all",)},
    "undeclared": {},
}


def make_tool(mode: str, resources: str, effect: str) -> Tool:
    """The no-op tool with this contract; the function is the one that the floor calls."""
    fn = noop_async if mode == "async" else noop_plain
    return tool(name="noop", effect=effect, **RESOURCES[resources])(fn)


def make_calls(n: int) -> list[ToolCall]:
    """The calls of one reply, made before the clock runs."""
    return [ToolCall(model_id=f"call_{i}", tool="noop", arguments={}) for i in range(n)]


def check(results: list[BatchResult], calls: int) -> None:
    """Refuse a sample in which not every call ran and succeeded exactly once."""
    ran = counter.take()
    answers = sum(result.ok for batch in results for result in batch)
    if ran != calls or answers != calls:
        raise AssertionError(f"{calls} calls were asked for, {ran} ran, {answers} succeeded")


def batches_in_a_sample(n: int) -> int:
    """Enough batches that a sample is long beside the clock's grain and the scheduler's slice."""
    return max(1, CALLS // n)


# --- the floors ---------------------------------------------------------------------------------


async def _gathered(n: int) -> Sample:
    watch = Stopwatch()
    batches = batches_in_a_sample(n)
    with watch:
        for _ in range(batches):
            await asyncio.gather(*[noop_async() for _ in range(n)])
    check_floor(n * batches)
    return watch.sample(n * batches)


def check_floor(calls: int) -> None:
    """The floor does the same work, or it is no floor."""
    ran = counter.take()
    if ran != calls:
        raise AssertionError(f"the floor ran {ran} of {calls} calls")


def _submitted(pool: ThreadPoolExecutor, n: int) -> Sample:
    watch = Stopwatch()
    batches = batches_in_a_sample(n)
    with watch:
        for _ in range(batches):
            futures = [pool.submit(noop_plain) for _ in range(n)]
            for future in futures:
                future.result()
    check_floor(n * batches)
    return watch.sample(n * batches)


Settle = Callable[[], None]
"""Waits until the journal has written what it was given; a sample without it would flatter."""


def nothing_to_write() -> None:
    """The memory journal never lags behind."""


# --- ours ---------------------------------------------------------------------------------------


async def _in_run(run: Run, calls: list[ToolCall], settle: Settle) -> Sample:
    watch = Stopwatch()
    batches = batches_in_a_sample(len(calls))
    results: list[BatchResult] = []
    settle()
    with watch:
        for _ in range(batches):
            batch = await run.execute(calls)
            results.append(batch)
        settle()
    check(results, len(calls) * batches)
    return watch.sample(len(calls) * batches)


def _in_blocking_run(runtime: BlockingRuntime, calls: list[ToolCall], settle: Settle) -> Sample:
    watch = Stopwatch()
    batches = batches_in_a_sample(len(calls))
    results: list[BatchResult] = []
    with runtime.run() as run:
        settle()
        with watch:
            for _ in range(batches):
                batch = run.execute(calls)
                results.append(batch)
            settle()
    check(results, len(calls) * batches)
    return watch.sample(len(calls) * batches)


def config() -> Config:
    """As many threads as the floor has."""
    return Config(slots=SlotLimits(thread=THREADS))


# --- pairs --------------------------------------------------------------------------------------


class LoopRunner:
    """One loop and one runtime for all rounds, the way a program has them."""

    def __init__(self, tool_: Tool, journal: Journal | None) -> None:
        self._runner = asyncio.Runner()
        self.runtime = Runtime([tool_], journal=journal, config=config())

    def __enter__(self) -> LoopRunner:
        self._runner.__enter__()
        self._runner.run(self.runtime.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self.runtime.close())
        self._runner.close()

    def wait(self, make: Callable[[], Awaitable[Sample]]) -> Sample:
        """Run one sample on the loop."""

        async def whole() -> Sample:
            return await make()

        return self._runner.run(whole())

    async def sample(self, calls: list[ToolCall], settle: Settle) -> Sample:
        """One sample in a run that is opened before the clock starts and closed after it stops."""
        async with self.runtime.run() as run:
            return await _in_run(run, calls, settle)


@contextmanager
def sides(
    mode: str, n: int, *, resources: str, effect: str, journal: SqliteJournal | None = None
) -> Iterator[tuple[Side, Side]]:
    """The floor of a mode, and ours with this contract."""
    calls = make_calls(n)
    noop = make_tool(mode, resources, effect)
    settle = nothing_to_write if journal is None else journal.flush
    # One ended run is kept: else the heap, and with it the collector's work, grew with the rounds.
    where = MemoryJournal(ended_max=1) if journal is None else journal
    with ThreadPoolExecutor(THREADS) as pool:
        if mode == "blocking":
            with BlockingRuntime([noop], journal=where, config=config()) as blocking:
                yield lambda: _submitted(pool, n), lambda: _in_blocking_run(blocking, calls, settle)
            return
        with LoopRunner(noop, where) as loop:

            def floor() -> Sample:
                if mode == "async":
                    return loop.wait(lambda: _gathered(n))
                return _submitted(pool, n)

            yield floor, lambda: loop.wait(lambda: loop.sample(calls, settle))


def measure(mode: str, n: int, rounds: int, *, resources: str, effect: str) -> Pair:
    """One pair: this mode with this contract, beside the floor of the mode."""
    with sides(mode, n, resources=resources, effect=effect) as (floor, ours):
        return interleave(floor, ours, rounds)


FLOORS = {
    "async": "asyncio.gather",
    "threaded": f"ThreadPoolExecutor({THREADS})",
    "blocking": f"ThreadPoolExecutor({THREADS})",
}
TARGETS = {"async": 5.0, "threaded": 4.0, "blocking": 4.0}
GOALS = {"async": 4.0, "threaded": 2.5, "blocking": 2.5}


def noop_row(
    name: str, mode: str, n: int, rounds: int, *, resources: str = "none", effect: str = "effectful"
) -> Row:
    """One row of the table of no-op calls, with the memory journal."""
    pair = measure(mode, n, rounds, resources=resources, effect=effect)
    promised = n >= 100 and resources == "none"
    return beside(
        pair,
        name=name,
        mode=mode,
        n=n,
        floor=FLOORS[mode],
        target=TARGETS[mode] if promised else None,
        goal=GOALS[mode] if promised else None,
        journal="memory",
        resources=resources,
        effect=effect,
        executed=n * batches_in_a_sample(n) * (rounds + 1),
    )


SIZES = (1, 10, 100, 1000)
ROUNDS, QUICK_ROUNDS = 15, 2


def noop(quick: bool) -> Iterator[Row]:
    """The main table: no resources, every size, every driver."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for mode in ("async", "threaded", "blocking"):
        for n in SIZES:
            yield noop_row("noop", mode, n, rounds)


def noop_read_only(quick: bool) -> Iterator[Row]:
    """The same for a tool that only reads."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for mode in ("async", "threaded", "blocking"):
        for n in (100, 1000):
            yield noop_row("noop-read-only", mode, n, rounds, effect="read_only")


def noop_one_key(quick: bool) -> Iterator[Row]:
    """Every call wants the same resource: one after the other, in request order."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for n in SIZES:
        yield noop_row("noop-one-key", "async", n, rounds, resources="one key")


def noop_undeclared(quick: bool) -> Iterator[Row]:
    """A tool that declares nothing takes `tool:<name>`: the default is one after the other."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for mode in ("async", "threaded"):
        for n in (1, 100, 1000) if mode == "threaded" else SIZES:
            yield noop_row("noop-undeclared", mode, n, rounds, resources="undeclared")


FLAT_MAX = 1.25


def linear(quick: bool) -> Iterator[Row]:
    """Whether a call costs the same among 1,000 as among 100, all four sides in turn."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for mode in ("async", "threaded", "blocking"):
        with (
            sides(mode, 100, resources="none", effect="effectful") as (low_floor, low),
            sides(mode, 1000, resources="none", effect="effectful") as (high_floor, high),
        ):
            a, b, c, d = in_turn(rounds, low_floor, low, high_floor, high)
        few, many = compare(a, b), compare(c, d)
        yield plain(
            "linear",
            mode,
            1000,
            many.ratio / few.ratio,
            "× of n=100",
            target=FLAT_MAX,
            journal="memory",
            resources="none",
            effect="effectful",
            rounds=rounds,
            executed=2 * CALLS * (rounds + 1),
            note=f"CPU per call {few.ours.cpu_us:.1f} µs at 100, {many.ours.cpu_us:.1f} at 1,000",
        )
