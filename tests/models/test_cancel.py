"""A cancel closes the connection at once and ends every wait; nothing is left, nothing is asked."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from endstop.agents.models import Anthropic, Ask, HttpLimits, ModelError, OpenAICompatible
from tests.models.server import (
    WAIT_S,
    Answer,
    Line,
    Request,
    answers,
    chat,
    chunk,
    play,
    resets,
    serving,
    streams,
)

ASK = Ask(messages=[{"role": "user", "content": "hello"}])


class Watched:
    """An answer that goes as far as it is told and then waits for the client to go."""

    def __init__(self, *, head: bool, pieces: tuple[bytes, ...] = (), more: bool = False) -> None:
        self.head = head
        self.pieces = pieces
        self.more = more
        self.waiting = asyncio.Event()
        self.left_at = 0.0
        self.then: Callable[[], None] = lambda: None

    async def __call__(self, line: Line, request: Request) -> None:
        if self.head:
            await line.stream_head()
        for piece in self.pieces:
            await line.chunk(piece)
        self.waiting.set()
        self.then()
        if self.more:
            try:
                while True:
                    await line.chunk(chunk({"content": "x" * 100}))
            except ConnectionError:
                pass
        else:
            await line.gone()
        line.keep = False
        self.left_at = time.monotonic()


@pytest.mark.parametrize(
    ("head", "pieces", "more"),
    [
        pytest.param(False, (), False, id="before the answer"),
        pytest.param(True, (), False, id="before the first byte of the stream"),
        pytest.param(True, (b": wait\n\n",), False, id="after a comment"),
        pytest.param(True, (chunk({"content": "a"}),), False, id="in the middle"),
        pytest.param(True, (chunk({"content": "a"})[:20],), False, id="in the middle of an event"),
        pytest.param(True, (), True, id="while it pours"),
    ],
)
def test_a_cancel_closes_the_connection_at_once(
    head: bool, pieces: tuple[bytes, ...], more: bool
) -> None:
    """Law 7 every-wait-listens."""

    async def scenario() -> None:
        watched = Watched(head=head, pieces=pieces, more=more)
        async with serving(watched) as server:
            model = OpenAICompatible("m", base_url=server.url)
            task = asyncio.create_task(model.reply(ASK, lambda _: None))
            await asyncio.wait_for(watched.waiting.wait(), WAIT_S)
            await asyncio.sleep(0.02)  # let what was sent arrive
            at = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - at < 5.0
            await server.emptied()
            assert watched.left_at - at < 5.0
            assert len(server.requests) == 1
            # Nothing to close: the connection is gone without it.

    play(scenario)


@pytest.mark.parametrize("retry_after", ["", "30"])
@pytest.mark.parametrize("first", ["busy", "reset"])
def test_a_cancel_ends_a_rest_and_nothing_is_asked_after_it(first: str, retry_after: str) -> None:
    """Law 7 every-wait-listens: a rest between two attempts is a wait like any other."""
    headers = {"retry_after": retry_after} if retry_after else {}
    busy = answers({"error": "busy"}, "503 Service Unavailable", **headers)
    given: Answer = busy if first == "busy" else resets

    async def scenario() -> None:
        limits = HttpLimits(first_s=20.0, most_s=20.0)
        async with serving(given, streams(*chat())) as server:
            model = OpenAICompatible("m", base_url=server.url, limits=limits)
            task = asyncio.create_task(model.reply(ASK, lambda _: None))
            await asyncio.wait_for(server.came.wait(), WAIT_S)
            await asyncio.sleep(0.1)  # let it come to its rest
            assert not task.done()
            at = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - at < 5.0
            await asyncio.sleep(0.1)
            assert len(server.requests) == 1

    play(scenario)


def full_listener() -> tuple[list[socket.socket], int]:
    """Sockets of which the first listens, and no more connections fit into its queue."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = listener.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
    return [listener, *fillers], port


def test_a_cancel_while_it_connects_leaves_nothing() -> None:
    async def scenario() -> None:
        held, port = full_listener()
        model = OpenAICompatible("m", base_url=f"http://127.0.0.1:{port}/v1")
        task = asyncio.create_task(model.reply(ASK, lambda _: None))
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for one in held:
            one.close()

    play(scenario)


def test_connecting_has_a_limit() -> None:
    """Law 6 bounded-stop."""

    async def scenario() -> None:
        held, port = full_listener()
        limits = HttpLimits(connect_s=0.1, retries=1, first_s=0.01)
        model = OpenAICompatible("m", base_url=f"http://127.0.0.1:{port}/v1", limits=limits)
        with pytest.raises(ModelError, match=r"not be reached within 0.1 s.*Tried 2 times"):
            await model.reply(ASK, lambda _: None)
        for one in held:
            one.close()

    play(scenario)


def test_a_deadline_of_the_application_is_a_cancel() -> None:
    async def scenario() -> None:
        watched = Watched(head=True, pieces=(chunk({"content": "a"}),))
        async with serving(watched) as server:
            model = Anthropic("m", base_url=server.url)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as scope:
                    watched.then = lambda: scope.reschedule(asyncio.get_running_loop().time())
                    await model.reply(ASK, lambda _: None)
            await server.emptied()

    play(scenario)


def test_many_at_once_are_cancelled_each_for_itself() -> None:
    async def scenario() -> None:
        parts = chat("a b")

        async def slow(line: Line, request: Request) -> None:
            await line.stream_head()
            await line.chunk(parts[0])
            if request.body["messages"][0]["content"] == "stop":
                await line.gone()
            else:
                await asyncio.sleep(0.05)
                await line.chunk(b"".join(parts[1:]))
                await line.send(b"0\r\n\r\n")

        async with serving(slow) as server, OpenAICompatible("m", base_url=server.url) as model:
            tasks = [
                asyncio.create_task(
                    model.reply(
                        Ask(messages=[{"role": "user", "content": "stop" if n % 2 else "go"}]),
                        lambda _: None,
                    )
                )
                for n in range(20)
            ]
            while len(server.requests) < 20:
                await asyncio.sleep(0.005)
            for task in tasks[1::2]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended[1::2])
            assert not any(isinstance(one, BaseException) for one in ended[::2])

    play(scenario)


def test_closing_a_model_twice_or_unused_is_fine() -> None:
    async def scenario() -> None:
        async with serving(streams(*chat())) as server:
            model = OpenAICompatible("m", base_url=server.url)
            await model.aclose()
            await model.reply(ASK, lambda _: None)
            await model.aclose()
            await model.aclose()
            await server.emptied()
            # A closed model opens again when it is asked.
            await model.reply(ASK, lambda _: None)
            await model.aclose()

    play(scenario)


def test_closing_while_a_reply_is_under_way_ends_it_with_an_error() -> None:
    async def scenario() -> None:
        watched = Watched(head=True, pieces=(chunk({"content": "a"}),))
        async with serving(watched) as server:
            model = OpenAICompatible("m", base_url=server.url, limits=HttpLimits(retries=0))
            task = asyncio.create_task(model.reply(ASK, lambda _: None))
            await asyncio.wait_for(watched.waiting.wait(), WAIT_S)
            await asyncio.sleep(0.02)
            await model.aclose()
            with pytest.raises(ModelError):
                async with asyncio.timeout(WAIT_S):
                    await task
            await server.emptied()

    play(scenario)
