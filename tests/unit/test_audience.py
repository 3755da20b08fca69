"""Observers of a real runtime that fail in every way: nothing may come of it (law 15)."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from endstop import BlockingRuntime, Runtime, ToolCall, tool
from endstop.core.events import CallSettled


@tool(resources=[])
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


CALLS = [
    ToolCall(model_id=f"c{number}", tool="double", arguments={"number": number})
    for number in range(3)
]
ERRORS = [ValueError("no"), SystemExit(1), asyncio.CancelledError(), GeneratorExit()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("journal", ["memory", "sqlite"])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
def test_whatever_an_observer_raises_the_outcome_stands(
    error: BaseException,
    journal: str,
    blocking: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settled = []
    seen_all = threading.Event()

    def fail(event: object) -> None:
        raise error

    def note(event: object) -> None:
        if isinstance(event, CallSettled):
            settled.append(event.call.rpartition(".")[2])
            if len(settled) == 2 * len(CALLS):
                seen_all.set()

    where = "memory" if journal == "memory" else str(tmp_path / "runs.db")

    async def run() -> list[object]:
        async with Runtime([double], journal=where, observers=[fail, note]) as runtime:
            first = await asyncio.wait_for(runtime.execute(CALLS), 30)
            second = await asyncio.wait_for(runtime.execute(CALLS), 30)
            return [one.value for one in (*first, *second)]

    def run_blocking() -> list[object]:
        with BlockingRuntime([double], journal=where, observers=[fail, note]) as runtime:
            first, second = runtime.execute(CALLS), runtime.execute(CALLS)
            return [one.value for one in (*first, *second)]

    with caplog.at_level(logging.CRITICAL, logger="endstop.run"):
        values = run_blocking() if blocking else asyncio.run(run())
    assert values == [0, 2, 4, 0, 2, 4]
    # A thread may still be showing what the caller was told already.
    seen_all.wait(20)
    assert sorted(settled) == ["0", "0", "1", "1", "2", "2"], "the next observer sees them all"
