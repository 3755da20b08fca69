"""The demo's other program: works on a reply with a journal, until somebody kills it.

It runs as `python -m endstop.demo.child DIRECTORY SERVICE`, in a process that the story starts.
What it asks for is written here, so that the story knows which calls to look for in the journal.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from endstop.core.terms import ToolCall
from endstop.demo.tools import DESK, SHOP
from endstop.run.runtime import Runtime

CRASH = "crash.db"
RUN = "shop"

ORDERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("generate_image", {"prompt": "a postcard", "path": "shop/postcard.svg"}),
    ("order_poster", {"prompt": "the anniversary", "path": "shop/poster.svg"}),
    ("order_frame", {"prompt": "the founders", "path": "shop/frame.svg"}),
)


def orders() -> list[ToolCall]:
    """The calls of the reply, in its order."""
    return [
        ToolCall(model_id=f"order_{number}", tool=name, arguments=dict(arguments))
        for number, (name, arguments) in enumerate(ORDERS, 1)
    ]


async def work(directory: Path, service: str) -> None:
    """Run the orders, and record what happens in the journal of the directory."""
    DESK.set({"directory": str(directory), "service": service, "pace_s": 0.0})
    async with Runtime(SHOP, journal=str(directory / CRASH)) as runtime, runtime.run(RUN) as run:
        await run.execute(orders())


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
