"""The official Python client against ours, in every binding, in the words of 1.0 and of 0.3."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from a2a.client.errors import A2AClientError
from a2a.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    InvalidParamsError,
    MethodNotFoundError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.wire.cards import BINDINGS, VERSIONS
from tests.wire.executors import Order
from tests.wire.harness import Caller, Server, house, state_of
from tests.wire.ticks import Ticks

WAYS = [(binding, version) for binding in BINDINGS for version in VERSIONS]
ways = pytest.mark.parametrize(("binding", "version"), WAYS, ids=[f"{b}-{v}" for b, v in WAYS])
bindings = pytest.mark.parametrize(("binding", "version"), [(b, "1.0") for b in BINDINGS])

QUICK = Order(do="artifacts", ticks=3, every_s=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with house("endstop", tmp_path_factory.mktemp("client")) as home:
        yield home.start("sqlite")


@pytest.fixture
def ticks(tmp_path_factory: pytest.TempPathFactory) -> Ticks:
    return Ticks(tmp_path_factory.mktemp("ticks") / "ticks")


Speak = Callable[[Callable[[Caller], Awaitable[None]]], None]


@pytest.fixture
def speak(server: Server, binding: str, version: str) -> Speak:
    """Runs a conversation with the server."""

    def run(conversation: Callable[[Caller], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(40), Caller(server, binding, version) as client:
                await conversation(client)

        asyncio.run(whole())

    return run


def refused(client: Caller, error: type[Exception]) -> Any:
    """The error that a client is expected to see.

    The SDK's client for 0.3 over HTTP+JSON goes by the HTTP status, and reads no more of a refusal.
    """
    if (client.binding, client.version) == ("HTTP+JSON", "0.3"):
        if error is TaskNotFoundError:
            return pytest.raises(MethodNotFoundError)
        return pytest.raises(A2AClientError, match="HTTP Error 4")
    return pytest.raises(error)


def texts(parts: Any) -> list[str]:
    return [part.text for part in parts]


@ways
def test_send_waits_for_the_end(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        got = await client.send(QUICK)
        assert state_of(got) == "COMPLETED"
        assert [a.artifact_id for a in got.artifacts] == ["a0", "a1", "a2"]
        assert texts(got.artifacts[2].parts) == ["2 "]
        assert got.context_id
        assert texts(got.history[0].parts) == [QUICK.text]

    speak(conversation)


@ways
def test_send_at_once_answers_with_the_task(speak: Speak, ticks: Ticks) -> None:
    async def conversation(client: Caller) -> None:
        got = await client.begin(Order(do="late", seconds=0.3, file=ticks.file))
        assert state_of(got) in ("SUBMITTED", "WORKING")
        assert not ticks.count("end")
        assert await client.settled(got.id) == "COMPLETED"

    speak(conversation)


@ways
def test_a_message_may_be_answered_with_a_message(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        got = await client.answer(Order(do="message"))
        assert texts(got.message.parts) == ["Hello"]
        seen = await client.stream(Order(do="message")).end()
        assert seen.closed
        (only,) = seen.events
        assert texts(only.message.parts) == ["Hello"]

    speak(conversation)


@ways
def test_a_stream_shows_every_event_in_order(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        seen = await client.stream(QUICK).end()
        assert seen.closed, seen.error
        assert seen.events[0].HasField("task")
        shown = [e.artifact_update for e in seen.events if e.HasField("artifact_update")]
        ids = [a.artifact_id for a in seen.events[0].task.artifacts]
        ids += [update.artifact.artifact_id for update in shown]
        assert ids == ["a0", "a1", "a2"]
        assert seen.endings == ["COMPLETED"]
        assert seen.states[-1] == "COMPLETED"
        stored = await client.get(seen.task_id)
        assert state_of(stored) == "COMPLETED"

    speak(conversation)


@ways
def test_subscribers_see_the_task_and_then_the_rest(speak: Speak, ticks: Ticks) -> None:
    async def conversation(client: Caller) -> None:
        order = Order(do="work", events=True, ticks=12, every_s=0.05, file=ticks.file)
        task = (await client.begin(order)).id
        await ticks.seen("tick", 2)
        one, other = client.subscribe(task), client.subscribe(task)
        await one.until("WORKING")
        await other.leave()
        seen = await one.end()
        assert seen.closed, seen.error
        first = seen.events[0].task
        assert first.id == task
        shown = [e.artifact_update for e in seen.events if e.HasField("artifact_update")]
        names = [a.name for a in first.artifacts] + [update.artifact.name for update in shown]
        assert names == [f"part {n}" for n in range(12)], "a gap or a repetition"
        assert seen.endings == ["COMPLETED"]

    speak(conversation)


@ways
def test_nobody_subscribes_to_what_is_over(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        done = (await client.send(QUICK)).id
        old_rest = (client.binding, client.version) == ("HTTP+JSON", "0.3")
        # The client of that one goes by the status and reads no words.
        refusals = ("HTTP Error 400", "Resource not found")
        if not old_rest:
            refusals = ("terminal state", "not found")
        for task, refusal in zip((done, "nowhere"), refusals, strict=True):
            seen = await client.subscribe(task).end()
            assert not seen.events
            assert refusal in str(seen.error)

    speak(conversation)


@ways
def test_get_gives_as_much_history_as_is_asked_for(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        asked = await client.send(Order(do="ask"))
        assert state_of(asked) == "INPUT_REQUIRED"
        assert texts(asked.status.message.parts) == ["Which one?"]
        done = await client.send(Order(do="ask"), task_id=asked.id)
        assert (done.id, state_of(done)) == (asked.id, "COMPLETED")
        whole = list((await client.get(asked.id)).history)
        assert len(whole) >= 2
        assert list((await client.get(asked.id, history=1)).history) == whole[-1:]
        if client.version != "0.3":
            # In the SDK's 0.3 client a length of 0 is the same as none.
            assert not (await client.get(asked.id, history=0)).history
        with refused(client, TaskNotFoundError):
            await client.get("nowhere")

    speak(conversation)


@ways
def test_cancel_and_its_errors(speak: Speak, ticks: Ticks) -> None:
    async def conversation(client: Caller) -> None:
        task = (await client.begin(Order(ticks=100, file=ticks.file))).id
        await ticks.seen("tick")
        for _ in range(2):
            got = await client.cancel(task)
            assert state_of(got) == "CANCELED"
            assert got.status.message.parts, "a status that says what was stopped"
        assert not ticks.count("end")
        done = await client.send(QUICK)
        with refused(client, TaskNotCancelableError):
            await client.cancel(done.id)
        with refused(client, TaskNotFoundError):
            await client.cancel("nowhere")

    speak(conversation)


@ways
def test_messages_to_the_wrong_task_are_refused(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        done = await client.send(QUICK)
        with refused(client, UnsupportedOperationError):
            await client.send(QUICK, task_id=done.id)
        with refused(client, TaskNotFoundError):
            await client.send(QUICK, task_id="nowhere")
        asked = await client.send(Order(do="ask"))
        with refused(client, InvalidParamsError):
            await client.send(Order(do="ask"), task_id=asked.id, context_id="another")

    speak(conversation)


@bindings
def test_list_pages_and_filters(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        listed = f"listed {client.binding}"
        tasks = [await client.send(QUICK, context_id=listed) for _ in range(4)]
        asked = await client.send(Order(do="ask"), context_id=listed)
        ids = [t.id for t in (asked, *reversed(tasks))]
        seen, page, token = [], 0, ""
        while page == 0 or token:
            got = await client.plain.list_tasks(
                ListTasksRequest(context_id=listed, page_size=2, page_token=token)
            )
            assert got.total_size == 5
            assert got.page_size == 2
            assert not any(t.artifacts for t in got.tasks), "artifacts that nobody asked for"
            seen += [t.id for t in got.tasks]
            token, page = got.next_page_token, page + 1
        assert page == 3
        assert sorted(seen) == sorted(ids)
        assert seen == ids, "newest first"
        waiting = ListTasksRequest(
            context_id=listed, status=TaskState.TASK_STATE_INPUT_REQUIRED, history_length=1
        )
        got = await client.plain.list_tasks(waiting)
        assert [t.id for t in got.tasks] == [asked.id]
        assert len(got.tasks[0].history) <= 1
        full = ListTasksRequest(context_id=listed, include_artifacts=True)
        got = await client.plain.list_tasks(full)
        assert [len(t.artifacts) for t in got.tasks] == [0, 3, 3, 3, 3]
        later = ListTasksRequest(context_id=listed)
        later.status_timestamp_after.CopyFrom(tasks[-1].status.timestamp)
        got = await client.plain.list_tasks(later)
        assert asked.id in [t.id for t in got.tasks]
        assert tasks[0].id not in [t.id for t in got.tasks]
        assert not (await client.plain.list_tasks(ListTasksRequest(context_id="none"))).tasks
        for bad in (ListTasksRequest(page_size=-1), ListTasksRequest(page_token="no token")):
            with refused(client, InvalidParamsError):
                await client.plain.list_tasks(bad)

    speak(conversation)


@ways
def test_push_configs_are_kept_by_task(speak: Speak, version: str) -> None:
    async def conversation(client: Caller) -> None:
        task = (await client.send(Order(do="ask"))).id
        url = "http://127.0.0.1:9/told"
        for name in ("one", "two"):
            got = await client.plain.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=task, id=name, url=url, token=f"t-{name}")
            )
            assert (got.task_id, got.id, got.url) == (task, name, url)
        one = await client.plain.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id=task, id="one")
        )
        assert (one.id, one.url, one.task_id) == ("one", url, task)
        asked = ListTaskPushNotificationConfigsRequest(task_id=task)
        if (client.binding, version) != ("HTTP+JSON", "0.3"):
            # The SDK's own 0.3 client refuses this one over HTTP+JSON.
            listed = await client.plain.list_task_push_notification_configs(asked)
            assert {c.id for c in listed.configs} == {"one", "two"}
            await client.plain.delete_task_push_notification_config(
                DeleteTaskPushNotificationConfigRequest(task_id=task, id="one")
            )
            listed = await client.plain.list_task_push_notification_configs(asked)
            assert [c.id for c in listed.configs] == ["two"]
        with refused(client, TaskNotFoundError):
            await client.plain.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id="nowhere", id="one")
            )

    speak(conversation)


@ways
def test_the_extended_card(speak: Speak) -> None:
    async def conversation(client: Caller) -> None:
        assert client.card.description == "Does what the message says."
        got = await client.plain.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert got.description.endswith("for those it knows.")

    speak(conversation)
