"""Between the transports and the handler: what goes wrong in a handler is not told to clients.

An error of the protocol goes through as it is; any other is logged here, and the client reads a
number by which whoever runs the server finds it. No path and no traceback of ours leaves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any, TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import A2AError, InternalError

log = logging.getLogger("endstop.server")

Value = TypeVar("Value")
_END: Any = object()


DOWN = "the server went down; the task is kept: ask for it when the server is back"


class Guarded(RequestHandler):
    """A handler whose errors are those of the protocol, and whose readers can be let go."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._reading: set[asyncio.Task[Any]] = set()
        self._let_go: set[asyncio.Task[Any]] = set()
        self._down = False

    async def quiet(self, limit_s: float) -> None:
        """Wait until nobody waits for the handler any more, at most so long."""
        if self._reading:
            await asyncio.wait(tuple(self._reading), timeout=limit_s)

    def go_down(self) -> None:
        """Answer whoever still waits, and whoever comes, that the server went down."""
        self._down = True
        for task in self._reading - self._let_go:
            self._let_go.add(task)
            task.cancel()

    async def _one(self, answer: Awaitable[Value]) -> Value:
        task = asyncio.current_task()
        assert task is not None, "a handler is asked in a task"
        self._reading.add(task)
        try:
            return await answer
        except A2AError:
            raise
        except asyncio.CancelledError:
            if task not in self._let_go:
                raise
            # Ours, and of nobody else: the client reads why.
            task.uncancel()
            raise InternalError(DOWN) from None
        except Exception as error:  # noqa: BLE001 - a handler may raise whatever it likes
            raise _hidden(error) from None
        finally:
            self._reading.discard(task)
            self._let_go.discard(task)

    async def _many(self, answers: AsyncGenerator[Value]) -> AsyncGenerator[Value]:
        # Closed here and now when the client is gone, and not when the collector comes by.
        async with aclosing(answers):
            while not self._down:
                found = await self._one(anext(answers, _END))
                if found is _END:
                    return
                yield found
            raise InternalError(DOWN)

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        return await self._one(self._handler.on_message_send(params, context))

    def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        return self._many(self._handler.on_message_send_stream(params, context))

    def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        return self._many(self._handler.on_subscribe_to_task(params, context))

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        return await self._one(self._handler.on_get_task(params, context))

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        return await self._one(self._handler.on_list_tasks(params, context))

    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        return await self._one(self._handler.on_cancel_task(params, context))

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        return await self._one(
            self._handler.on_create_task_push_notification_config(params, context)
        )

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        return await self._one(self._handler.on_get_task_push_notification_config(params, context))

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        return await self._one(
            self._handler.on_list_task_push_notification_configs(params, context)
        )

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await self._one(self._handler.on_delete_task_push_notification_config(params, context))

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        return await self._one(self._handler.on_get_extended_agent_card(params, context))


def _hidden(error: Exception) -> InternalError:
    number = secrets.token_hex(4)
    log.error("internal error %s", number, exc_info=error)
    return InternalError(f"internal error {number}; the log of the server says more")
