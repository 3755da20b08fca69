"""What a run leaves is freed when it is over, and not when the collector comes by.

A program that runs many calls would else pay for looking through all of them, again and again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

from endstop import BlockingRuntime, Runtime, ToolCall, tool

RUNS = 40
CALLS = 3


@tool(resources=[])
async def look(number: int) -> int:
    """Look at a number."""
    await asyncio.sleep(0)
    return number


@tool(resources=[])
def think(number: int) -> int:
    """Think of a number."""
    return number


def calls(name: str) -> list[ToolCall]:
    return [ToolCall(model_id=str(n), tool=name, arguments={"number": n}) for n in range(CALLS)]


@pytest.fixture
def left() -> Iterator[Callable[[], int]]:
    """How many objects only the collector can free, of those made since."""
    gc.collect()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["look", "think"])
@pytest.mark.parametrize("bodies", ["caller-loop", "own-loop"])
def test_an_async_runtime_leaves_nothing_to_the_collector(
    name: str, bodies: str, left: Callable[[], int]
) -> None:
    async def play() -> int:
        async with Runtime([look, think], bodies=bodies) as runtime:
            # What is made once is no matter.
            await runtime.execute(calls(name))
            _ = left()
            for _ in range(RUNS):
                results = await runtime.execute(calls(name))
                assert all(result.value in range(CALLS) for result in results)
            # A worker may still be on its way out of the last body.
            await asyncio.sleep(0.05)
            del results
            return left()

    assert asyncio.run(play()) < RUNS


@pytest.mark.parametrize("name", ["look", "think"])
def test_a_blocking_runtime_leaves_nothing_to_the_collector(
    name: str, left: Callable[[], int]
) -> None:
    with BlockingRuntime([look, think]) as runtime:
        _ = runtime.execute(calls(name))
        _ = left()
        for _ in range(RUNS):
            _ = runtime.execute(calls(name))
        assert left() < RUNS
