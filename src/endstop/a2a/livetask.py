"""One task that is driven or followed here, and one message to it: what is kept while it lives.

Values that others fill: the observer writes the view, the handler's loop the rest. What is here is
never the truth about a task, only what is known of it; the journal has the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import Message, SendMessageRequest

from endstop.a2a.answers import is_same
from endstop.a2a.limits import TaskLimits
from endstop.a2a.secrecy import Secrecy
from endstop.a2a.streams import Stream
from endstop.a2a.task import TaskView
from endstop.core import events as e
from endstop.core.inputs import OpenRun
from endstop.run.handles import Run
from endstop.run.names import random_name
from endstop.run.recording import TRANSIENT

Holds = Callable[[TaskView], bool]
"""Something that may be true of a task, and can be waited for."""


class Request:
    """A message that an executor is to work on, and what came with it."""

    __slots__ = ("confirmed", "context", "key", "params", "secret")

    def __init__(
        self, params: SendMessageRequest, context: ServerCallContext, key: str = ""
    ) -> None:
        self.params = params
        self.context = context
        # What the message is kept under: its id, unless another message had that.
        self.key = key or params.message.message_id
        # It came so that no file has it; whoever sent it was told what it might be.
        self.secret = self.confirmed = False


class LiveTask:
    """One task that is driven here. Its view is written by the observer alone."""

    __slots__ = (
        "ahead",
        "broken",
        "busy",
        "bytes",
        "closed_at",
        "courtesy",
        "declared",
        "early",
        "idle_at",
        "joined",
        "joining",
        "late",
        "leaving",
        "limits",
        "opening",
        "remote",
        "requests",
        "run",
        "secrecy",
        "spoken",
        "streams",
        "taken",
        "view",
        "waiters",
        "waiting",
    )

    def __init__(self, run_id: str, limits: TaskLimits) -> None:
        self.view = TaskView(run_id)
        self.limits = limits
        self.run: Run | None = None
        # What opens its run, as long as that is not done: it is, with the task's first message.
        self.opening: OpenRun | None = None
        # Another server drives it: its view is read from the journal.
        self.remote = False
        self.requests: dict[str, Request] = {}
        self.waiting: list[str] = []
        self.taken: dict[str, Message] = {}
        self.waiters: list[tuple[Holds, asyncio.Future[None]]] = []
        self.streams: list[Stream] = []
        # Events that came while what was before them is still read from the journal.
        self.joining: list[e.Event] | None = None
        self.joined: Future[None] | None = None
        # How many events the view has had from the record that are still to be told of; whether not
        # even the taking up was told of.
        self.ahead = 0
        self.early = False
        # An execute call was submitted and is not over.
        self.busy = False
        self.spoken = False
        self.declared = False
        self.courtesy = False
        # It is just being put away.
        self.leaving = False
        # Why nothing more of it can be recorded, once it was given up for that.
        self.broken: Exception | None = None
        self.bytes = 0
        self.late = 0
        self.closed_at: float | None = None
        self.idle_at: float | None = None
        # Made with the first secret answer.
        self.secrecy: Secrecy | None = None

    @property
    def id(self) -> str:
        """The task's id, which is that of its run."""
        return self.view.id

    @property
    def unsettled(self) -> bool:
        """Whether it is just being taken up or put away: whoever needs it waits for that."""
        return self.joining is not None or self.leaving

    @classmethod
    def over(cls, view: TaskView, limits: TaskLimits) -> LiveTask:
        """A task that has ended, for whoever asks as if it had not."""
        assert view.over, "only what has ended stays as it is"
        task = cls(view.id, limits)
        task.view = view
        return task

    def check(self) -> None:
        """Raise what the task was given up for, where it was."""
        if self.broken is not None:
            raise self.broken

    def message(self, message_id: str) -> Message | None:
        """The message of this id, if the task was sent one."""
        return self.taken.get(message_id) or self.view.message(message_id)


def new_key(task: LiveTask, message: Message) -> str:
    """What a message is kept under: its id; one of its own where another message has that."""
    key = message.message_id
    return key if task.message(key) is None else f"{key}#{random_name()}"


def is_repeat(task: LiveTask, message: Message) -> bool:
    """Whether a message was sent before: the client did not hear the answer to the first."""
    known = task.message(message.message_id)
    return known is not None and is_same(known, message)


def since_resumed(kept: Sequence[e.Event]) -> Sequence[e.Event]:
    """What was told of a run since it was taken up, from that event on."""
    for index, event in enumerate(kept):
        if type(event) is e.RunResumed:
            return kept[index:]
    return ()


def not_known(task: LiveTask, events: Sequence[e.Event]) -> Sequence[e.Event]:
    """Those of these events that were not in the record when the task was taken up."""
    found: list[e.Event] = []
    for event in events:
        if type(event) not in TRANSIENT:
            # What comes before the taking up is of the life before that.
            task.early = task.early and type(event) is not e.RunResumed
            if task.early:
                continue
            if task.ahead:
                task.ahead -= 1
                continue
        found.append(event)
    return found
