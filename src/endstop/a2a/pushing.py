"""The four operations on push configs: checked here for whose task it is, kept by the pusher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types.a2a_pb2 import (
    AgentCard,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
)
from a2a.utils.proto_utils import validate_proto_required_fields

from endstop.a2a.push import Pusher
from endstop.a2a.tasks import Tasks

UrlValidator = Callable[[str], Awaitable[bool]]


class PushMethods(RequestHandler):
    """The part of the handler that keeps push configs."""

    agent_card: AgentCard
    _url_validator: UrlValidator | None
    _pusher: Pusher | None

    def tasks(self) -> Tasks:
        """See `handler.EndstopRequestHandler`."""
        raise NotImplementedError

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Keep where a task's updates are to be sent, from now on."""
        pusher = self._need_pusher()
        validate_proto_required_fields(params)
        if not params.task_id:
            raise InvalidParamsError("a push config names its task")
        _, view = await self.tasks().find(params.task_id, context, params.tenant)
        await self._check_url(params.url)
        return await pusher.set(self._owner(context, params.tenant), params, after_seq=view.seq)

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """One of a task's push configs."""
        pusher = self._need_pusher()
        validate_proto_required_fields(params)
        await self.tasks().find(params.task_id, context, params.tenant)
        found = await pusher.get(self._owner(context, params.tenant), params.task_id, params.id)
        if found is None:
            raise TaskNotFoundError("Push config not found")
        return found

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """A task's push configs: a few, on one page."""
        pusher = self._need_pusher()
        validate_proto_required_fields(params)
        await self.tasks().find(params.task_id, context, params.tenant)
        found = await pusher.list(self._owner(context, params.tenant), params.task_id)
        return ListTaskPushNotificationConfigsResponse(configs=found)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Forget a push config; deleting it twice is no error."""
        pusher = self._need_pusher()
        validate_proto_required_fields(params)
        await self.tasks().find(params.task_id, context, params.tenant)
        await pusher.delete(self._owner(context, params.tenant), params.task_id, params.id)

    # -- inside

    async def _keep_config(
        self,
        config: TaskPushNotificationConfig,
        task_id: str,
        context: ServerCallContext,
        tenant: str,
        after_seq: int,
    ) -> None:
        """Keep the push config that came with a message."""
        pusher = self._need_pusher()
        kept = TaskPushNotificationConfig()
        kept.CopyFrom(config)
        kept.task_id = task_id
        await self._check_url(kept.url)
        await pusher.set(self._owner(context, tenant), kept, after_seq=after_seq)

    async def _check_url(self, url: str) -> None:
        if self._url_validator is not None and not await self._url_validator(url):
            raise InvalidParamsError("Invalid push notification URL")

    def _owner(self, context: ServerCallContext, tenant: str) -> str:
        return self.tasks().owned_by(context, tenant)

    def _need_pusher(self) -> Pusher:
        self.tasks()
        if self._pusher is None:
            raise PushNotificationNotSupportedError(
                "Push notifications are not supported by the agent"
            )
        return self._pusher
