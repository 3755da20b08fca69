"""The request handler: the protocol's eleven operations over the journal.

Takes the place of the SDK's default handler, with the names of its arguments. It speaks the
protocol and decides nothing about a run: what a task is, is read from the journal, and what is to
happen to it is asked of the runtime. No path of ours may be in an error.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from a2a.server.agent_execution import AgentExecutor, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from a2a.utils.input_mode_validator import validate_input_modes as check_input_modes
from a2a.utils.proto_utils import validate_proto_required_fields

from endstop.a2a.limits import TaskLimits
from endstop.a2a.livetask import LiveTask, Request, is_repeat, new_key
from endstop.a2a.once import find_once, open_once
from endstop.a2a.push import Pusher
from endstop.a2a.pushing import PushMethods, UrlValidator
from endstop.a2a.states import INTERRUPTED, OWNER, TERMINAL
from endstop.a2a.streams import Update
from endstop.a2a.task import TaskView
from endstop.a2a.tasks import PARK_S, Tasks
from endstop.agents.model_agent import ModelAgent
from endstop.errors import CallerError, StaleWriter
from endstop.run.base import new_run_id
from endstop.run.runtime import Runtime
from endstop.store.protocol import Journal

CardModifier = Callable[[AgentCard, ServerCallContext], Awaitable[AgentCard]]
GRACE_S = 5.0


class EndstopRequestHandler(PushMethods):
    """Runs an unchanged `AgentExecutor` so that cancel stops it, and every task has one ending."""

    def __init__(
        self,
        agent_executor: AgentExecutor | ModelAgent,
        task_store: Any = None,
        agent_card: AgentCard | None = None,
        queue_manager: Any = None,
        push_config_store: Any = None,
        push_sender: Any = None,
        request_context_builder: RequestContextBuilder | None = None,
        extended_agent_card: AgentCard | None = None,
        extended_card_modifier: CardModifier | None = None,
        push_url_validator: UrlValidator | None = None,
        validate_input_modes: bool = False,
        event_stream: Any = None,
        interrupted_task_timeout: float | None = None,
        *,
        journal: Journal | str | None = None,
        runtime: Runtime | None = None,
        limits: TaskLimits | None = None,
        grace_s: float = GRACE_S,
        timeout_s: float | None = None,
        idempotent: bool = False,
        make_pusher: Callable[[Journal], Pusher] = Pusher,
    ) -> None:
        if agent_card is None:
            raise CallerError("EndstopRequestHandler needs agent_card=, the card that it serves")
        _warn_of_unused(
            task_store=task_store,
            queue_manager=queue_manager,
            event_stream=event_stream,
            push_config_store=push_config_store,
            push_sender=push_sender,
        )
        self.agent_executor = agent_executor
        self.agent_card = agent_card
        self.extended_agent_card = extended_agent_card
        self.extended_card_modifier = extended_card_modifier
        self._check_modes = validate_input_modes
        self._builder = request_context_builder
        self._limits = limits if limits is not None else TaskLimits()
        self._grace_s = grace_s
        self._timeout_s = timeout_s
        self._idempotent = idempotent
        self._park_s = PARK_S if interrupted_task_timeout is None else interrupted_task_timeout
        if not self._park_s > 0:
            raise CallerError(f"interrupted_task_timeout is {self._park_s}; it is above 0, or None")
        self._journal = journal
        self._owns_runtime = runtime is None
        self._runtime = runtime
        self._url_validator = push_url_validator
        self._make_pusher = make_pusher
        self._pusher: Pusher | None = None
        self._made: Tasks | None = None

    # -- life

    async def __aenter__(self) -> Self:
        self.tasks()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def tasks(self) -> Tasks:
        """The tasks of this agent; the runtime begins on the running loop with the first use."""
        if self._made is None:
            if self._runtime is None:
                self._runtime = Runtime(journal=self._journal, bodies="own-loop")
            self._runtime._start()
            self._made = Tasks(
                self._runtime,
                self.agent_executor,
                agent=self.agent_card.name,
                limits=self._limits,
                grace_s=self._grace_s,
                timeout_s=self._timeout_s,
                idempotent=self._idempotent,
                builder=self._builder,
                park_s=self._park_s,
            )
            if self.agent_card.capabilities.push_notifications:
                self._pusher = self._make_pusher(self._runtime.engine.journal)
                self._made.hall.watcher = self._pusher.tell
                _ = self._made.spawn(self._pusher.start())
        return self._made

    async def recover(self) -> list[str]:
        """Take up the tasks of this agent whose server is gone (law 16 survives-restart).

        What had not begun goes on; of what had, the outcome is lost, and the task ends and says so;
        what waits for its user goes on waiting. Returns the ids of those that were taken up. Done
        by itself every few seconds.
        """
        tasks = self.tasks()
        await tasks.begun()
        return [*tasks.keeper.taken, *await tasks.keeper.sweep()]

    async def aclose(self) -> None:
        """Let go: what runs is stopped by the ladder if the runtime is the handler's own."""
        if self._made is not None:
            if self._pusher is not None:
                await self._pusher.aclose()
            await self._made.aclose()
            if self._owns_runtime and self._runtime is not None:
                # Where another server took a task from this one, that one has the record.
                with suppress(StaleWriter):
                    await self._runtime.close(suspend=True)

    # -- messages

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        """Send a message and wait for the answer, or for the task to exist."""
        task, request = await self._find_or_open(params, context)
        key = request.key
        if not is_repeat(task, params.message):
            task = await self.tasks().send(task, request)
        history = _history_length(params.configuration)
        hall = self.tasks().hall
        if params.configuration.return_immediately:
            await hall.until(task, lambda view: view.over or key in view.message_ids)
        else:
            await hall.until(task, lambda view: _answered(view, key))
            if task.view.reply is not None and not task.spoken:
                return task.view.reply
        found: Task = hall.read(task, lambda view: view.task(history))
        return found

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Send a message and see what becomes of it."""
        self._need_streaming()
        task, request = await self._find_or_open(params, context)
        tasks = self.tasks()
        hall, key = tasks.hall, request.key
        stream = hall.watch(task, key)
        try:
            if stream.first is None:
                # Watched first, so that not even the first event is missed.
                task = await tasks.send(task, request)
                await hall.until(task, lambda view: view.over or key in view.message_ids)
            update = await stream.next(self._limits.first_event_s)
            if task.view.reply is not None and not task.spoken:
                yield task.view.reply
                return
            if update is None:
                hall.renew(task, stream)
            yield self._cut(stream.first or hall.read(task, lambda view: view.task()), params)
            while update is not None or not stream.ended:
                if update is not None:
                    yield update
                    if _is_rest(update):
                        return
                update = await stream.next()
        finally:
            hall.leave(task, stream)

    @staticmethod
    def _cut(task: Task, params: SendMessageRequest) -> Task:
        """A task with as much history as was asked for."""
        length = _history_length(params.configuration)
        if length is not None:
            del task.history[: max(0, len(task.history) - length)]
        return task

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """See a task from now on: first as it stands, then every update."""
        self._need_streaming()
        _need(params, bool(params.id))
        task, view = await self.tasks().find(params.id, context, params.tenant)
        if view.over:
            name = TaskState.Name(view.state)
            raise UnsupportedOperationError(f"Task {view.id} is in terminal state: {name}")
        task = await self.tasks().reach(task, view, drive=False)
        hall = self.tasks().hall
        stream = hall.subscribe(task, lambda view: view.task())
        try:
            while True:
                update = await stream.next()
                if update is not None:
                    yield update
                elif stream.ended:
                    return
        finally:
            hall.leave(task, stream)

    async def _find_or_open(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> tuple[LiveTask, Request]:
        """The task that a message is for, and the message as it will be kept there."""
        message, configuration = params.message, params.configuration
        _need(params, bool(message.message_id and message.role and message.parts))
        if params.ByteSize() > self._limits.message_bytes:
            raise InvalidParamsError(
                f"a message has at most {self._limits.message_bytes} bytes; send a file by its URL"
            )
        if not all(part.WhichOneof("content") for part in message.parts):
            raise InvalidParamsError("a part of a message holds one of text, raw, url and data")
        _history_length(configuration)
        if self._check_modes:
            check_input_modes(message, self.agent_card)
        tasks = self.tasks()
        push = None
        if configuration.HasField("task_push_notification_config"):
            push = configuration.task_push_notification_config
        run_id = await find_once(tasks, params, context)
        if not message.task_id:
            if push is not None:
                # Before the task is there: a config that is refused must not leave a task behind.
                run_id = run_id or new_run_id()
                await self._keep_config(push, run_id, context, params.tenant, 0)
            opened = await open_once(tasks, params, context, run_id)
            if opened is not None:
                return opened, Request(params, context)
        found, view = await tasks.find(message.task_id, context, params.tenant)
        if message.context_id and message.context_id != view.context:
            raise InvalidParamsError(
                f"Task {view.id} belongs to context {view.context}, not to {message.context_id}"
            )
        message.context_id = view.context
        if push is not None and not view.over:
            await self._keep_config(push, view.id, context, params.tenant, view.seq)
            # That took its time: the task may have been put away, or be over.
            found, view = await tasks.find(message.task_id, context, params.tenant)
        task = await tasks.reach(found, view, drive=True)
        if is_repeat(task, message):
            return task, Request(params, context)
        if view.over:
            name = TaskState.Name(view.state)
            raise UnsupportedOperationError(f"Task {view.id} is in terminal state: {name}")
        return task, Request(params, context, new_key(task, message))

    # -- tasks

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """A task as it stands."""
        _need(params, bool(params.id))
        history = _history_length(params)
        task, view = await self.tasks().find(params.id, context, params.tenant)
        if task is None:
            return view.task(history)
        found: Task = self.tasks().hall.read(task, lambda view: view.task(history))
        return found

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """The caller's tasks, page by page."""
        _history_length(params)
        tasks = self.tasks()
        await tasks.begun()
        labels = {"agent": tasks.agent, OWNER: tasks.owned_by(context, params.tenant)}
        if params.context_id:
            labels["context"] = params.context_id
        found: ListTasksResponse = await tasks.off_loop(lambda: tasks.listing.page(labels, params))
        return found

    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        """Stop a task; answers with the state that won."""
        _need(params, bool(params.id))
        tasks = self.tasks()
        task, view = await tasks.find(params.id, context, params.tenant)
        if not view.over:
            task = await tasks.reach(task, view, drive=True)
            await tasks.cancel(task, context)
            view = task.view
        if view.state in TERMINAL and view.state != TaskState.TASK_STATE_CANCELED:
            name = TaskState.Name(view.state)
            raise TaskNotCancelableError(f"Task {view.id} is in terminal state: {name}")
        if task is None:
            return view.task()
        found: Task = tasks.hall.read(task, lambda view: view.task())
        return found

    # -- the card

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """The card for callers who are known."""
        if not self.agent_card.capabilities.extended_agent_card:
            raise UnsupportedOperationError("The agent has no extended card")
        card = self.extended_agent_card
        if card is None:
            raise ExtendedAgentCardNotConfiguredError
        if self.extended_card_modifier is None:
            return card
        return await self.extended_card_modifier(card, context)

    def _need_streaming(self) -> None:
        if not self.agent_card.capabilities.streaming:
            raise UnsupportedOperationError("Streaming is not supported by the agent")


def _answered(view: TaskView, key: str) -> bool:
    return view.over or (view.at_rest and key in view.message_ids)


def _is_rest(update: Update) -> bool:
    status = getattr(update, "status", None)
    return status is not None and status.state in INTERRUPTED | TERMINAL


def _need(params: Any, complete: bool) -> None:
    """Refuse a request that lacks a required field, with the SDK's own words for what it lacks."""
    if not complete:
        validate_proto_required_fields(params)


def _history_length(config: Any) -> int | None:
    if not config.HasField("history_length"):
        return None
    if config.history_length < 0:
        raise InvalidParamsError("history length must be non-negative")
    length: int = config.history_length
    return length


def _warn_of_unused(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            warnings.warn(
                f"EndstopRequestHandler does not use {name}: the journal is its store, its queue "
                'and its stream; pass journal="tasks.db" for one that survives a restart',
                stacklevel=3,
            )
