"""The app around any handler, in this process: bounds, closing, errors that tell nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import Task, TaskState, TaskStatus, TaskStatusUpdateEvent
from a2a.utils.errors import TaskNotFoundError

from endstop.errors import CallerError
from endstop.server import ServerLimits, Tokens, build_app, card_for
from endstop.server.guard import Guarded
from endstop.server.limits import holds_too_much
from endstop.server.patience import Patience
from tests.server.house import head, message

TOKEN = "a-token-of-the-tests"
ASK = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("x")}}
STREAM = {**ASK, "method": "SendStreamingMessage"}


class Handler(RequestHandler):
    """Does what the test wants."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.streams = 0

    async def on_message_send(self, params: Any, context: Any) -> Any:
        if self.error is not None:
            raise self.error
        status = TaskStatus(state=TaskState.TASK_STATE_COMPLETED)
        return Task(id=context.user.user_name, context_id="c", status=status)

    async def on_message_send_stream(self, params: Any, context: Any) -> AsyncGenerator[Any]:
        self.streams += 1
        try:
            yield TaskStatusUpdateEvent(task_id="t", context_id="c")
            if self.error is not None:
                raise self.error
            await self.go_on.wait()
        finally:
            self.streams -= 1

    async def on_subscribe_to_task(self, params: Any, context: Any) -> AsyncGenerator[Any]:
        raise TaskNotFoundError
        yield

    async def _nothing(self, params: Any, context: Any) -> Any:
        raise TaskNotFoundError

    on_get_task = on_list_tasks = on_cancel_task = on_get_extended_agent_card = _nothing
    on_create_task_push_notification_config = _nothing
    on_get_task_push_notification_config = _nothing
    on_list_task_push_notification_configs = _nothing
    on_delete_task_push_notification_config = _nothing


def client_of(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://x", headers=head(TOKEN))


def made(handler: RequestHandler, **options: Any) -> Any:
    options.setdefault("token", TOKEN)
    return build_app(handler, card_for("App", "Of the tests."), **options)


def test_an_error_that_is_not_the_protocol_s_shows_a_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        handler = Handler()
        handler.error = OSError("/home/me/secret.db is locked")
        async with client_of(made(handler)) as client:
            for body in (ASK, STREAM):
                answer = await client.post("/", json=body)
                assert "internal error " in answer.text
                assert "secret.db" not in answer.text
            answer = await client.post("/message:send", json=ASK["params"])
            assert answer.status_code == 500
            assert "secret.db" not in answer.text
        number = answer.json()["error"]["message"].split()[2].strip(";")
        assert number in caplog.text
        assert "secret.db" in caplog.text, "the log knows"

    asyncio.run(scene())


def test_streams_are_counted_and_bounded() -> None:
    async def scene() -> None:
        handler = Handler()
        app = made(handler, limits=ServerLimits(streams=2))
        async with client_of(app) as client:
            reading = [asyncio.create_task(client.post("/", json=STREAM)) for _ in range(2)]
            while app.state.door.streams.taken < 2:
                await asyncio.sleep(0)
            for path, body in (("/", STREAM), ("/message:stream", STREAM["params"])):
                answer = await client.post(path, json=body)
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "1"
                assert "there are 2 streams already" in answer.text
            # What is no stream still has its place.
            assert (await client.post("/", json=ASK)).status_code == 200
            handler.go_on.set()
            await asyncio.gather(*reading)
            assert app.state.door.streams.taken == 0
            assert handler.streams == 0
            assert (await client.post("/", json=STREAM)).status_code == 200

    asyncio.run(scene())


def test_a_closing_door_lets_nobody_in_but_to_the_card() -> None:
    async def scene() -> None:
        app = made(Handler())
        app.state.door.close()
        async with client_of(app) as client:
            for answer in (
                await client.post("/", json=ASK),
                await client.post("/message:send", json=ASK["params"]),
                await client.get("/tasks"),
            ):
                assert answer.status_code == 503
                assert "going down" in answer.text
            assert (await client.get("/.well-known/agent-card.json")).status_code == 200

    asyncio.run(scene())


def test_readers_that_wait_are_told_that_the_server_went_down() -> None:
    async def scene() -> None:
        handler = Handler()
        guarded = Guarded(handler)
        async with client_of(made(guarded)) as client:
            reading = asyncio.create_task(client.post("/", json=STREAM))
            while not handler.streams:
                await asyncio.sleep(0)
            await guarded.quiet(0.01)
            guarded.go_down()
            answer = await reading
            assert answer.text.rstrip().endswith("}")
            assert "event: error" in answer.text
            assert "went down" in answer.text
            assert handler.streams == 0
            assert "went down" in (await client.post("/", json=STREAM)).text

    asyncio.run(scene())


def test_owners_are_told_apart_and_nobody_else_is_one() -> None:
    async def scene() -> None:
        tokens = {"alice": "alice-alice-alice-1", "bob": "bob-bob-bob-bob-bob-2"}
        async with client_of(made(Handler(), token=None, tokens=tokens)) as client:
            for owner, token in tokens.items():
                answer = await client.post("/", json=ASK, headers=head(token))
                assert answer.json()["result"]["task"]["id"] == owner

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("texts", "owners"),
    [
        ([], ()),
        (["0123456789abcdef"], ("owner",)),
        (["alice=0123456789abcdef", "bob=0123456789abcdeg"], ("alice", "bob")),
        (["alice=0123456789abcdef", "alice=0123456789abcdeg"], ("alice",)),
        # The end of a token in base64 names nobody.
        (["MDEyMzQ1Njc4OWFiY2RlZg=="], ("owner",)),
        (["alice=MDEyMzQ1Njc4OWFiY2RlZg=="], ("alice",)),
    ],
)
def test_tokens_are_read_with_their_owners(texts: list[str], owners: tuple[str, ...]) -> None:
    tokens = Tokens.read(texts)
    assert tokens.owners == owners
    assert bool(tokens) == bool(texts)
    for text in texts:
        token = text.partition("=")[2] if text.startswith(("alice", "bob")) else text
        assert tokens.owner_of(f"Bearer {token}".encode()) in owners
    for nobody in (None, b"", b"Bearer", b"Bearer ", b"Bearer x"):
        assert tokens.owner_of(nobody) is None


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("short", "has 5 characters and can be guessed"),
        ("with a space in it", "use letters and digits"),
        ("ümlaut-0123456789", "use letters and digits"),
        ("=0123456789abcdef", "cannot name the owner"),
    ],
)
def test_tokens_that_cannot_be_used_are_refused(token: str, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        Tokens.read([token])


def test_bounds_and_tokens_are_checked() -> None:
    with pytest.raises(CallerError, match="body_bytes is a number above 0, not 0"):
        ServerLimits(body_bytes=0)
    with pytest.raises(CallerError, match="not both"):
        made(Handler(), token=TOKEN, tokens={"a": TOKEN})


def test_law_7_every_wait_listens_patience_ends_a_wait_and_no_other() -> None:
    async def scene() -> None:
        patience = Patience(0.05)
        assert await patience.wait(asyncio.sleep(0, "at once")) == "at once"
        with pytest.raises(TimeoutError):
            await patience.wait(asyncio.sleep(60))
        # What comes after it is waited for in peace.
        await asyncio.sleep(0.1)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert not patience._waits
        # A cancel from elsewhere stays one.
        waiting = asyncio.create_task(Patience(60).wait(asyncio.sleep(60)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scene())


def test_values_are_counted_and_commas_are_not() -> None:
    assert not holds_too_much(b",,,,,,,,", "a text", 5)
    assert not holds_too_much(b"[1,2,3]", [1, 2, 3], 5)
    assert holds_too_much(b"[1,2,3,4,5,6]", [1, 2, 3, 4, 5, 6], 5)
    assert holds_too_much(b"[[],[],[],[[]]]", [[], [], [], [[]]], 5)
    assert holds_too_much(b'{"a":{"b":{"c":{"d":{"e":1}}}}}', {"a": {"b": {"c": {"d": {}}}}}, 3)
