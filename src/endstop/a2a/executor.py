"""An executor of the SDK as the body of a call: started, stopped and ended as any other body.

One call for every message that it works on. What it publishes belongs to that call: once the call
has its ending, nothing that it says is taken any more (law 3 one-ending). Nothing here decides when
an executor runs or stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Lock

from a2a.auth.user import User
from a2a.server.agent_execution import AgentExecutor, RequestContext, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event as Said
from a2a.server.events.event_queue import EventQueue
from a2a.types.a2a_pb2 import Message, SendMessageRequest

from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask, Request
from endstop.a2a.notes import Json
from endstop.a2a.queue import TaskQueue
from endstop.a2a.states import CANCELED, COMPLETED, EXECUTE, FAILED, OWNER, REJECTED
from endstop.core import inputs as i
from endstop.core.events import Event, Noted
from endstop.core.terms import EffectClass, Outcome, Reason
from endstop.errors import NotFound
from endstop.tools.context import AsyncContext
from endstop.tools.tool import Tool, tool
from endstop.work.ending import say_last
from endstop.work.protocol import Tell

OUTCOMES = {
    COMPLETED: Outcome.SUCCEEDED,
    FAILED: Outcome.FAILED,
    REJECTED: Outcome.REJECTED,
}
"""What a terminal state that an executor publishes declares of its run."""

Stop = Callable[[str, Reason], object]
"""Stops a run or a call, by its id."""

Recording = Callable[[i.Input, Callable[[list[Event]], None]], bool]
"""Gives an input to the core, and shows what is recorded of it; see `Engine.tell`."""


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
    """One call of an executor, as its queue sees it.

    What is said is kept until the handler's loop comes to it, or the body has to know, and then
    recorded in one step, in its order: a body that says three things in a row costs one step, and
    one that blocks its own loop after it has said something is heard all the same.
    """

    __slots__ = (
        "_call",
        "_first",
        "_flushing",
        "_hall",
        "_last",
        "_posted",
        "_said",
        "_shut",
        "_stop",
        "_task",
        "_tell",
        "context",
        "declared",
        "id",
        "limits",
    )

    def __init__(
        self, task: LiveTask, hall: Hall, ctx: AsyncContext, stop: Stop, tell: Recording
    ) -> None:
        self.id = task.view.id
        self.context = task.view.context
        self.limits = task.limits
        # Whether this call's word that the task is over was taken.
        self.declared = False
        self._tell = tell
        self._task = task
        self._hall = hall
        self._call = ctx.call_id
        self._stop = stop
        self._said: list[tuple[i.Note | i.CloseRun, ...]] = []
        self._last: i.Note | None = None
        self._flushing = Lock()
        self._posted = self._first = self._shut = False

    @property
    def spoken(self) -> bool:
        """Whether the executor has said anything of the task."""
        return self._task.spoken

    def weigh(self, size: int) -> int:
        """See `queue.Port`."""
        self._task.bytes += size
        return self._task.bytes

    def note(self, kind: str, body: Json) -> None:
        """See `queue.Port`."""
        if self._task.declared or self._last is not None:
            self._hall.count_late(self._task)
        else:
            self._say(self._note(kind, body))

    def declare(self, state: int, kind: str, body: Json) -> None:
        """Close the run as the executor says; a cancel that was recorded first still decides.

        Its last words and the end are recorded in one piece (law 15 record-first).
        """
        task, note = self._task, self._note(kind, body)
        # Without a call between the look and the word: no other thread comes between them.
        if task.declared or self._last is not None:
            self._hall.count_late(task)
            return
        # Of this call alone: it may be over, and another one at work.
        self._last = note
        if state != CANCELED:
            outcome = OUTCOMES[state]  # type: ignore[index]
            self._say(note, i.CloseRun(run=task.id, outcome=outcome))
            return
        self._say(note)
        # The agent itself gives up: a cancel like any other.
        self.flush()
        if self.declared:
            self._stop(task.id, Reason.CANCELLED_BY_USER)

    def heard(self) -> None:
        """See `queue.Port`; what comes after the end was not said."""
        if self._task.declared or self._last is not None:
            return
        self._task.spoken = self._first = True
        self._soon()

    def knows(self, message_id: str) -> bool:
        """See `queue.Port`."""
        return message_id in self._task.view.message_ids

    def flush(self) -> None:
        """See `queue.Port`; from any thread."""
        with self._flushing:
            # First this and then the look: what is said between the two is posted again.
            self._posted = False
            said = self._take()
            if said:
                self._record(said)
            if self._first:
                self._first = False
                self._hall.heard(self._task)

    def before(self, tell: Tell) -> Tell:
        """The same way to tell of the body, taken only once what was said before is recorded: a
        question, say, comes after the words that lead to it."""

        def tell_after(said: i.Input) -> bool:
            self.flush()
            return tell(said)

        return tell_after

    @property
    def declares(self) -> bool:
        """Whether this call has said that the task is over, and was not refused."""
        return self.declared or self._last is not None

    def last_words(self) -> tuple[i.Note | i.CloseRun, ...]:
        """What was said and is not recorded yet, to be recorded with the end of the call."""
        with self._flushing:
            said = self._take()
            if self._last is not None and not (self.declared or self._holds_last(said)):
                # Another thread is in the middle of its word on the end.
                self._record(said)
                return ()
            # Nothing that comes after it is recorded before it.
            self._shut = True
            if self._last is not None:
                # No call that is not stopped has its ending before its body: it is not too late.
                self.declared = self._task.declared = True
            if said:
                # Whoever watches is woken by it.
                self._first = False
            return tuple(said)

    def _take(self) -> list[i.Note | i.CloseRun]:
        said: list[i.Note | i.CloseRun] = []
        while self._said:
            said += self._said.pop(0)
        return said

    def _holds_last(self, said: Sequence[i.Note | i.CloseRun]) -> bool:
        last = self._last
        return last is not None and any(one is last for one in said)

    def _say(self, *said: i.Note | i.CloseRun) -> None:
        self._said.append(said)
        self._soon()

    def _soon(self) -> None:
        if not self._posted:
            self._posted = True
            self._hall.post(self.flush)

    def _record(self, said: list[i.Note | i.CloseRun]) -> None:
        happened: list[Event] = []
        if self._shut or not self._tell(i.Together(inputs=tuple(said)), happened.extend):
            happened.clear()
        task = self._task
        words = [one for one in said if type(one) is i.Note]
        kept = sum(type(one) is Noted for one in happened)
        for _ in range(len(words) - kept):
            self._hall.count_late(task)
        if self._holds_last(words[:kept]):
            self.declared = task.declared = True
        elif self._holds_last(words):
            # Too late for this call; another one may still say something.
            self._last = None

    def _note(self, kind: str, body: Json) -> i.Note:
        # What comes from the protocol's own objects is plain and bounded: it is not looked through.
        return i.Note(run=self.id, kind=kind, body=body, call=self._call)


class Courtesy(EventQueue):
    """What an executor's own `cancel()` publishes: it is counted, and changes nothing."""

    def __init__(self, task: LiveTask, hall: Hall) -> None:
        self._task = task
        self._hall = hall

    async def enqueue_event(self, event: Said) -> None:
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
        tell: Recording,
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
        port = CallPort(task, self._hall, ctx, self._stop, self._tell)
        ctx._tell = port.before(ctx._tell)
        queue = TaskQueue(port)
        try:
            try:
                await self._executor.execute(await self.context(task, request), queue)
                if (queue.interrupted or port.declares) and not ctx.cancelled:
                    say_last(ctx, port.last_words())
            finally:
                port.flush()
            if not (queue.interrupted or port.declared):
                raise NoEnding(
                    "the agent returned without a terminal state and without asking for anything"
                )
        except Exception:
            if not port.declared:
                assert task.run is not None, "a call runs in a run"
                task.run.close(outcome=Outcome.FAILED)
            raise

    def _request_of(self, task: LiveTask, message_id: str) -> Request:
        """A request that came before a restart, or by another server: from what is recorded."""
        view = task.view
        found = view.message(message_id) or Message()
        tenant, _, user = view.labels.get(OWNER, "").rpartition("\n")
        context = ServerCallContext(user=NamedUser(user), tenant=tenant)
        return Request(SendMessageRequest(message=found), context, message_id)

    async def context(self, task: LiveTask, request: Request | None) -> RequestContext:
        """What the executor is told of the message that it is to work on."""
        # By its message: the view has that, and may not have the call yet.
        history = task.view.history
        first = request is not None and bool(history) and history[0].message_id == request.key
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
