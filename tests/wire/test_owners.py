"""Tokens through the official client: nobody gets in without one, and each sees what is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from a2a.types import ListTasksRequest
from a2a.utils.errors import TaskNotFoundError

from tests.wire.cards import BINDINGS
from tests.wire.executors import Order
from tests.wire.harness import Caller, Server, house, state_of

ALICE, BOB = "the-token-of-alice-0123", "the-token-of-bob-0123"
QUICK = Order(do="artifacts", ticks=1, every_s=0)

bindings = pytest.mark.parametrize("binding", BINDINGS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with house("endstop", tmp_path_factory.mktemp("owners")) as home:
        yield home.start("sqlite", ENDSTOP_TOKEN=f"alice={ALICE} bob={BOB}")


def run(conversation: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await conversation()

    asyncio.run(whole())


@bindings
@pytest.mark.parametrize("token", [None, "", "the-token-of-carol-0123", ALICE[:-1]])
def test_nobody_gets_in_without_a_token(server: Server, binding: str, token: str | None) -> None:
    async def conversation() -> None:
        async with Caller(server, binding, token=token) as client:
            assert client.card.name == "wire", "the card is for everybody"
            with pytest.raises(Exception, match=r"401|UNAUTHENTICATED|bearer") as caught:
                await client.send(QUICK)
            assert ALICE not in str(caught.value)

    run(conversation)


@bindings
def test_tasks_belong_to_their_owner(server: Server, binding: str) -> None:
    async def conversation() -> None:
        async with (
            Caller(server, binding, token=ALICE) as alice,
            Caller(server, binding, token=BOB) as bob,
        ):
            context = f"of alice over {binding}"
            asked = await alice.send(Order(do="ask"), context_id=context)
            for refused in (
                bob.get(asked.id),
                bob.cancel(asked.id),
                bob.send(Order(do="ask"), task_id=asked.id),
            ):
                with pytest.raises(TaskNotFoundError):
                    await refused
            seen = await bob.subscribe(asked.id).end(5.0)
            assert not seen.events
            assert "not found" in str(seen.error).lower() or "NotFound" in str(seen.error)
            listed = ListTasksRequest(context_id=context)
            assert not (await bob.plain.list_tasks(listed)).tasks
            assert [t.id for t in (await alice.plain.list_tasks(listed)).tasks] == [asked.id]
            assert await alice.state(asked.id) == "INPUT_REQUIRED"
            done = await alice.send(Order(do="ask"), task_id=asked.id)
            assert state_of(done) == "COMPLETED"

    run(conversation)


@bindings
def test_a_context_of_somebody_else_gives_nothing_away(server: Server, binding: str) -> None:
    """The same context id is two contexts for two owners."""

    async def conversation() -> None:
        async with (
            Caller(server, binding, token=ALICE) as alice,
            Caller(server, binding, token=BOB) as bob,
        ):
            context = f"shared over {binding}"
            hers = await alice.send(QUICK, context_id=context)
            his = await bob.send(QUICK, context_id=context)
            for client, own in ((alice, hers), (bob, his)):
                got = await client.plain.list_tasks(ListTasksRequest(context_id=context))
                assert [t.id for t in got.tasks] == [own.id]

    run(conversation)
