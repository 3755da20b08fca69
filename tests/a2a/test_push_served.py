"""Webhooks of a server in a process of its own, which is killed: law 16 survives-restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

import httpx
from a2a.client import ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)

from endstop.a2a.signing import verify
from tests.a2a.test_push import loop_test
from tests.a2a.webhook import Got, Webhook, answer, webhook
from tests.remote.house import Server

ENDINGS = {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}


def asking(text: str, url: str) -> SendMessageRequest:
    hook = TaskPushNotificationConfig(url=url, token="s3cret")
    return SendMessageRequest(
        message=Message(role=Role.ROLE_USER, message_id=text, parts=[Part(text=text)]),
        configuration=SendMessageConfiguration(
            return_immediately=True, task_push_notification_config=hook
        ),
    )


@loop_test
async def test_a_killed_server_still_tells_the_ending(tmp_path: Path) -> None:
    down = False

    async def flaky(hook: Webhook, got: Got) -> bytes:
        return answer(503 if down else 200)

    server = Server(tmp_path, "endstop", "--journal", f"sqlite:{tmp_path / 'runs.db'}")
    async with webhook(flaky) as hook, httpx.AsyncClient(timeout=20) as http:
        client = await create_client(server.url, ClientConfig(httpx_client=http, streaming=False))
        async for _ in client.send_message(asking("work 500", hook.url)):
            pass
        await hook.until(lambda: "WORKING" in hook.shown)
        before = len(hook.taken)
        down = True
        server.stop()
        down = False
        server.start()
        await hook.until(lambda: bool(ENDINGS & set(hook.shown)))
        assert hook.shown[0] == "task SUBMITTED"
        assert hook.shown[-1] == "FAILED", "the task of a server that is gone has an honest end"
        assert len(hook.taken) > before
        names = [got.headers["x-endstop-delivery"] for got in hook.taken]
        numbers = [int(name.rpartition("/")[2].partition(".")[0]) for name in names]
        assert numbers == sorted(numbers), "in order, across the restart"
        for got in hook.taken:
            assert verify(
                got.headers, got.raw, "s3cret", now_s=float(got.headers["x-endstop-timestamp"])
            )
        await asyncio.sleep(0.3)
        assert sum(shown in ENDINGS for shown in hook.shown) == 1
    server.stop()


@loop_test
async def test_a_webhook_that_was_set_at_another_server_is_told(tmp_path: Path) -> None:
    journal = ("--journal", f"sqlite:{tmp_path / 'runs.db'}")
    drives = Server(tmp_path, "endstop", *journal)
    other = Server(tmp_path, "endstop", *journal, name="other")
    async with webhook() as hook, httpx.AsyncClient(timeout=20) as http:
        terms = ClientConfig(httpx_client=http, streaming=False)
        there, here = await create_client(drives.url, terms), await create_client(other.url, terms)
        task_id = ""
        plain = asking("work 60", hook.url)
        plain.configuration.ClearField("task_push_notification_config")
        async for one in there.send_message(plain):
            task_id = one.task.id
        await here.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task_id, url=hook.url, id="c", token="s3cret")
        )
        await hook.until(lambda: hook.shown[-1:] == ["COMPLETED"])
        assert hook.shown.count("COMPLETED") == 1
        assert any(shown.startswith("artifact") for shown in hook.shown)
        request = GetTaskPushNotificationConfigRequest(task_id=task_id, id="c")
        assert (await there.get_task_push_notification_config(request)).token == "s3cret"
    drives.stop()
    other.stop()


@loop_test
async def test_a_canceled_task_tells_its_webhook_so_and_nothing_after(tmp_path: Path) -> None:
    server = Server(tmp_path, "endstop")
    async with webhook() as hook, httpx.AsyncClient(timeout=20) as http:
        client = await create_client(server.url, ClientConfig(httpx_client=http, streaming=False))
        task_id = ""
        async for one in client.send_message(asking("stubborn 500", hook.url)):
            task_id = one.task.id
        await hook.until(lambda: "WORKING" in hook.shown)
        stopped = await client.cancel_task(CancelTaskRequest(id=task_id))
        await hook.until(lambda: hook.shown[-1] == "CANCELED")
        told = hook.taken[-1].body["statusUpdate"]["status"]
        assert told["message"]["parts"][0]["text"] == stopped.status.message.parts[0].text
        await asyncio.sleep(0.3)
        assert hook.shown[-1] == "CANCELED"
    server.stop()
