"""The tasks of one agent on one runtime: opened, continued, stopped, taken up and put away.

Between the handler, which speaks the protocol, and the runtime, which runs: a task is a run, a
message to it a note and a call of the executor. Everything here happens on the handler's loop,
except what the observer tells. No state of a task is kept that the journal does not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from a2a.server.agent_execution import AgentExecutor, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import SendMessageRequest
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from endstop.a2a import notes
from endstop.a2a.answers import check_answer, give, read_answer, record_of
from endstop.a2a.elsewhere import Elsewhere, Gone
from endstop.a2a.executor import ExecutorBodies
from endstop.a2a.following import Follower
from endstop.a2a.keeping import Keeper
from endstop.a2a.limits import TaskLimits
from endstop.a2a.listing import Listing
from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask, Request, is_repeat
from endstop.a2a.native import Native
from endstop.a2a.secrecy import asked_of, check_early, check_late, keep_in_mind
from endstop.a2a.states import EXECUTE, OWNER
from endstop.a2a.stopping import AGAIN, Stops
from endstop.a2a.task import TaskView
from endstop.agents.model_agent import ModelAgent
from endstop.core.inputs import Note
from endstop.core.terms import Outcome, ToolCall
from endstop.errors import CallerError
from endstop.run.base import BatchTerms
from endstop.run.handles import Run
from endstop.run.names import random_name
from endstop.run.runtime import Runtime
from endstop.run.submitted import Own
from endstop.store.memory import MemoryJournal
from endstop.work.steps import on_thread

log = logging.getLogger("endstop.a2a")

NAME_CHARS = 500
"""Longest id, context, owner or tenant that is taken."""
PARK_S = 30.0
"""How long a task that waits for its user is kept in memory."""
_TERMS = BatchTerms()


class Tasks(Stops):
    """See this module. Belongs to the loop that it is made on."""

    def __init__(
        self,
        runtime: Runtime,
        executor: AgentExecutor | ModelAgent,
        *,
        agent: str,
        limits: TaskLimits,
        grace_s: float,
        timeout_s: float | None = None,
        idempotent: bool = False,
        builder: RequestContextBuilder | None = None,
        park_s: float = PARK_S,
    ) -> None:
        self.runtime = runtime
        self.agent = agent
        self.limits = limits
        self.grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._builder = builder
        self._in_memory = isinstance(runtime.engine.journal, MemoryJournal)
        self.hall = Hall(self._loop, limits, agent)
        self.hall.on_settled = self._on_settled
        self.hall.on_over = self._on_over
        self.native: Native | None = None
        self._executor: AgentExecutor | None = None
        if isinstance(executor, ModelAgent):
            self.native = Native(executor, self)
        else:
            self._executor = executor
            tell = runtime.engine.tell
            self._bodies = ExecutorBodies(executor, self.hall, builder, self.stop_now, tell)
            tool = self._bodies.make_tool(grace_s, timeout_s, idempotent=idempotent)
            if runtime.planner.find(EXECUTE) is not None:
                raise CallerError(
                    "this runtime serves an executor already; give every handler its own runtime"
                )
            runtime.planner.recognise(tool)
            self._own = [Own(tool)]
        self.listing = Listing(runtime.engine.journal, self.hall, self.read)
        self.follower = Follower(runtime.engine.journal, self.hall)
        self.hall.follower = self.follower.follow
        self.elsewhere = Elsewhere(runtime, self.hall, self._take_for)
        self.keeper = Keeper(self, park_s=park_s)
        self._unobserve = runtime._observe_steps(self.hall.see)
        self._background: set[asyncio.Task[Any]] = set()
        self._first = self.spawn(self.keeper.begin())

    # -- whose task it is

    def labels(self, context_id: str, context: ServerCallContext, tenant: str) -> dict[str, str]:
        """What a task of this agent is found by; few, because every one is written down."""
        owned = self.owned_by(context, tenant)
        return {"agent": self.agent, "context": context_id, OWNER: owned}

    def owned_by(self, context: ServerCallContext, tenant: str) -> str:
        """Whose tasks a caller sees: a user's, within a tenant if there is one."""
        user, tenant = context.user.user_name, context.tenant or tenant
        for name, value in (("user name", user), ("tenant", tenant)):
            if len(value) > NAME_CHARS // 3 or "\n" in value:
                raise InvalidParamsError(
                    f"the {name} is one line of at most {NAME_CHARS // 3} characters"
                )
        return f"{tenant}\n{user}" if tenant else user

    def is_theirs(self, view: TaskView, context: ServerCallContext, tenant: str) -> bool:
        """Whether a task belongs to the caller: of others not even the existence is told."""
        if not view.opened or view.labels.get("agent") != self.agent:
            return False
        return view.labels.get(OWNER) == self.owned_by(context, tenant)

    async def find(
        self, task_id: str, context: ServerCallContext, tenant: str
    ) -> tuple[LiveTask | None, TaskView]:
        """A task of the caller's, and its live side where it is driven here.

        Raises TaskNotFoundError for one that is not there, or not the caller's.
        """
        await self.begun()
        task = self.hall.tasks.get(task_id)
        if task is not None and task.unsettled:
            task = await self.keeper.settled(task_id)
        view = task.view if task is not None else await self.view(task_id)
        if not self.is_theirs(view, context, tenant):
            raise TaskNotFoundError(f"Task {task_id[:NAME_CHARS]} not found")
        return task, view

    async def begun(self) -> None:
        """Wait until what an earlier server left is taken up: until then it seems to work."""
        if not self._first.done():
            await asyncio.wait({self._first})

    async def view(self, task_id: str) -> TaskView:
        """A task as the journal has it."""
        if len(task_id) > NAME_CHARS:
            return TaskView(task_id)
        found: TaskView = await self.off_loop(lambda: self.read(task_id))
        return found

    def read(self, task_id: str) -> TaskView:
        """The same; waits for the journal's file."""
        view = TaskView(task_id)
        for recorded in self.runtime.engine.journal.read(task_id):
            view.apply(recorded.event, recorded.at_s)
        return view

    async def off_loop(self, read: Callable[[], Any]) -> Any:
        """What reads the journal; on a thread where that is a file."""
        return read() if self._in_memory else await on_thread(read)

    # -- opening and going on

    async def open(
        self,
        params: SendMessageRequest,
        context: ServerCallContext,
        tenant: str,
        run_id: str | None = None,
    ) -> LiveTask:
        """A new task for a message. It is there for others once the message is sent to it."""
        message = params.message
        try:
            notes.check(message)
        except ValueError as problem:
            raise InvalidParamsError(f"the message cannot be kept: {problem}") from None
        if self.native is not None:
            self.native.check(message)
        context_id = message.context_id
        if self._builder is not None:
            built = await self._builder.build(context=context, params=params, task_id=run_id)
            run_id, context_id = built.task_id, built.context_id or ""
        context_id = context_id or f"{random_name()}{random_name()}"
        try:
            labels = self.labels(context_id, context, tenant)
            opening = None
            if self.native is not None:
                run = self.native.open(run_id, labels)
            elif run_id is not None:
                # Whoever names a run has to know at once whether the name is taken.
                run = self.runtime.run(run_id, labels=labels)
            else:
                run, opening = self.runtime._prepare_run(labels)
        except CallerError as problem:
            raise InvalidParamsError(str(problem)) from None
        task = self.hall.open(run.id)
        task.run, task.opening = run, opening
        message.task_id, message.context_id = run.id, context_id
        return task

    async def reach(self, task: LiveTask | None, view: TaskView, *, drive: bool) -> LiveTask:
        """A task as it can be waited for: driven here, or else followed.

        With `drive` it is taken up where nobody drives it.
        """
        if task is not None:
            return task
        if view.over:
            return LiveTask.over(view, self.limits)
        if drive:
            with suppress(CallerError):
                return await self.keeper.take_up(view.id, self.follower.known(view.id))
        found = LiveTask(view.id, self.limits)
        found.view, found.remote, found.spoken = view, True, True
        return self.follower.follow(found)

    async def send(self, task: LiveTask, request: Request) -> LiveTask:
        """Give a message to a task, whoever drives it; returns the task as it can be waited for."""
        for _ in range(AGAIN):
            if not task.remote:
                try:
                    self.take(task, request)
                finally:
                    if task.opening is not None:
                        # It was not opened: there is no such task.
                        self.hall.drop(task)
                return task
            try:
                await self.elsewhere.send(task, request)
                return task
            except Gone:
                view = await self.view(task.id)
                if view.over:
                    break
                task = await self.reach(self.hall.tasks.get(task.id), view, drive=True)
        raise UnsupportedOperationError(f"Task {task.id} takes no more messages: look at it again")

    async def _take_for(self, task_id: str, request: Request) -> None:
        """Take a message that came to another server."""
        task = self.hall.tasks.get(task_id)
        if task is None or task.unsettled:
            raise Gone
        if not is_repeat(task, request.params.message):
            self.take(task, request)

    def take(self, task: LiveTask, request: Request) -> None:
        """Record a message to a task, and have it worked on in its turn."""
        message = request.params.message
        assert task.run is not None, "only a task that is driven here takes a message"
        if task.view.approvals or task.view.questions:
            self._answer(task, request)
            return
        check_early(self.runtime.engine, task.id)
        if task.view.secrets or request.secret:
            self.hall.read(task, lambda view: check_late(view, task, request))
        if len(task.waiting) >= self.limits.messages:
            raise UnsupportedOperationError(
                f"{len(task.waiting)} messages wait for task {task.id} already"
            )
        if self.native is not None:
            self.native.take(task, request)
            return
        key = request.key
        try:
            body = notes.message_json(message)
            if key != message.message_id:
                body["key"] = key
        except ValueError as problem:
            raise InvalidParamsError(f"the message cannot be kept: {problem}") from None
        # What comes from the protocol's own objects is plain and bounded: it is not looked through.
        note = Note(run=task.id, kind=notes.MESSAGE, body=body)
        task.taken[key] = message
        task.requests[key] = request
        task.idle_at = None
        if self._is_free(task) and not task.waiting:
            if self._submit(task, key, note):
                return
        elif self.runtime.engine.tell(note):
            task.waiting.append(key)
            self.advance(task)
            return
        del task.taken[key], task.requests[key]
        raise UnsupportedOperationError(f"Task {task.id} is over and takes no more messages")

    def _answer(self, task: LiveTask, request: Request) -> None:
        """A message to a task that asks for something is the answer to that."""
        message, view = request.params.message, task.view
        asked = self.hall.read(task, lambda view: asked_of(view, task, request))
        if not any(asked):
            raise UnsupportedOperationError(
                f"Task {view.id} waits for no answer any more: look at it again"
            )
        answer = read_answer(message, *asked)
        check_answer(self.runtime, answer, *asked)
        assert task.run is not None, "what asks is driven"
        # Recorded first: the body that has its answer may end the task at once.
        body = record_of(message, request.key, answer, asked[1])
        keep_in_mind(task, answer, asked[1])
        kept = task.run.note(notes.SAID, body)
        if not kept or not give(self.runtime, answer, request.context.user.user_name):
            raise UnsupportedOperationError(
                f"Task {view.id} does not wait for this answer any more: look at it again"
            )
        task.taken[request.key] = notes.read_message(body)

    def advance(self, task: LiveTask) -> None:
        """Let the executor work on the next message, or end a task that it cannot go on with."""
        view = task.view
        if task.busy or view.over or view.closing or view.cancelled:
            return
        assert task.run is not None, "a task that is driven here has a run"
        if view.failed_call is not None:
            task.run.close(outcome=Outcome.FAILED)
        elif task.waiting:
            self._submit(task, task.waiting.pop(0))
        elif view.at_rest:
            task.idle_at = self._loop.time()

    async def resume(self, task_id: str) -> Run:
        """Drive a run again whose driver is gone, or that was put away."""
        if self.native is not None:
            return await self.native.resume(task_id)
        return await self.runtime.resume(task_id)

    def go_on(self, task: LiveTask) -> None:
        """Have a task worked on that was just taken up."""
        if self.native is not None:
            if not task.view.over:
                self.native.go_on(task)
            return
        task.busy = bool(task.view.executing)
        task.waiting.extend(key for key in task.view.waiting if key not in task.waiting)
        self.advance(task)

    def _is_free(self, task: LiveTask) -> bool:
        """Whether the executor can work on a message at once."""
        view = task.view
        shut = task.busy or view.over or view.closing or view.cancelled
        return not shut and view.failed_call is None

    def _submit(self, task: LiveTask, key: str, note: Note | None = None) -> bool:
        """Have a message worked on, and kept by its `note` at once; false if that is too late."""
        call = ToolCall(model_id="", tool=EXECUTE, arguments={"message": key})
        first = tuple(one for one in (task.opening, note) if one is not None)
        task.busy = True
        try:
            batch, unprepared = self.runtime._submit(task.id, [call], _TERMS, self._own, first)
        except CallerError:
            # It ended in this very moment: its ending is the answer (law 2 right-target).
            batch, unprepared = "", []
        if not batch:
            task.busy = False
            engine = self.runtime.engine
            if task.opening is not None and task.id in engine.fences:
                # The journal took nothing of it: once that is over, nothing is left of it here.
                engine.promise(task.id).then(lambda: engine.forget(task.id))
        elif task.opening is not None:
            assert task.run is not None, "who opens a task has its run"
            task.run._opened()
            task.opening = None
        for call_id, plan in unprepared:
            self.runtime._begin_preparing(call_id, task.id, plan)
        return bool(batch)

    def _on_settled(self, task: LiveTask) -> None:
        """A call of the executor is over; told on any thread."""
        # First this and then the look: a message that comes between the two advances the task.
        task.busy = False
        view = task.view
        if task.waiting or (view.failed_call is not None and not view.closing):
            self.hall.post(lambda: self.advance(task))
        elif view.at_rest:
            task.idle_at = self._loop.time()

    def _on_over(self, task: LiveTask) -> None:
        self.runtime.engine.forget(task.id)

    # -- life

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside all else, for as long as this is open."""
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
