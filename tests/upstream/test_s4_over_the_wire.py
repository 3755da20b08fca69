"""S4 · inference-gateway/adk #112, with its own timeline, against a server on a socket.

A task of more than ten seconds is cancelled after one, as a stream and in the background. In the
original the answer was "canceled", the work ran on for eleven seconds and the task was "completed".
What really happens is read from a file that the body writes every ten milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.wire.executors import Order
from tests.wire.harness import Caller, House, house, state_of
from tests.wire.noise import Noise
from tests.wire.ticks import Ticks

TICK_S = 0.01
WHOLE_S = 10.5
CANCELLED_AFTER_S = 1.0
STOPPED_WITHIN_S = 0.1


def order(ticks: Ticks) -> Order:
    return Order(do="work", file=ticks.file, ticks=int(WHOLE_S / TICK_S), every_s=TICK_S)


async def cancelled_after_a_second(client: Caller, ticks: Ticks, task: str) -> None:
    """Cancels when the body has worked for a second, and looks at what it does from then on."""
    await asyncio.sleep(CANCELLED_AFTER_S)
    with Noise() as noise:
        asked = time.time()
        answer = await client.cancel(task)
        await asyncio.sleep(0.5)
    assert state_of(answer) == "CANCELED"
    ticked = [line.at for line in ticks.lines() if line.word == "tick"]
    assert len(ticked) > 10, "it did not work at all; this proves nothing"
    ran_on_s = max(0.0, ticked[-1] - asked)
    assert ran_on_s <= STOPPED_WITHIN_S + noise.worst_s, f"the body ran on for {ran_on_s:.3f} s"
    assert await client.state(task) == "CANCELED"


async def streaming(client: Caller, ticks: Ticks) -> str:
    stream = client.stream(order(ticks))
    await ticks.seen("tick")
    task = (await stream.until("WORKING")).task_id
    await cancelled_after_a_second(client, ticks, task)
    seen = await stream.end(5.0)
    assert (seen.closed, seen.endings) == (True, ["CANCELED"]), seen.states
    return task


async def in_the_background(client: Caller, ticks: Ticks) -> str:
    task = (await client.begin(order(ticks))).id
    await ticks.seen("tick")
    await cancelled_after_a_second(client, ticks, task)
    return task


async def timeline(caller: Caller, folder: Path) -> None:
    both = [Ticks(folder / "streaming"), Ticks(folder / "background")]
    begun = time.monotonic()
    async with caller as client:
        tasks = [await streaming(client, both[0]), await in_the_background(client, both[1])]
        before = [len(ticks.lines()) for ticks in both]
        # Past the instant at which the work would have been done.
        await asyncio.sleep(max(0.0, WHOLE_S + 3.0 - (time.monotonic() - begun)))
        assert [len(ticks.lines()) for ticks in both] == before, "the work went on after all"
        assert not any(ticks.count("end") for ticks in both)
        assert [await client.state(task) for task in tasks] == ["CANCELED", "CANCELED"]
        assert state_of(await client.cancel(tasks[0])) == "CANCELED"


@pytest.mark.serial
def test_the_timeline_of_the_report(tmp_path: Path) -> None:
    """On both stores, at the same time: most of it is waiting for what must not happen."""

    async def on_both(home: House) -> None:
        async with asyncio.TaskGroup() as together:
            for store in ("memory", "sqlite"):
                folder = tmp_path / store
                folder.mkdir()
                together.create_task(timeline(Caller(home.start(store)), folder))

    with house("endstop", tmp_path) as home:
        asyncio.run(on_both(home))


@pytest.mark.parametrize("how", [streaming, in_the_background])
def test_the_timeline_fails_on_the_original_bug(tmp_path: Path, how: object) -> None:
    async def alone() -> None:
        async with Caller(server) as client:
            await how(client, Ticks(tmp_path / "ticks"))  # type: ignore[operator]

    with house("endstop", tmp_path, "tests/upstream/s4_planted.py") as home:
        server = home.start("memory")
        with pytest.raises(AssertionError, match="the body ran on"):
            asyncio.run(alone())
