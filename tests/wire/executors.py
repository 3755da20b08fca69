"""Agents as people write them: executors for the SDK's server, good and bad ones.

They know nothing of endstop: the same objects are given to the stock handler and to ours. What one
does is said in the text of the message, as JSON (`Order`). What really happens is written to the
file that the order names, by the body itself.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part, Role, TaskState

from tests.wire.ticks import CANCELS_NOW, Ticks, note

FOREVER_S = 3600.0
ENDLESS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a message asks for: which body, which cancel, how often and how fast it ticks.

    An `endless` body goes on until the test says that it cancels, and from then on for `ticks`
    rounds: whatever a busy machine makes of the time before, the cancel finds it at work.
    """

    do: str = "work"
    cancel: str = "publish"
    file: str = "/dev/null"
    ticks: int = 20
    every_s: float = 0.1
    seconds: float = 2.0
    size: int = 0
    events: bool = False
    endless: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    def note(self, word: str) -> None:
        note(self.file, word)

    def rounds(self) -> Iterator[int]:
        """The numbers of the rounds, with a tick for each."""
        left = self.ticks
        for number in range(ENDLESS):
            if left <= 0:
                return
            if not self.endless or Ticks(Path(self.file)).count(CANCELS_NOW):
                left -= 1
            self.note("tick")
            yield number


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One execute(): what was ordered, and the means to answer."""

    order: Order
    context: RequestContext
    queue: EventQueue
    up: TaskUpdater

    def updater(self) -> TaskUpdater:
        """A second updater, which does not know what the first one has published."""
        return TaskUpdater(self.queue, self.up.task_id, self.up.context_id)

    async def begin(self) -> None:
        """What every sample begins with: the task, then working."""
        if self.context.current_task is None:
            assert self.context.message is not None
            await self.queue.enqueue_event(new_task_from_user_message(self.context.message))
        await self.up.start_work()
        self.order.note("begin")


def say(text: str) -> list[Part]:
    return [new_text_part(text)]


async def work(job: Job) -> None:
    """Works on, tick by tick, and is stopped by a CancelledError."""
    await job.begin()
    for number in job.order.rounds():
        if job.order.events:
            await job.up.add_artifact(say(f"part {number}"), name=f"part {number}")
        await asyncio.sleep(job.order.every_s)
    await job.up.complete()
    job.order.note("end")


async def swallow(job: Job) -> None:
    """Takes the CancelledError for one more error, and goes on to its end."""
    await job.begin()
    for number in job.order.rounds():
        try:
            if job.order.events:
                await job.up.add_artifact(say(f"part {number}"), name=f"part {number}")
            await asyncio.sleep(job.order.every_s)
        except asyncio.CancelledError:
            job.order.note("swallowed")
    await job.up.complete()
    job.order.note("end")


async def complete_when_cancelled(job: Job) -> None:
    """Publishes "completed" on its way out."""
    await job.begin()
    try:
        await asyncio.sleep(job.order.seconds)
    except asyncio.CancelledError:
        await job.up.complete()
        job.order.note("end")
        return
    await job.up.complete()


async def thread(job: Job) -> None:
    """A blocking tool in a thread, which nobody can interrupt."""
    await job.begin()

    def blocking() -> None:
        for _ in job.order.rounds():
            time.sleep(job.order.every_s)

    await asyncio.to_thread(blocking)
    await job.up.complete()
    job.order.note("end")


async def block(job: Job) -> None:
    """Blocks the loop that runs it."""
    await job.begin()
    await asyncio.sleep(0)
    for _ in job.order.rounds():
        time.sleep(job.order.every_s)
    await job.up.complete()
    job.order.note("end")


async def after_the_end(job: Job) -> None:
    """A part of the agent goes on publishing after another has completed the task."""
    await job.begin()
    other = job.updater()
    await job.up.complete()
    await asyncio.sleep(0.05)
    await other.add_artifact(say("too late"), name="too late")
    await other.start_work()
    await job.updater().failed()
    job.order.note("end")


async def no_end(job: Job) -> None:
    """Forgets to say how it ended."""
    await job.begin()
    job.order.note("end")


async def late(job: Job) -> None:
    """Says nothing at all for a while."""
    job.order.note("begin")
    await asyncio.sleep(job.order.seconds)
    await job.begin()
    await job.up.complete()
    job.order.note("end")


async def silent(job: Job) -> None:
    """Says that it works, and then nothing until its end; what it does is in the file."""
    await job.begin()
    for _ in job.order.rounds():
        await asyncio.sleep(job.order.every_s)
    await job.up.complete()
    job.order.note("end")


async def artifacts(job: Job) -> None:
    """Many artifacts (or the same one, written anew), as fast as it can."""
    await job.begin()
    filling = "x" * job.order.size
    same = bool(job.order.more.get("same"))
    for number in range(job.order.ticks):
        name = "a" if same else f"a{number}"
        await job.up.add_artifact(say(f"{number} {filling}"), artifact_id=name)
        if job.order.every_s:
            await asyncio.sleep(job.order.every_s)
    await job.up.complete()
    job.order.note("end")


async def ask(job: Job) -> None:
    """Asks once, and completes on the answer."""
    if job.context.current_task is None:
        await job.begin()
        job.order.note("asked")
        await job.up.requires_input(job.up.new_agent_message(say("Which one?")))
        return
    job.order.note("answered")
    await job.up.start_work()
    await job.up.complete(job.up.new_agent_message(say("That one.")))
    job.order.note("end")


async def message(job: Job) -> None:
    """Answers with a message; there is no task."""
    await job.queue.enqueue_event(new_text_message("Hello", role=Role.ROLE_AGENT))
    job.order.note("end")


async def fail(job: Job) -> None:
    await job.begin()
    raise ValueError("the tool has no key for /etc/secret/place")


async def three_events(job: Job) -> None:
    """A second of work in three events, each of which somebody may want to be told of."""
    await job.begin()
    for number in range(3):
        await asyncio.sleep(job.order.seconds / 3)
        if number < 2:
            await job.up.add_artifact(say(f"step {number}"), artifact_id=f"s{number}")
    await job.up.complete()
    job.order.note("end")


async def later(job: Job) -> None:
    """Completes after a while: the other end of a race."""
    await job.begin()
    await asyncio.sleep(job.order.every_s)
    await job.up.complete()


CHILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.wire.ticks import note
for _ in range(300):
    note(sys.argv[2], "tick")
    time.sleep(0.1)
"""


async def child(job: Job) -> None:
    """Runs another program and waits for it; on its way out it ends it, as one should."""
    await job.begin()
    root = str(job.order.more["root"])
    program = [sys.executable, "-c", CHILD, root, job.order.file]
    process = await asyncio.create_subprocess_exec(*program, stdin=subprocess.DEVNULL)
    try:
        job.order.note(f"the program ended: {await process.wait()}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    await job.up.complete()


BODIES: dict[str, Callable[[Job], Awaitable[None]]] = {
    body.__name__: body
    for body in (
        work,
        swallow,
        complete_when_cancelled,
        thread,
        block,
        after_the_end,
        no_end,
        late,
        silent,
        artifacts,
        ask,
        message,
        fail,
        three_events,
        later,
        child,
    )
}


async def publish_canceled(job: Job) -> None:
    """The good cancel: says that it is so."""
    await job.up.update_status(TaskState.TASK_STATE_CANCELED)


async def do_nothing(job: Job) -> None:
    """A cancel that was left empty."""


async def refuse(job: Job) -> None:
    raise NotImplementedError("cancel is not supported")


async def hang(job: Job) -> None:
    await asyncio.sleep(FOREVER_S)


async def take_long(job: Job) -> None:
    await asyncio.sleep(0.4)
    await job.up.cancel()


CANCELS: dict[str, Callable[[Job], Awaitable[None]]] = {
    "publish": publish_canceled,
    "nothing": do_nothing,
    "raise": refuse,
    "hang": hang,
    "slow": take_long,
}


class Agent(AgentExecutor):
    """Does what the message says; its cancel is the one that the task was begun with."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}

    def job(self, order: Order, context: RequestContext, queue: EventQueue) -> Job:
        assert context.task_id is not None
        assert context.context_id is not None
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        return Job(order=order, context=context, queue=queue, up=updater)

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        order = Order(**json.loads(context.get_user_input()))
        assert context.task_id is not None
        self.orders.setdefault(context.task_id, order)
        await BODIES[order.do](self.job(order, context, event_queue))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        order = self.orders.get(context.task_id or "", Order())
        order.note("cancel")
        await CANCELS[order.cancel](self.job(order, context, event_queue))
