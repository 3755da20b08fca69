"""Rows 21, 22 and 23: many artifacts, a reader that stalls, many tasks that wait."""

from __future__ import annotations

import asyncio

import psutil
from a2a.types import Task

from tests.wire.executors import Order
from tests.wire.harness import Broken, Caller, Place, Seen, state_of
from tests.wire.raw import Raw, apart, streaming
from tests.wire.rows import row

PARKED = 400
PER_THOUSAND_MB = 21.0
"""Half of what the stock handler keeps for a thousand tasks that wait."""


@row(21, "many artifacts", control=("sqlite", ("linear",)), alone=True)
async def many_artifacts(place: Place) -> Broken:
    """As many artifacts in one task as in eight: the server works as much for the one as for the
    others. Measured in its processor time, which a busy machine does not change."""
    broken = Broken()
    async with place.caller() as client:
        await client.stream(Order(do="artifacts", ticks=1)).end(5.0)
        few_s = await _artifacts(broken, place, client, tasks=8, each=30)
        many_s = await _artifacts(broken, place, client, tasks=1, each=240)
        broken.unless(many_s < 1.8 * few_s, "linear", f"{few_s:.2f} s, then {many_s:.2f} s")
    return broken


async def _artifacts(broken: Broken, place: Place, client: Caller, tasks: int, each: int) -> float:
    """The server's processor time for so many tasks with so many artifacts each."""
    order = Order(do="artifacts", ticks=each, every_s=0, size=8000)
    before, seen = _cpu_s(place), Seen([])
    for _ in range(tasks):
        seen = await client.stream(order).end(40.0)
        # A stream begins with the task as it stands: some artifacts may be in it by then.
        shown = len(seen.events[0].task.artifacts)
        shown += sum(event.HasField("artifact_update") for event in seen.events)
        broken.unless(seen.endings == ["COMPLETED"], "one ending", seen.states or seen.error)
        broken.unless(shown == each, "all shown", shown)
    spent_s = _cpu_s(place) - before
    stored = await client.get(seen.task_id)
    broken.unless(len(stored.artifacts) == each, "all stored", len(stored.artifacts))
    return spent_s


def _cpu_s(place: Place) -> float:
    used = psutil.Process(place.server.said["pid"]).cpu_times()
    return float(used.user + used.system)


@row(22, "a reader that stalls", control=("memory", ("ends in words",)), alone=True)
async def stalls(place: Place) -> Broken:
    """It takes nothing off the wire until the task is over. The task does not wait for it, and
    what it then reads ends with the ending, or with an error: never just so."""
    broken, ticks = Broken(), place.ticks()
    order = Order(
        do="artifacts", file=ticks.file, ticks=4000, every_s=0, size=8000, more={"same": True}
    )
    raw = Raw(place.server)
    try:
        raw.send(streaming(order))
        head = await apart(raw.read, 512)
        broken.unless(b" 200 " in head, "begins", head[:200])
        await ticks.seen("end", limit_s=40.0)
        # The server has seen that nobody reads, and has decided what to do about it.
        await asyncio.sleep(1.0)
        got = await apart(raw.rest)
    finally:
        raw.close()
    last = got[-3000:]
    broken.unless(b"COMPLETED" in last or b'"error"' in last, "ends in words", last[-200:])
    async with place.caller() as client:
        after = await client.stream(Order(do="work", file=ticks.file, ticks=1)).end(5.0)
        broken.unless(after.endings == ["COMPLETED"], "goes on", after.states)
    return broken


@row(23, "tasks that wait", stores=("sqlite",), control=("memory", ("frees",)), alone=True)
async def parked(place: Place) -> Broken:
    broken = Broken()
    process = psutil.Process(place.server.said["pid"])
    async with place.caller() as client:
        await _park(client, 100)
        await asyncio.sleep(1.0)
        before = process.memory_info().rss
        asked = await _park(client, PARKED)
        await asyncio.sleep(1.5)
        grown_mb = (process.memory_info().rss - before) / 1e6 * 1000 / PARKED
        broken.unless(grown_mb < PER_THOUSAND_MB, "frees", f"{grown_mb:.1f} MB for a thousand")
        answer = client.stream(Order(do="ask"), task_id=asked.id, context_id=asked.context_id)
        got = await answer.end(5.0)
        broken.unless(got.endings == ["COMPLETED"], "answers", got.states or got.error)
    return broken


async def _park(client: Caller, count: int) -> Task:
    """So many tasks that ask and wait; the last of one more."""

    async def some() -> None:
        for _ in range(count // 8):
            got = await client.send(Order(do="ask"))
            assert state_of(got) == "INPUT_REQUIRED", got

    await asyncio.gather(*(some() for _ in range(8)))
    return await client.send(Order(do="ask"))
