"""A message that asks to be taken once makes one task, for its owner, however often it comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskState,
)

from endstop.a2a.once import ONCE, once_id
from tests.a2a.serving import Executor, by, complete, serving
from tests.a2a.test_push import loop_test
from tests.remote.house import Server


def asking(text: str, message_id: str, once: object = True) -> SendMessageRequest:
    message = Message(role=Role.ROLE_USER, message_id=message_id, parts=[Part(text=text)])
    if once is not None:
        message.metadata.update({ONCE: once})
    return SendMessageRequest(
        message=message, configuration=SendMessageConfiguration(return_immediately=True)
    )


async def sent(client: Client, request: SendMessageRequest) -> Task:
    found = [one async for one in client.send_message(request)]
    return found[0].task


@loop_test
@pytest.mark.parametrize("streaming", [True, False])
async def test_the_same_message_is_the_same_task_also_when_it_is_over(
    tmp_path: Path, streaming: bool
) -> None:
    server = Server(tmp_path, "endstop", "--journal", f"sqlite:{tmp_path / 'runs.db'}")
    async with httpx.AsyncClient(timeout=20) as http:
        terms = ClientConfig(httpx_client=http, streaming=streaming)
        client = await create_client(server.url, terms)
        first = await sent(client, asking("echo one", "m1"))
        again = await sent(client, asking("echo one", "m1"))
        assert again.id == first.id
        async with asyncio.timeout(20):
            # It is to be over: what was only begun would be gone on with, or be lost.
            while (
                await client.get_task(GetTaskRequest(id=first.id))
            ).status.state != TaskState.TASK_STATE_COMPLETED:
                await asyncio.sleep(0.01)
        server.stop()
        server.start()
        later = await sent(client, asking("echo one", "m1"))
        assert later.id == first.id
        assert later.status.state == TaskState.TASK_STATE_COMPLETED
        assert server.count("got") == 1
        others = [
            await sent(client, asking("echo one", "m2")),
            await sent(client, asking("echo one", "m1", once=None)),
            await sent(client, asking("echo one", "m1", once=False)),
            await sent(client, asking("echo one", "m1", once="yes")),
        ]
        assert len({first.id, *(task.id for task in others)}) == 5
    server.stop()


@loop_test
async def test_many_at_once_are_one_task(tmp_path: Path) -> None:
    server = Server(tmp_path, "endstop")
    async with httpx.AsyncClient(timeout=20) as http:
        client = await create_client(server.url, ClientConfig(httpx_client=http, streaming=False))
        tasks = await asyncio.gather(
            *(sent(client, asking("work 5", "m1")) for _ in range(10)), return_exceptions=True
        )
        ids = {task.id for task in tasks if isinstance(task, Task)}
        assert len(ids) == 1
        assert [task for task in tasks if isinstance(task, BaseException)] == []
        await server.until(lambda: server.count("tick") == 5)
        assert server.count("got") == 1
    server.stop()


def test_owners_agents_and_messages_are_told_apart() -> None:
    message = asking("x", "m1").message
    named = {once_id(message, "agent", "alice"), once_id(message, "agent", "bob")}
    named |= {once_id(message, "other", "alice"), once_id(asking("x", "m2").message, "agent", "a")}
    assert len(named) == 4
    assert None not in named
    assert once_id(asking("x", "m1", once=None).message, "agent", "alice") is None
    message.task_id = "t"
    assert once_id(message, "agent", "alice") is None


@loop_test
async def test_the_same_message_twice_at_once_is_one_task(tmp_path: Path) -> None:
    executor = Executor(go=complete)
    async with serving(executor, journal=str(tmp_path / "tasks.db")) as house:
        house.handler.tasks()

        async def send() -> str:
            request = house.request("go", message_id="m1")
            request.message.metadata.update({ONCE: True})
            return (await house.handler.on_message_send(request, by())).id

        ids = await asyncio.gather(*[send() for _ in range(5)])
        assert len(set(ids)) == 1
        assert executor.executions == ["go"]
