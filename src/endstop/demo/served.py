"""The demo's agent for the server: bakes until it is stopped, and leaves a line for each loaf.

`endstop serve` reads this file as it reads a user's. It is an ordinary executor of the A2A SDK, and
its own `cancel` is what most executors have: it refuses.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater

from endstop.demo.third import LOAVES_AT

EVERY_S = 0.05


class Baker(AgentExecutor):
    """Bakes."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Bake one loaf after the other, for ever."""
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await updater.start_work()
        book = Path(os.environ[LOAVES_AT])
        while True:
            _bake(book)
            await asyncio.sleep(EVERY_S)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Refuse, as most do: nothing depends on it."""
        raise NotImplementedError("this agent cannot be cancelled")


def _bake(book: Path) -> None:
    with book.open("a", encoding="utf-8") as lines:
        lines.write(f"{time.time()}\n")


agent = Baker()
