"""The agent that the servers of these tests serve; it does what the message says."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events.event_queue_v2 import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part

TICK_S = 0.02


def tick(name: str) -> None:
    """A side effect that outlives the process: one more byte in a file."""
    with (Path(os.environ["TICKS"]) / name).open("ab") as file:
        file.write(b".")


class Agent(AgentExecutor):
    """Does what the message says: `echo WORDS`, `work NAME`, `block NAME`, `ask`, `flood N`, …"""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            assert context.message is not None
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
            await updater.start_work()
        word, _, rest = context.get_user_input().partition(" ")
        match word:
            case "work":
                # A silent tool: it says nothing for as long as it is let.
                while True:
                    tick(rest)
                    await asyncio.sleep(TICK_S)
            case "block":
                for _ in range(100):
                    tick(rest)
                    time.sleep(TICK_S)
            case "stubborn":
                for _ in range(1500):
                    tick(rest)
                    try:
                        await asyncio.sleep(TICK_S)
                    except asyncio.CancelledError:
                        continue
            case "ask":
                await updater.requires_input(updater.new_agent_message([Part(text="which?")]))
                return
            case "flood":
                for at in range(int(rest)):
                    await updater.add_artifact([Part(text="x" * 4000)], artifact_id=f"a{at}")
            case "fail":
                raise RuntimeError(f"no such file: {__file__}")
            case _:
                await updater.add_artifact([Part(text=rest)])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("it cannot be cancelled, it says")
