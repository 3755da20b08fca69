"""Rows 1 to 7, 10, 11 and 24: a cancel against every kind of body and of cancel()."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.wire.executors import Order
from tests.wire.harness import Broken, Caller, Place, Stream, state_of
from tests.wire.hook import hook
from tests.wire.rows import row
from tests.wire.stopping import cancel, check
from tests.wire.ticks import Ticks

LONG: dict[str, Any] = {"endless": True, "ticks": 15, "every_s": 0.1}
"""Work that goes on for 1.5 s after a cancel, if it can: longer than the ladder of the tests."""


async def _begun(client: Caller, order: Order, ticks: Ticks) -> tuple[Stream, str]:
    """A task on a stream, when its body has begun."""
    stream = client.stream(order)
    await ticks.seen("begin")
    seen = await stream.until("WORKING")
    return stream, seen.task_id


async def _cancelled(place: Place, order: Order) -> Broken:
    broken, ticks = Broken(), Ticks(Path(order.file))
    async with place.caller() as client:
        stream, task = await _begun(client, order, ticks)
        answer = await cancel(client, task, ticks)
        await check(broken, client, answer, ticks, task=task, stream=stream)
    return broken


@row(1, "a cooperative body", control=("memory", ()))
async def cooperative(place: Place) -> Broken:
    return await _cancelled(place, Order(do="work", file=place.ticks().file, **LONG))


@row(2, "execute() swallows the cancel", control=("memory", ("stops", "stays", "one ending")))
async def swallows(place: Place) -> Broken:
    return await _cancelled(place, Order(do="swallow", file=place.ticks().file, **LONG))


@row(3, "execute() completes on its way out", control=("memory", ("stays", "one ending")))
async def completes(place: Place) -> Broken:
    order = Order(do="complete_when_cancelled", file=place.ticks().file, seconds=60)
    return await _cancelled(place, order)


@row(4, "a blocking tool in a thread", control=("memory", ("stops",)))
async def thread(place: Place) -> Broken:
    return await _cancelled(place, Order(do="thread", file=place.ticks().file, **LONG))


@row(5, "cancel() does nothing", control=("memory", ("one ending", "push")))
async def does_nothing(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    order = Order(do="work", cancel="nothing", file=ticks.file, **LONG)
    async with hook() as told, place.caller() as client:
        stream = client.stream(order, push=told.url)
        await ticks.seen("begin")
        task = (await stream.until("WORKING")).task_id
        answer = await cancel(client, task, ticks)
        await check(broken, client, answer, ticks, task=task, stream=stream)
        pushed = await told.ended(task, 3.0)
        broken.unless(pushed == ["CANCELED"], "push", pushed)
    return broken


@row(6, "cancel() raises", control=("memory", ("answers", "stays")))
async def raises(place: Place) -> Broken:
    order = Order(do="work", cancel="raise", file=place.ticks().file, **LONG)
    return await _cancelled(place, order)


@row(7, "cancel() hangs", control=("memory", ("answers", "stream ends")))
async def hangs(place: Place) -> Broken:
    order = Order(do="work", cancel="hang", file=place.ticks().file, **LONG)
    return await _cancelled(place, order)


@row(10, "ten cancels at once", control=("memory", ("answers|once",)))
async def ten_at_once(place: Place) -> Broken:
    return await _many(place, Order(do="work", file=place.ticks().file, **LONG), 10)


@row(10, "five cancels of a slow cancel()", control=("sqlite", ("once",)))
async def five_slow(place: Place) -> Broken:
    order = Order(do="work", cancel="slow", file=place.ticks().file, **LONG)
    return await _many(place, order, 5)


async def _many(place: Place, order: Order, count: int) -> Broken:
    broken, ticks = Broken(), Ticks(Path(order.file))
    async with place.caller() as client:
        stream, task = await _begun(client, order, ticks)
        answers = await asyncio.gather(*(cancel(client, task, ticks) for _ in range(count)))
        errors = [a.error for a in answers if a.error]
        broken.unless(not errors, "answers", errors)
        await check(broken, client, answers[0], ticks, task=task, stream=stream)
        asked = ticks.count("cancel")
        broken.unless(asked <= 1, "once", f"cancel() was called {asked} times")
    return broken


@row(11, "a second cancel", control=("memory", ("answers",)))
async def again(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        stream, task = await _begun(client, Order(file=ticks.file, **LONG), ticks)
        await cancel(client, task, ticks)
        answer = await cancel(client, task, ticks)
        await check(broken, client, answer, ticks, task=task, stream=stream)
    return broken


@row(24, "cancel while it asks", control=("memory", ()))
async def while_it_asks(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        asked = await client.send(Order(do="ask", file=ticks.file))
        broken.unless(state_of(asked) == "INPUT_REQUIRED", "asks", state_of(asked))
        answer = await cancel(client, asked.id)
        await check(broken, client, answer, ticks, task=asked.id)
        broken.unless(not ticks.count("answered"), "stops", "the body went on")
    return broken


@row(24, "cancel in the words of 0.3", control=("memory", ()))
async def in_old_words(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller(version="0.3") as client:
        task = (await client.begin(Order(file=ticks.file, **LONG))).id
        await ticks.seen("tick")
        answer = await cancel(client, task, ticks)
        await check(broken, client, answer, ticks, task=task)
    return broken


@row(24, "cancel with a message that waits", control=("memory", ()))
async def with_a_follow_up(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        begun = await client.begin(Order(file=ticks.file, **LONG))
        await ticks.seen("tick")
        order = Order(file=ticks.file, **LONG)
        follow = asyncio.create_task(
            client.send(order, task_id=begun.id, context_id=begun.context_id)
        )
        # It waits in the server until the body is done; nothing outside shows that it is there.
        await asyncio.sleep(0.3)
        answer = await cancel(client, begun.id, ticks)
        await check(broken, client, answer, ticks, task=begun.id)
        async with asyncio.timeout(5):
            got = await follow
        broken.unless(state_of(got) == "CANCELED", "answers all", state_of(got))
        broken.unless(ticks.count("begin") == 1, "starts nothing", ticks.count("begin"))
    return broken


@row(24, "cancel after a restart", control=("sqlite", ()), stores=("sqlite",), alone=True)
async def after_a_restart(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        asked = await client.send(Order(do="ask", file=ticks.file))
    place.server.kill()
    server = place.house.start(place.store)
    async with Caller(server) as client:
        answer = await cancel(client, asked.id)
        await check(broken, client, answer, ticks, task=asked.id)
    return broken


@row(4, "another program", control=("memory", ()))
async def child(place: Place) -> Broken:
    order = Order(do="child", file=place.ticks().file, more={"root": str(ROOT)})
    broken = await _cancelled(place, order)
    own = [line.word for line in Ticks(Path(order.file)).lines() if "ended" in line.word]
    broken.unless(not own, "runs until it is stopped", own)
    return broken
