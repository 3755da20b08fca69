"""Rows 8, 14, 15, 16 and 20: a blocked loop, two servers, a server that dies, a slow webhook.

Each row has a server of its own: it freezes it, kills it or counts its time.
"""

from __future__ import annotations

import asyncio
import time

from tests.wire.executors import Order
from tests.wire.harness import TERMINAL, Broken, Caller, Place
from tests.wire.hook import hook
from tests.wire.noise import Noise
from tests.wire.rows import row
from tests.wire.stopping import cancel, check
from tests.wire.ticks import CANCELS_NOW, note

NEAR_S = 0.25
"""The bound of a request that comes to the other server, on a machine that does nothing else."""
HOPS = 4
"""How often such a request waits for a process to be given a processor."""


@row(8, "a body that blocks its loop", control=("memory", ("others", "before")), alone=True)
async def blocks_the_loop(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        order = Order(do="block", file=ticks.file, endless=True, ticks=40, every_s=0.05)
        waiting = (await client.send(Order(do="ask", file=place.ticks().file))).id
        stream = client.stream(order)
        await ticks.seen("tick")
        # From here on it blocks for 2 s more.
        note(ticks.file, CANCELS_NOW)
        begun = time.monotonic()
        await client.state(waiting)
        took_s = time.monotonic() - begun
        broken.unless(took_s < 0.5, "others", f"another request waited {took_s:.2f} s")
        task = (await stream.until("WORKING")).task_id
        answer = await cancel(client, task)
        broken.unless(ticks.count("end") == 0, "before", f"after {answer.took_s:.2f} s")
        await check(broken, client, answer, ticks, task=task, stream=stream)
        # The loop that is lost is not the one that the next task is run on.
        after = place.ticks()
        got = client.stream(Order(do="work", file=after.file, ticks=2, every_s=0.01))
        seen = await got.end(3.0)
        broken.unless(seen.endings == ["COMPLETED"], "next", seen.states)
    return broken


async def _from_another(place: Place, order: Order, near_s: float | None) -> Broken:
    """The task runs on one server; the cancel and a subscriber come to another."""
    broken, ticks = Broken(), place.ticks()
    order = Order(**{**{n: getattr(order, n) for n in order.__slots__}, "file": ticks.file})
    other = await asyncio.to_thread(place.house.start, place.store)
    async with place.caller() as owner, Caller(other) as stranger:
        stream = owner.stream(order)
        await ticks.seen("tick", 2)
        task = (await stream.until("WORKING")).task_id
        watching = stranger.subscribe(task)
        await watching.until("WORKING", 3.0)
        with Noise() as noise:
            answer = await cancel(stranger, task, ticks)
        if near_s is not None:
            bound_s = near_s + HOPS * noise.worst_s
            broken.unless(
                answer.took_s < bound_s, "near", f"{answer.took_s:.3f} of {bound_s:.3f} s"
            )
        await check(broken, stranger, answer, ticks, task=task, stream=stream)
        seen = await watching.end(2.0)
        broken.unless(seen.closed and seen.endings == ["CANCELED"], "watched", seen.states)
        state = await owner.state(task)
        broken.unless(state == "CANCELED", "stays", state)
    return broken


@row(
    14,
    "a cancel at another server",
    control=("sqlite", ("stops", "stays")),
    stores=("sqlite",),
    alone=True,
)
async def at_another_server(place: Place) -> Broken:
    order = Order(do="work", events=True, endless=True, ticks=20, every_s=0.1)
    return await _from_another(place, order, NEAR_S)


@row(
    15,
    "a silent body, cancelled at another server",
    control=("cluster", ("stops",)),
    stores=("sqlite",),
    alone=True,
)
async def silent_at_another(place: Place) -> Broken:
    return await _from_another(
        place, Order(do="silent", endless=True, ticks=20, every_s=0.1), NEAR_S
    )


@row(
    15,
    "a body that swallows it, cancelled at another server",
    control=("cluster", ("stays",)),
    stores=("sqlite",),
    alone=True,
)
async def swallows_at_another(place: Place) -> Broken:
    order = Order(do="swallow", events=True, endless=True, ticks=20, every_s=0.1)
    return await _from_another(place, order, None)


async def _lost(place: Place, gently: bool) -> Broken:
    """A server ends in the middle of its tasks; another is started over the same store."""
    broken = Broken()
    tasks = {}
    async with place.caller() as client:
        for do in ("work", "silent", "thread", "ask"):
            ticks = place.ticks()
            order = Order(do=do, file=ticks.file, ticks=60, every_s=0.1)
            tasks[do] = (await client.begin(order)).id
            await ticks.seen("begin")
        await client.settled(tasks["ask"], 0.5)
    await asyncio.to_thread(place.server.stop if gently else place.server.kill)
    server = await asyncio.to_thread(place.house.start, place.store)
    async with Caller(server) as client:
        asked = tasks.pop("ask")
        state = await client.state(asked)
        broken.unless(state == "INPUT_REQUIRED", "still asks", state)
        got = await client.stream(Order(do="ask"), task_id=asked).end(5.0)
        broken.unless(got.endings == ["COMPLETED"], "takes the answer", got.states or got.error)
        await asyncio.gather(
            *(_ended_for_all(broken, client, do, task) for do, task in tasks.items())
        )
    return broken


async def _ended_for_all(broken: Broken, client: Caller, do: str, task: str) -> None:
    """A task whose server was lost is over, and says so, whoever asks."""
    watching = client.subscribe(task)
    state = await client.settled(task, 3.0)
    broken.unless(state in TERMINAL, "ends", f"{do}: {state}")
    seen = await watching.end(0.5)
    broken.unless(watching.over, "subscribers", f"{do}: {seen.states}")
    answer = await cancel(client, task)
    late = "NotCancelable" in str(answer.error)
    broken.unless(answer.state == "CANCELED" or late, "cancel works", f"{do}: {answer.error}")
    stored = await client.get(task)
    broken.unless(stored.status.message.parts, "says so", do)


@row(
    16,
    "kill -9 and a restart",
    control=("sqlite", ("ends", "subscribers")),
    stores=("sqlite",),
    alone=True,
)
async def killed(place: Place) -> Broken:
    return await _lost(place, gently=False)


@row(
    16,
    "SIGTERM and a restart",
    control=("sqlite", ("ends", "subscribers")),
    stores=("sqlite",),
    alone=True,
)
async def terminated(place: Place) -> Broken:
    return await _lost(place, gently=True)


@row(20, "a slow webhook", control=("memory", ("delays nothing",)), alone=True)
async def slow_webhook(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with hook(delay_s=1.0) as told, place.caller() as client:
        order = Order(do="three_events", file=ticks.file, seconds=0.6)
        begun = time.monotonic()
        stream = client.stream(order, push=told.url)
        seen = await stream.end(10.0)
        took_s = time.monotonic() - begun
        broken.unless(took_s < 1.6, "delays nothing", f"{took_s:.2f} s for 0.6 s of work")
        broken.unless(seen.endings == ["COMPLETED"], "one ending", seen.states)
        pushed = await told.ended(seen.task_id, 10.0)
        broken.unless(pushed == ["COMPLETED"], "push", pushed)
        broken.unless(told.states(seen.task_id)[-1:] == ["COMPLETED"], "push in order", pushed)
    return broken
