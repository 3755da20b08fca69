"""An executor of the SDK as the body of a call: started, stopped and ended as any other body.

One call for every message that it works on. What it publishes belongs to that call: once the call
has its ending, nothing that it says is taken any more (law 3 one-ending). Nothing here decides when
an executor runs or stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from a2a.auth.user import User
from a2a.server.agent_execution import AgentExecutor, RequestContext, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event, EventQueue
from a2a.types.a2a_pb2 import Message, SendMessageRequest, TaskState

from endstop.a2a.limits import TaskLimits
from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask, Request
from endstop.a2a.notes import Json
from endstop.a2a.queue import TaskQueue
from endstop.a2a.states import EXECUTE, OWNER
from endstop.core import inputs as i
from endstop.core.terms import EffectClass, Outcome, Reason
from endstop.errors import NotFound
from endstop.tools.context import AsyncContext
from endstop.tools.tool import Tool, tool
from endstop.work.protocol import Tell

OUTCOMES = {
    TaskState.TASK_STATE_COMPLETED: Outcome.SUCCEEDED,
    TaskState.TASK_STATE_FAILED: Outcome.FAILED,
    TaskState.TASK_STATE_REJECTED: Outcome.REJECTED,
}
"""What a terminal state that an executor publishes declares of its run."""

Stop = Callable[[str, Reason], object]
"""Stops a run or a call, by its id."""


class NoEnding(Exception):
    """An executor returned and left its task open."""


class NamedUser(User):
    """Whoever a task belongs to, where the request itself is not there any more."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        """Whether it was somebody with a name."""
        return bool(self._name)

    @property
    def user_name(self) -> str:
        """The name by which the task is owned."""
        return self._name


class CallPort:
    """One call of an executor, as its queue sees it."""

    def __init__(
        self, task: LiveTask, hall: Hall, ctx: AsyncContext, stop: Stop, tell: Tell
    ) -> None:
        self.id = task.view.id
        self._tell = tell
        self.context = task.view.context
        self._task = task
        self._hall = hall
        self._ctx = ctx
        self._stop = stop

    @property
    def limits(self) -> TaskLimits:
        """The bounds of the task."""
        return self._task.limits

    @property
    def spoken(self) -> bool:
        """Whether the executor has said anything of the task."""
        return self._task.spoken

    @property
    def bytes(self) -> int:
        """What was added to the task so far."""
        return self._task.bytes

    @bytes.setter
    def bytes(self, size: int) -> None:
        self._task.bytes = size

    def note(self, kind: str, body: Json) -> bool:
        """See `queue.Port`."""
        return not self._task.declared and self._tell(self._note(kind, body))

    def declare(self, state: int, kind: str, body: Json) -> bool:
        """Close the run as the executor says; a cancel that was recorded first still decides.

        Its last words and the end are recorded in one piece (law 15 record-first).
        """
        task, note = self._task, self._note(kind, body)
        assert task.run is not None, "a call runs in a run"
        if task.declared:
            return False
        task.declared = True
        if state == TaskState.TASK_STATE_CANCELED:
            # The agent itself gives up: a cancel like any other.
            kept = self._tell(note)
            if kept:
                self._stop(task.id, Reason.CANCELLED_BY_USER)
        else:
            outcome = OUTCOMES[state]  # type: ignore[index]
            kept = self._tell(i.Together(inputs=(note, i.CloseRun(run=task.id, outcome=outcome))))
            if kept:
                # Also where somebody else's word on the outcome was first.
                task.run.close()
        # Too late for this call: another one may still say something.
        task.declared = kept
        return kept

    def _note(self, kind: str, body: Json) -> i.Note:
        # What comes from the protocol's own objects is plain and bounded: it is not looked through.
        return i.Note(run=self.id, kind=kind, body=body, call=self._ctx.call_id)

    def late(self) -> None:
        """See `queue.Port`."""
        self._hall.count_late(self._task)

    def heard(self) -> None:
        """See `queue.Port`."""
        self._hall.heard(self._task)

    def knows(self, message_id: str) -> bool:
        """See `queue.Port`."""
        return message_id in self._task.view.message_ids


class Courtesy(EventQueue):
    """What an executor's own `cancel()` publishes: it is counted, and changes nothing."""

    def __init__(self, task: LiveTask, hall: Hall) -> None:
        self._task = task
        self._hall = hall

    async def enqueue_event(self, event: Event) -> None:
        """See `a2a.server.events.EventQueue`."""
        self._hall.count_late(self._task)


class ExecutorBodies:
    """Makes the tool whose bodies are an executor at work."""

    def __init__(
        self,
        executor: AgentExecutor,
        hall: Hall,
        builder: RequestContextBuilder | None,
        stop: Stop,
        tell: Tell,
    ) -> None:
        self._tell = tell
        self._executor = executor
        self._hall = hall
        self._builder = builder
        self._stop = stop

    def make_tool(self, grace_s: float, timeout_s: float | None, *, idempotent: bool) -> Tool:
        """The tool; `idempotent` lets a call that was lost in a restart run again (law 10)."""
        effect = EffectClass.IDEMPOTENT if idempotent else EffectClass.EFFECTFUL

        @tool(
            name=EXECUTE,
            description="Work on a message to the task.",
            effect=effect,
            isolation="coroutine",
            resources=(),
            timeout="off" if timeout_s is None else timeout_s,
            grace=grace_s,
        )
        async def execute(message: str, ctx: AsyncContext) -> None:
            await self._run(message, ctx)

        return execute

    async def _run(self, message: str, ctx: AsyncContext) -> None:
        run = ctx.call_id.partition("/")[0]
        task = self._hall.tasks.get(run)
        if task is None:
            raise NotFound(f"task {run} is not driven here any more")
        if task.joined is not None and not task.joined.done():
            await asyncio.shield(asyncio.wrap_future(task.joined))
        # What is recorded is shown in order, by whichever thread: this body may be ahead of it.
        await self._hall.until(task, lambda view: view.over or message in view.message_ids)
        request = task.requests.pop(message, None) or self._request_of(task, message)
        queue = TaskQueue(CallPort(task, self._hall, ctx, self._stop, self._tell))
        try:
            await self._executor.execute(await self.context(task, request), queue)
            if not (queue.declared or queue.interrupted):
                raise NoEnding(
                    "the agent returned without a terminal state and without asking for anything"
                )
        except Exception:
            if not queue.declared:
                assert task.run is not None, "a call runs in a run"
                task.run.close(outcome=Outcome.FAILED)
            raise

    def _request_of(self, task: LiveTask, message_id: str) -> Request:
        """A request that came before a restart, or by another server: from what is recorded."""
        view = task.view
        found = view.message(message_id) or Message()
        tenant, _, user = view.labels.get(OWNER, "").rpartition("\n")
        context = ServerCallContext(user=NamedUser(user), tenant=tenant)
        return Request(SendMessageRequest(message=found), context)

    async def context(self, task: LiveTask, request: Request | None) -> RequestContext:
        """What the executor is told of the message that it is to work on."""
        first = request is not None and len(task.view.calls) <= 1
        current = None if first else self._hall.read(task, lambda view: view.left())
        if request is None:
            request = self._request_of(task, "")
            params = None
        else:
            params = request.params
        view = task.view
        if self._builder is not None:
            return await self._builder.build(
                context=request.context,
                params=params,
                task_id=view.id,
                context_id=view.context,
                task=current,
            )
        return RequestContext(request.context, params, view.id, view.context, current, None)
