"""Rows 12, 13, 17, 18, 19 and 25: how a task begins, is spoken to, and ends."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
from a2a.types import SendMessageRequest, a2a_pb2_grpc
from google.protobuf.json_format import MessageToJson

from tests.wire.executors import Order
from tests.wire.harness import Broken, Place, message, state_of
from tests.wire.rows import row


def _short(place: Place) -> Order:
    return Order(do="work", file=place.ticks().file, ticks=10, every_s=0.05)


@row(12, "events after the end", control=("memory", ("stays",)))
async def after_the_end(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        stream = client.stream(Order(do="after_the_end", file=ticks.file))
        seen = await stream.end(5.0)
        broken.unless(seen.closed, "stream ends", seen.error or "open")
        broken.unless(seen.endings == ["COMPLETED"], "one ending", seen.states)
        broken.unless(seen.states[-1:] == ["COMPLETED"], "ending is last", seen.states)
        await asyncio.sleep(0.5)
        stored = await client.get(seen.task_id)
        broken.unless(state_of(stored) == "COMPLETED", "stays", state_of(stored))
        broken.unless("too late" not in MessageToJson(stored), "nothing after", "an artifact")
    return broken


@row(13, "execute() returns without an end", control=("memory", ("ends", "says so", "stream ends")))
async def no_end(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        order = Order(do="no_end", file=ticks.file)
        got = await client.send(order)
        state = await client.settled(got.id, 1.5)
        broken.unless(state_of(got) == state == "FAILED", "ends", f"{state_of(got)}, {state}")
        words = (await client.get(got.id)).status.message
        broken.unless(bool(words.parts), "says so", "no status message")
        stream = client.stream(order)
        await ticks.seen("end", 2)
        seen = await stream.end(1.5)
        broken.unless(seen.endings == ["FAILED"], "stream ends", seen.states)
    return broken


@row(13, "execute() raises", control=("memory", ("answers",)))
async def fails(place: Place) -> Broken:
    """The stock answers a failed body with an error of the protocol, and keeps its words."""
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        try:
            got = await client.send(Order(do="fail", file=ticks.file))
        except Exception as error:
            broken["answers"] = str(error)
            return broken
        broken.unless(state_of(got) == "FAILED", "failed", got)
        broken.unless(got.status.message.parts, "says so", got)
    return broken


@row(17, "a client leaves its stream", control=("memory", ()))
async def leaves_a_stream(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        stream = client.stream(Order(do="work", file=ticks.file, ticks=10, every_s=0.05))
        task = (await stream.until("WORKING")).task_id
        await stream.leave()
        await ticks.seen("end")
        state = await client.settled(task, 3.0)
        broken.unless(state == "COMPLETED", "goes on", state)
    return broken


@row(17, "a client leaves a blocking send", control=("memory", ()))
async def leaves_a_send(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        order = Order(do="work", file=ticks.file, ticks=10, every_s=0.05)
        going = asyncio.create_task(client.send(order))
        await ticks.seen("tick")
        going.cancel()
        await asyncio.wait([going])
    await ticks.seen("end")
    return broken


@row(18, "an answer at once, whose body says nothing yet", control=("memory", ("at once",)))
async def at_once(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        begun = time.monotonic()
        got = await client.begin(Order(do="late", file=ticks.file, seconds=2))
        took_s = time.monotonic() - begun
        broken.unless(took_s < 1.0, "at once", f"{took_s:.2f} s")
        broken.unless(state_of(got) in ("SUBMITTED", "WORKING"), "begins", state_of(got))
        broken.unless(await client.settled(got.id, 5.0) == "COMPLETED", "completes")
    return broken


@row(19, "an answer that names only the task", control=("memory", ("same context|answers",)))
async def names_only_the_task(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with place.caller() as client:
        asked = await client.send(Order(do="ask", file=ticks.file))
        stream = client.stream(Order(do="ask", file=ticks.file), task_id=asked.id)
        seen = await stream.end(5.0)
        broken.unless(seen.closed, "answers", seen.error)
        broken.unless(seen.endings == ["COMPLETED"], "completes", seen.states)
        contexts = {e.task.context_id for e in seen.events if e.HasField("task")}
        contexts |= {e.status_update.context_id for e in seen.events if e.HasField("status_update")}
        broken.unless(contexts == {asked.context_id}, "same context", contexts)
        stored = await client.get(asked.id)
        broken.unless(stored.context_id == asked.context_id, "same context", stored.context_id)
        own = {m.context_id for m in stored.history if m.context_id}
        broken.unless(own <= {asked.context_id}, "same context", own)
    return broken


@row(25, "gRPC of a version that is not there", control=("memory", ("refuses",)))
async def grpc_version(place: Place) -> Broken:
    broken, ticks = Broken(), place.ticks()
    async with grpc.aio.insecure_channel(place.server.said["grpc"]) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        asked = SendMessageRequest(message=message(Order(file=ticks.file, ticks=1)))
        try:
            await stub.SendMessage(asked, metadata=(("a2a-version", "99.0"),), timeout=5)
        except grpc.aio.AioRpcError as error:
            right = error.code() is grpc.StatusCode.UNIMPLEMENTED
            broken.unless(right, "says why", error.code())
            words = f"{error.details()}{error.trailing_metadata()}"
            broken.unless("VERSION" in words.upper(), "says why", words)
        else:
            broken["refuses"] = "it was processed"
        broken.unless(not ticks.count("begin"), "refuses", "the body began")
        for good in ("1.0", "1.0.1"):
            await stub.SendMessage(asked, metadata=(("a2a-version", good),), timeout=5)
    return broken
