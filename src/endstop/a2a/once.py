"""Messages that make one task, however often they come: for clients that lost the answer.

A client asks for it in the message's metadata. The id of its task then follows from the message's
id and its owner, so that the journal itself, which has no run twice, sees to it that there is one
(law 10 no-blind-retry). Other messages without a task each open one, as the protocol has it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Message, SendMessageRequest
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

if TYPE_CHECKING:
    from endstop.a2a.livetask import LiveTask
    from endstop.a2a.tasks import Tasks

ONCE = "endstop/once"
"""The key in a message's metadata; its value is true."""


def once_id(message: Message, *whose: str) -> str | None:
    """The id of the one task that a message makes; None for one that does not ask for that."""
    if message.task_id or not message.HasField("metadata"):
        return None
    if ONCE not in message.metadata or message.metadata[ONCE] is not True:
        return None
    named = json.dumps([message.message_id, *whose])
    return "once" + hashlib.sha256(named.encode()).hexdigest()[:24]


async def find_once(
    tasks: Tasks, params: SendMessageRequest, context: ServerCallContext
) -> str | None:
    """The id for the task of such a message. Where the task is there, the message is given to it.

    Raises InvalidParamsError as `Tasks.owned_by` does.
    """
    message = params.message
    run_id = once_id(message, tasks.agent, tasks.owned_by(context, params.tenant))
    if run_id is None:
        return None
    try:
        await tasks.find(run_id, context, params.tenant)
    except TaskNotFoundError:
        return run_id
    message.task_id = run_id
    return run_id


async def open_once(
    tasks: Tasks, params: SendMessageRequest, context: ServerCallContext, run_id: str | None
) -> LiveTask | None:
    """A new task for a message. None where the same message, sent twice at once, was faster.

    The message is then given to the task of the other one. Raises as `Tasks.open` does.
    """
    try:
        return await tasks.open(params, context, params.tenant, run_id)
    except InvalidParamsError:
        await find_once(tasks, params, context)
        if not params.message.task_id:
            raise
        return None
