"""A model with tools as a task: its conversation is the task's own run.

What a client sends is said to the model in one note, which is the message and the words. Tool calls
are calls of the run, so an approval is asked of the user of the task as it stands, and survives the
server; a loop that was lost with its server goes on where the record ends (law 16). What the model
says is shown in pieces and, whole, as the artifact `reply`. The loop closes the run; nothing here
decides how a task ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from a2a.types.a2a_pb2 import Message, Part
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from endstop.a2a import notes
from endstop.a2a.livetask import LiveTask, Request
from endstop.a2a.notes import Json
from endstop.a2a.task import TaskView
from endstop.agents.endings import Began, LoopEvent, Replied, Spoke, Voided
from endstop.agents.loop import Loop
from endstop.agents.model_agent import ModelAgent
from endstop.agents.notes import FAILURE, When, end_note, user_note
from endstop.core.terms import Outcome, Reason
from endstop.errors import CallerError, EndstopError, RunSuspended
from endstop.run.handles import Run

if TYPE_CHECKING:
    from endstop.a2a.tasks import Tasks

log = logging.getLogger("endstop.a2a")

REPLY = "reply"
"""The artifact that holds what the model says last."""
BROKEN = "the agent's conversation could not go on; the log of the server says why"
CHUNK_S = 0.1
"""What a model says in this time is shown in one piece: each piece is recorded."""


class Native:
    """Drives the conversations of one agent; belongs to the handler's loop."""

    def __init__(self, agent: ModelAgent, tasks: Tasks) -> None:
        self._agent = agent
        self._tasks = tasks
        self._talks: dict[str, _Talk] = {}
        # Not the handler's to break off: that would cancel their runs. They end with the runtime.
        self._driving: set[asyncio.Task[None]] = set()

    def open(self, run_id: str | None, labels: dict[str, str]) -> Run:
        """A new run, with the agent's budget."""
        return self._agent.open(self._tasks.runtime, run_id=run_id, labels=labels)

    async def resume(self, run_id: str) -> Run:
        """A run whose driver is gone, or that was put away."""
        return await self._agent.take_up(self._tasks.runtime, run_id)

    def check(self, message: Message) -> str:
        """What a model is told of a message. Raises InvalidParamsError where that is nothing.

        Asked before there is a task for it: a message that is refused leaves none behind.
        """
        try:
            notes.check(message)
            text = said_in(message)
            _ = user_note(text, When.AFTER)
        except (CallerError, ValueError) as problem:
            raise InvalidParamsError(f"the message cannot be taken: {problem}") from None
        return text

    def take(self, task: LiveTask, request: Request) -> None:
        """Say a message to the model, and have it work on it."""
        message = request.params.message
        text = self.check(message)
        body = {"message": notes.message_json(message), "key": request.key}
        talk = self._talk(task)
        waiting = self._tasks.hall.read(task, talk.waiting)
        full = waiting >= self._tasks.limits.messages
        if full or not talk.loop.say(text, **body):
            if not talk.driven:
                del self._talks[task.id]
            raise UnsupportedOperationError(
                f"{waiting} messages wait for task {task.id} already"
                if full
                else f"Task {task.id} is over and takes no more messages"
            )
        talk.told.append(request.key)
        task.taken[request.key] = message
        task.idle_at = None
        self._drive(talk)

    def go_on(self, task: LiveTask) -> None:
        """Drive a conversation that was just taken up."""
        self._drive(self._talk(task))

    def _talk(self, task: LiveTask) -> _Talk:
        talk = self._talks.get(task.id)
        if talk is None:
            assert task.run is not None, "a conversation has a run"
            context = task.view.context
            talk = self._talks[task.id] = _Talk(self._tasks, task.run, self._agent, context)
        return talk

    def _drive(self, talk: _Talk) -> None:
        if not talk.driven:
            talk.driven = True
            driving = asyncio.get_running_loop().create_task(self._see_through(talk))
            self._driving.add(driving)
            driving.add_done_callback(self._driving.discard)

    async def _see_through(self, talk: _Talk) -> None:
        run_id = talk.run.id
        try:
            await talk.loop.drive(close=True)
        except RunSuspended:
            log.debug("task %s was put away", run_id)
        except EndstopError as error:
            log.warning("task %s: its conversation cannot go on: %s", run_id, error)
            self._fail(talk)
        except Exception:
            log.exception("task %s: its conversation cannot go on; this is a bug", run_id)
            self._fail(talk)
        finally:
            talk.close()
            if self._talks.get(run_id) is talk:
                del self._talks[run_id]

    def _fail(self, talk: _Talk) -> None:
        """End a task that nobody drives: it must not seem to work (law 16 survives-restart).

        Changes nothing where another server has taken it.
        """
        with suppress(EndstopError):
            talk.run.note(FAILURE, end_note("broken", BROKEN))
            talk.run.close(outcome=Outcome.FAILED)
            self._tasks.stop_now(talk.run.id, Reason.SHUTDOWN)


class _Talk:
    """One conversation, and what of it is shown while it goes on."""

    def __init__(self, tasks: Tasks, run: Run, agent: ModelAgent, context: str) -> None:
        self.run = run
        self.driven = False
        self.loop = Loop(tasks.runtime, run, agent, on_event=self._see)
        self._context = context
        self._events = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._text = ""
        self._pieces = 0
        # What was said and may not be in the view yet; how much of what is there is being heard.
        self.told: deque[str] = deque()
        self._hearing = 0

    def waiting(self, view: TaskView) -> int:
        """How many messages the model has not been told of yet."""
        while self.told and self.told[0] in view.message_ids:
            self.told.popleft()
        return view.unheard + len(self.told) - self._hearing

    def close(self) -> None:
        """Show nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _see(self, event: LoopEvent) -> None:
        """Take in what the loop tells, on the handler's loop."""
        match event:
            case Spoke() if event.text:
                self._text += event.text
                if self._timer is None:
                    self._timer = self._events.call_later(CHUNK_S, self._flush)
            case Began():
                self._begin_anew()
                self._hearing = len(self.loop.transcript.hears())
            case Voided():
                self._begin_anew()
            case Replied() if event.calls:
                self._begin_anew()
                if event.text:
                    self._say_on_the_way(event)
            case Replied():
                if self._pieces:
                    self._flush()
                self._begin_anew()
                if event.text:
                    # Whoever reads the artifact later finds it whole, and not in pieces.
                    self._show(event.text, append=False, last=True)
            case _:
                pass

    def _begin_anew(self) -> None:
        self.close()
        self._text, self._pieces, self._hearing = "", 0, 0

    def _flush(self) -> None:
        self._timer = None
        text, self._text = self._text, ""
        if text:
            self._show(text, append=self._pieces > 0, last=False)
            self._pieces += 1

    def _show(self, text: str, *, append: bool, last: bool) -> None:
        body: Json = {
            "artifact": {"artifactId": REPLY, "name": REPLY, "parts": [{"text": text}]},
            "append": append,
            "lastChunk": last,
        }
        self.run.note(notes.ARTIFACT, body)

    def _say_on_the_way(self, event: Replied) -> None:
        """Not the last word: the calls of this reply come first."""
        name = f"{self.run.id}-turn-{event.turn}"
        message = notes.text_message(
            event.text, message_id=name, context=self._context, task=self.run.id
        )
        body = {"state": "TASK_STATE_WORKING", "message": notes.message_json(message)}
        self.run.note(notes.STATUS, body)


def said_in(message: Message) -> str:
    """The words of a message, for a model; data as JSON, files by their names and URLs."""
    said = [words for part in message.parts if (words := _words(part))]
    if not said:
        raise InvalidParamsError("the message has no words: a model is told text, data or a URL")
    return "\n".join(said)


def _words(part: Part) -> str:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json.dumps(MessageToDict(part.data), ensure_ascii=False)
        case "url":
            return f"{part.filename} {part.url}".strip()
        case _:
            return f"[a file: {part.filename}, {part.media_type}]" if part.filename else ""
