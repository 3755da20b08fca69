"""One connection: what goes out together, and what must not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from endstop.server.connection import Together

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Transport:
    """Keeps what is written to it, packet by packet."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed, "written to after the end"
        self.packets.append(data)

    def writelines(self, data: Iterable[bytes]) -> None:
        self.write(b"".join(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def nothing(self, *arguments: object) -> None:
        """Not asked for here."""

    get_extra_info = pause_reading = resume_reading = nothing


@pytest.mark.parametrize(
    ("written", "packets"),
    [
        ([HEAD, b"body"], [HEAD + b"body"]),
        ([HEAD], [HEAD]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([HEAD, b"a", b"b", HEAD, b"c"], [HEAD + b"a", b"b", HEAD + b"c"]),
        # Two heads, such as of a 100 and of the answer after it.
        ([HEAD, HEAD], [HEAD + HEAD]),
        ([HEAD, b"", b"a"], [HEAD, b"a"]),
    ],
)
def test_a_head_goes_out_with_what_follows(written: list[bytes], packets: list[bytes]) -> None:
    async def scene() -> None:
        transport: Any = Transport()
        together = Together(transport, asyncio.get_running_loop())
        for data in written:
            together.write(data)
        await asyncio.sleep(0)
        assert [packet for packet in transport.packets if packet] == packets

    asyncio.run(scene())


def test_a_head_waits_for_nobody() -> None:
    async def scene() -> None:
        transport: Any = Transport()
        together = Together(transport, asyncio.get_running_loop())
        together.write(HEAD)
        together.close()
        assert (transport.packets, transport.closed) == ([HEAD], True)
        await asyncio.sleep(0)
        assert transport.packets == [HEAD]
        # What was ended by the other side is not written to any more.
        gone: Any = Transport()
        together = Together(gone, asyncio.get_running_loop())
        together.write(HEAD)
        gone.abort()
        await asyncio.sleep(0)
        together.write(HEAD)
        together.write(b"body")
        await asyncio.sleep(0)
        assert gone.packets == []

    asyncio.run(scene())
