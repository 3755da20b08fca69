"""A handler in this process, executors that behave in every way, and short words for requests."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from a2a.auth.user import User
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue_v2 import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

from endstop.a2a import EndstopRequestHandler

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED
WORKING = TaskState.TASK_STATE_WORKING
SUBMITTED = TaskState.TASK_STATE_SUBMITTED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED
TERMINAL = frozenset({COMPLETED, FAILED, CANCELED, REJECTED})

_numbers = itertools.count(1)

LIMIT_S = 20.0
"""Longer than anything here may take; a test that waits so long has found a hang."""

Behaviour = Callable[["Work"], Awaitable[None]]


class Work:
    """What a behaviour is given: the context, the queue, and an updater for both."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self.context = context
        self.queue = queue
        assert context.task_id
        assert context.context_id
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)

    @property
    def text(self) -> str:
        """What the user said."""
        return self.context.get_user_input()

    async def begin(self) -> None:
        """What most executors begin with."""
        if self.context.current_task is None:
            assert self.context.message is not None
            await self.queue.enqueue_event(new_task_from_user_message(self.context.message))
        await self.updater.start_work()

    def say(self, text: str) -> Message:
        """A message of the agent."""
        return self.updater.new_agent_message([Part(text=text)])


class Executor(AgentExecutor):
    """An executor that behaves as it is told, by the first word of the message."""

    def __init__(self, **behaviours: Behaviour) -> None:
        self.behaviours = behaviours
        self.cancels = 0
        self.executions: list[str] = []
        self.on_cancel: Behaviour | None = None

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        work = Work(context, event_queue)
        self.executions.append(work.text)
        await self.behaviours[work.text.split()[0]](work)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.cancels += 1
        if self.on_cancel is None:
            raise NotImplementedError("cancel is not supported")
        await self.on_cancel(Work(context, event_queue))


async def complete(work: Work) -> None:
    """Work, add one artifact, and end well."""
    await work.begin()
    await work.updater.add_artifact([Part(text="result")], artifact_id="result")
    await work.updater.complete(work.say("done"))


async def sleep(work: Work) -> None:
    """Work for longer than any test; ends when it is asked to."""
    await work.begin()
    await asyncio.sleep(60)


async def ask(work: Work) -> None:
    """Ask the user, and return."""
    await work.begin()
    await work.updater.requires_input(work.say("which one?"))


class Named(User):
    """Somebody who has shown who it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self.name


def by(name: str = "", tenant: str = "") -> ServerCallContext:
    """The context of a call by somebody."""
    if not name:
        return ServerCallContext(tenant=tenant)
    return ServerCallContext(user=Named(name), tenant=tenant)


def card(**more: Any) -> AgentCard:
    """The card of the agent under test."""
    capabilities = AgentCapabilities(streaming=True, push_notifications=True, **more)
    return AgentCard(name="tester", description="d", version="1", capabilities=capabilities)


class House:
    """A handler and the requests of a client, in few words."""

    def __init__(self, handler: EndstopRequestHandler) -> None:
        self.handler = handler

    def request(self, text: str, *, now: bool = False, **message: Any) -> SendMessageRequest:
        """A request with one text; `now` returns at once."""
        message.setdefault("message_id", f"m{next(_numbers)}")
        message.setdefault("role", Role.ROLE_USER)
        message.setdefault("parts", [Part(text=text)])
        request = SendMessageRequest(message=Message(**message))
        request.configuration.return_immediately = now
        return request

    async def send(
        self, text: str, *, who: ServerCallContext | None = None, **more: Any
    ) -> Task | Message:
        """Send a message and wait for the answer."""
        request = self.request(text, **more)
        return await asyncio.wait_for(self.handler.on_message_send(request, who or by()), LIMIT_S)

    async def begin(self, text: str, **more: Any) -> Task:
        """Send a message and return when the task is there."""
        task = await self.send(text, now=True, **more)
        assert isinstance(task, Task)
        return task

    async def task(self, text: str, **more: Any) -> Task:
        """Send a message that is answered by a task."""
        task = await self.send(text, **more)
        assert isinstance(task, Task), task
        return task

    async def get(self, task_id: str, who: ServerCallContext | None = None, **more: Any) -> Task:
        """A task as it stands."""
        found = await self.handler.on_get_task(GetTaskRequest(id=task_id, **more), who or by())
        assert found is not None
        return found

    async def cancel(self, task_id: str, who: ServerCallContext | None = None) -> Task:
        """Stop a task."""
        found = await asyncio.wait_for(
            self.handler.on_cancel_task(CancelTaskRequest(id=task_id), who or by()), LIMIT_S
        )
        assert found is not None
        return found

    async def list(self, who: ServerCallContext | None = None, **more: Any) -> Any:
        """The caller's tasks."""
        return await self.handler.on_list_tasks(ListTasksRequest(**more), who or by())

    def stream(self, text: str, who: ServerCallContext | None = None, **more: Any) -> Any:
        """Send a message and see what becomes of it."""
        return self.handler.on_message_send_stream(self.request(text, **more), who or by())

    def subscribe(self, task_id: str, who: ServerCallContext | None = None) -> Any:
        """See what becomes of a task."""
        return self.handler.on_subscribe_to_task(SubscribeToTaskRequest(id=task_id), who or by())

    async def settled(self) -> None:
        """Wait until nothing runs any more, what was abandoned included."""
        limit = time.monotonic() + LIMIT_S
        while self.handler.tasks().runtime.calls():
            assert time.monotonic() < limit, "something never ends"
            await asyncio.sleep(0.01)

    async def until(self, task_id: str, *states: int) -> Task:
        """Wait until a task is in one of these states."""
        limit = time.monotonic() + LIMIT_S
        while (task := await self.get(task_id)).status.state not in states:
            assert time.monotonic() < limit, f"{task_id} stays {task.status.state}"
            await asyncio.sleep(0.005)
        return task


@asynccontextmanager
async def serving(executor: Any, **terms: Any) -> AsyncIterator[House]:
    """A handler of its own, with a short ladder."""
    terms.setdefault("grace_s", 0.3)
    terms.setdefault("agent_card", card())
    async with EndstopRequestHandler(agent_executor=executor, **terms) as handler:
        yield House(handler)


async def everything(stream: AsyncGenerator[Any]) -> list[Any]:
    """All that a stream has, to its end."""

    async def read() -> list[Any]:
        return [update async for update in stream]

    return await asyncio.wait_for(read(), LIMIT_S)


def words(task: Any) -> str:
    """The text of a status."""
    return "\n".join(part.text for part in task.status.message.parts if part.text)


def state_name(state: int) -> str:
    """The name of a state, without what all of them begin with."""
    return TaskState.Name(state).removeprefix("TASK_STATE_")  # type: ignore[arg-type]
