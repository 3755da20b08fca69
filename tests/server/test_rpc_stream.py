"""A stream and its one client, in this process: what it hears, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Message, Part

from endstop.server import build_app, card_for, rpc_stream
from endstop.server.guard import Guarded
from tests.server.house import head
from tests.server.test_app import STREAM, TOKEN, Handler


class Client:
    """The other side of an ASGI app: leaves when it is told to, and keeps what it hears."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.sent: list[Any] = []
        self.leave = asyncio.Event()
        self.news = asyncio.Event()
        self._body: bytes | None = json.dumps(STREAM).encode()
        self._fails_at = fails_at

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.sent) == self._fails_at:
            raise OSError("it does not read")
        self.sent.append(message)
        self.news.set()

    async def hears(self, count: int) -> None:
        while len(self.sent) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 10)

    def begin(self, app: Any) -> asyncio.Task[None]:
        """Ask for a stream."""
        headers = [(name.encode(), value.encode()) for name, value in head(TOKEN).items()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": headers,
        }
        return asyncio.create_task(app(scope, self.receive, self.send))


Play = Callable[[Handler, Guarded, Any], Awaitable[None]]


def play(scene: Play) -> None:
    """Play a scene with an app; nothing is left of it."""

    async def whole() -> None:
        handler = Handler()
        guarded = Guarded(handler)
        app = build_app(guarded, card_for("App", "Of the tests."), token=TOKEN)
        await scene(handler, guarded, app)
        assert handler.streams == 0
        assert app.state.door.streams.taken == 0
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())


def test_law_18_a_client_that_leaves_ends_its_stream_at_once() -> None:
    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        client = Client()
        asking = client.begin(app)
        await client.hears(2)
        assert handler.streams == 1
        client.leave.set()
        over, _ = await asyncio.wait({asking}, timeout=10)
        assert over, "it goes on without its client"
        assert handler.streams == 0
        # It ended, and was not cancelled; there was nobody to tell.
        assert (asking.cancelled(), asking.cancelling(), len(client.sent)) == (False, 0, 2)

    play(scene)


def test_law_18_who_leaves_before_the_first_frame_leaves_nothing_behind() -> None:
    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        client = Client()
        client.leave.set()
        await asyncio.wait_for(client.begin(app), 10)
        assert handler.streams == 0

    play(scene)


def test_a_client_is_told_that_its_stream_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_stream, "PING_S", 0.01)

    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        client = Client()
        asking = client.begin(app)
        await client.hears(5)
        handler.go_on.set()
        await asyncio.wait_for(asking, 10)
        begun, _, *pings, last = client.sent
        assert begun["type"] == "http.response.start"
        assert all(one["body"].startswith(b": ping - 2") for one in pings)
        assert all(one["body"].endswith(b"+00:00\r\n\r\n") and one["more_body"] for one in pings)
        assert (last["body"], last["more_body"]) == (b"", False)

    play(scene)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_law_18_a_client_that_cannot_be_told_ends_its_stream(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """At the head, at a frame, at a ping: what went wrong is raised to the web server."""
    monkeypatch.setattr(rpc_stream, "PING_S", 0.01)

    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        with pytest.raises(OSError, match="does not read"):
            await asyncio.wait_for(Client(at).begin(app), 10)
        assert handler.streams == 0

    play(scene)


def test_a_cancel_from_elsewhere_stays_one() -> None:
    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        client = Client()
        asking = client.begin(app)
        await client.hears(2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert handler.streams == 0

    play(scene)


def test_a_cancel_from_elsewhere_stays_one_when_the_client_leaves_too() -> None:
    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        client = Client()
        asking = client.begin(app)
        await client.hears(2)
        client.leave.set()
        while not asking.cancelling():
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    play(scene)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_client_may_leave_while_the_server_goes_down(*, leaves_first: bool) -> None:
    async def scene(handler: Handler, guarded: Guarded, app: Any) -> None:
        client = Client()
        asking = client.begin(app)
        await client.hears(2)
        if leaves_first:
            client.leave.set()
            await asyncio.sleep(0)
        guarded.go_down()
        client.leave.set()
        await asyncio.wait_for(asking, 10)
        assert (asking.cancelled(), asking.cancelling()) == (False, 0)

    play(scene)


def test_every_frame_is_sent_by_itself_and_in_one_line() -> None:
    class Talker(Handler):
        async def on_message_send_stream(self, params: Any, context: Any) -> Any:
            for text in ("a\nb", "c\r\n\r\nd", "\u2028"):
                yield Message(message_id="m", parts=[Part(text=text)])

    async def scene() -> None:
        client = Client()
        app = build_app(Talker(), card_for("App", "Of the tests."), token=TOKEN)
        await client.begin(app)
        frames = [one["body"].decode() for one in client.sent[1:-1]]
        assert len(frames) == 3
        for frame, text in zip(frames, ("a\nb", "c\r\n\r\nd", "\u2028"), strict=True):
            assert frame.startswith("data: {")
            assert frame.endswith("}\r\n\r\n")
            found = json.loads(frame[6:])["result"]["message"]["parts"]
            assert found == [{"text": text}]

    asyncio.run(scene())
