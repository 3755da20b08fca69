"""An agent that is a model with tools, as an executor: `ModelExecutor(agent)`.

The conversation is a run of its own below the call of the task's executor: a stop of the task
reaches its model and its tools in the same instant (law 17 children-settle), and `endstop` shows it
beside the task. What its calls ask a human becomes a question of the task: the task is
`input-required`, and the next message answers. Decides nothing of how a call or a task ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events.event_queue import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import Part, TaskState

from endstop.agents.delegate import below
from endstop.agents.endings import Began, LoopEvent, LoopResult, Replied, Spoke, Voided
from endstop.agents.loop import Loop
from endstop.agents.model_agent import ModelAgent
from endstop.core import events as e
from endstop.core.payload import dumps
from endstop.errors import CallerError, EndstopError
from endstop.run.handles import Run
from endstop.run.runtime import Runtime
from endstop.run.submitted import here
from endstop.tools.context import AsyncContext, current

REPLY = "reply"
"""The artifact that holds what the model says last."""

CHUNK_S = 0.1
"""What a model says in this time is shown in one piece: each piece is recorded."""

YES, NO = "yes", "no"


class ModelExecutor(AgentExecutor):
    """Runs a `ModelAgent` for each task; for `EndstopRequestHandler`, and for no other handler."""

    def __init__(self, agent: ModelAgent) -> None:
        self.agent = agent

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Work on the message to the end of the conversation."""
        runtime, body = here.get(None), current()
        if not isinstance(runtime, Runtime) or not isinstance(body, AsyncContext):
            raise CallerError("a ModelAgent is served by EndstopRequestHandler and its runtime")
        assert context.task_id, "the handler gives every task an id"
        assert context.context_id, "and a context"
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            assert context.message is not None, "a task begins with a message"
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
            await updater.start_work()
        limits = self.agent.limits.budget()
        said = _Said(updater)
        async with Run(runtime, below(runtime, body.call_id, body.call_id, limits=limits)) as run:
            loop = Loop(runtime, run, self.agent, on_event=said.see)
            loop.say(context.get_user_input())
            with _Relay(runtime, run.id, body):
                result = await said.while_it_goes(loop.drive())
        await _finish(updater, result, said)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Nothing: the stop of the call reaches all of it."""


async def _finish(updater: TaskUpdater, result: LoopResult, said: _Said) -> None:
    if result.ok:
        if said.pieces != 1 or said.shown != result.text:
            # Whoever reads the artifact later finds it whole, and not in pieces.
            await updater.add_artifact([Part(text=result.text)], artifact_id=REPLY, name=REPLY)
        await updater.complete()
    else:
        words = updater.new_agent_message([Part(text=result.why)])
        await updater.failed(words)


class _Said:
    """What the model says, shown piece by piece; each turn begins anew."""

    def __init__(self, updater: TaskUpdater) -> None:
        self._updater = updater
        self._text = ""
        self._fresh = True
        self._notes: list[str] = []
        self._news = asyncio.Event()
        # What a reader of the artifact has by now, and in how many pieces.
        self.shown = ""
        self.pieces = 0

    def see(self, event: LoopEvent) -> None:
        """Take in what the loop tells, on the loop's thread."""
        match event:
            case Spoke():
                self._text += event.text
            case Began() | Voided():
                self._text, self._fresh = "", True
            case Replied() if event.calls and event.text:
                # Not the last word: it is said on the way, and the artifact begins anew.
                self._notes.append(event.text)
            case Replied():
                pass
        self._news.set()

    async def while_it_goes(self, drive: Coroutine[Any, Any, LoopResult]) -> LoopResult:
        """Show it while the loop is driven; returns what came of that."""
        showing = asyncio.create_task(self._show())
        try:
            return await drive
        finally:
            showing.cancel()
            await asyncio.wait([showing])
            await self._flush()

    async def _show(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._flush()
            await asyncio.sleep(CHUNK_S)

    async def _flush(self) -> None:
        notes, self._notes = self._notes, []
        for note in notes:
            words = self._updater.new_agent_message([Part(text=note)])
            await self._updater.update_status(TaskState.TASK_STATE_WORKING, words)
        text, self._text = self._text, ""
        if not text:
            return
        append, self._fresh = not self._fresh, False
        self.shown = self.shown + text if append else text
        self.pieces = self.pieces + 1 if append else 1
        await self._updater.add_artifact(
            [Part(text=text)], artifact_id=REPLY, name=REPLY, append=append
        )


class _Relay:
    """Asks the user of the task what the calls of the conversation ask a human."""

    def __init__(self, runtime: Runtime, run_id: str, body: AsyncContext) -> None:
        self._runtime = runtime
        self._run_id = run_id
        self._body = body
        self._loop = asyncio.get_running_loop()
        # By the call or the question that they are about.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __enter__(self) -> None:
        self._leave = self._runtime.observe(self._see)

    def __exit__(self, *error: object) -> None:
        self._leave()
        for task in self._tasks.values():
            task.cancel()

    def _see(self, event: e.Event) -> None:
        """On whatever thread it happened."""
        if event.run != self._run_id:
            return
        match event:
            case e.ApprovalAsked():
                self._on_loop(lambda: self._begin(event.call, self._approve(event.call)))
            case e.QuestionAsked():
                self._on_loop(lambda: self._begin(event.question, self._answer(event.question)))
            case e.ApprovalAnswered() | e.CallSettled():
                # By this user, or by somebody else: nobody need be asked any more.
                self._on_loop(lambda: self._end(event.call))
            case e.QuestionAnswered() | e.QuestionWithdrawn():
                self._on_loop(lambda: self._end(event.question))
            case _:
                pass

    def _on_loop(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _begin(self, name: str, asking: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = self._loop.create_task(asking)

    def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def _approve(self, call_id: str) -> None:
        for pending in self._runtime.pending():
            if pending.call_id == call_id:
                words = f"May {pending.tool} run with {dumps(pending.arguments)}?"
                with suppress(EndstopError):
                    answer = await self._body.ask(words, choices=(YES, NO))
                    if answer == YES:
                        pending.approve(by="the user of the task")
                    else:
                        pending.reject(by="the user of the task")

    async def _answer(self, name: str) -> None:
        for question in self._runtime.questions():
            if question.question_id == name:
                with suppress(EndstopError):
                    question.answer(
                        await self._body.ask(
                            question.text, choices=question.choices, secret=question.secret
                        )
                    )
