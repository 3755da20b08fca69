"""Law 18 audience-free, on raw sockets: whoever leaves, resets or never reads changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from a2a.types import ListTasksRequest, TaskState

from tests.wire.executors import Order
from tests.wire.harness import Caller, Server, house
from tests.wire.raw import Raw, apart, envelope, streaming
from tests.wire.ticks import Ticks, until

LEAVERS = 200
CONNECTS = 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with house("endstop", tmp_path_factory.mktemp("audience")) as home:
        yield home.start("sqlite")


def order(ticks: Ticks) -> Order:
    return Order(do="work", events=True, file=ticks.file, ticks=5, every_s=0.02)


def open_files(server: Server) -> int:
    return int(psutil.Process(server.said["pid"]).num_fds())


def settles(server: Server, before: int) -> None:
    """What clients held open in the server is free again."""
    until(
        lambda: open_files(server) <= before + 5,
        f"{open_files(server)} open files, {before} before",
    )


def test_streams_that_are_reset_before_their_first_frame(server: Server, tmp_path: Path) -> None:
    before = open_files(server)
    files = [Ticks(tmp_path / f"{number}") for number in range(LEAVERS)]
    for number, ticks in enumerate(files):
        raw = Raw(server)
        raw.send(streaming(order(ticks)))
        if number % 3 == 1:
            time.sleep(0.002)
        elif number % 3 == 2:
            raw.read(64)
        raw.reset()
    # The ones that the server had read in full run to their ends, watched or not.
    read = [ticks for number, ticks in enumerate(files) if number % 3 == 2]
    for ticks in read:
        ticks.wait("end")
    settles(server, before)

    async def all_over() -> None:
        async with Caller(server) as client:
            working = ListTasksRequest(status=TaskState.TASK_STATE_WORKING)
            async with asyncio.timeout(20):
                while (await client.plain.list_tasks(working)).tasks:
                    await asyncio.sleep(0.05)

    asyncio.run(all_over())
    for ticks in files:
        assert ticks.count("begin") == ticks.count("end"), "a task that began did not end"


def test_a_reader_that_never_reads_holds_up_nobody(server: Server, tmp_path: Path) -> None:
    silent, other = Ticks(tmp_path / "silent"), Ticks(tmp_path / "other")
    flood = Order(do="artifacts", file=silent.file, ticks=600, every_s=0, size=8_000)
    raws = [Raw(server) for _ in range(4)]
    try:
        for raw in raws:
            raw.send(streaming(flood))
        silent.wait("end", count=4)

        async def meanwhile() -> float:
            begun = time.monotonic()
            async with Caller(server) as client:
                seen = await client.stream(order(other)).end(10.0)
            assert seen.endings == ["COMPLETED"], seen.error
            return time.monotonic() - begun

        assert asyncio.run(meanwhile()) < 5.0
    finally:
        for raw in raws:
            raw.reset()


def test_two_readers_of_which_one_drops(server: Server, tmp_path: Path) -> None:
    ticks = Ticks(tmp_path / "ticks")

    async def conversation() -> None:
        async with Caller(server) as client:
            task = (
                await client.begin(Order(events=True, file=ticks.file, ticks=20, every_s=0.05))
            ).id
            await ticks.seen("tick")
            raw = Raw(server)
            raw.send(envelope("SubscribeToTask", {"id": task}))
            await apart(raw.read, 256)
            stays = client.subscribe(task)
            await stays.until("WORKING")
            raw.reset()
            seen = await stays.end()
            shown = [
                e.artifact_update.artifact for e in seen.events if e.HasField("artifact_update")
            ]
            names = [artifact.name for artifact in (*seen.events[0].task.artifacts, *shown)]
            assert names == [f"part {n}" for n in range(20)]
            assert seen.endings == ["COMPLETED"]

    asyncio.run(conversation())


def test_many_connects_leak_nothing(server: Server) -> None:
    """Connections that say nothing, half a request, or garbage, and go away."""
    before = open_files(server)
    said = [b"", b"POST / HTT", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\nHost: x\r\n"]
    for number in range(CONNECTS):
        raw = Raw(server)
        raw.send(said[number % len(said)])
        if number % 2:
            raw.reset()
        else:
            raw.close()
    settles(server, before)

    async def answers() -> None:
        async with Caller(server) as client:
            got = await client.send(Order(do="artifacts", ticks=1, every_s=0))
            assert len(got.artifacts) == 1

    asyncio.run(answers())
