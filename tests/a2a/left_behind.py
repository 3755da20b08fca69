"""A server that is killed: it begins tasks in every phase, says which, and works on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.a2a.serving import Executor, Work, ask, serving


async def work(work: Work) -> None:
    """A side effect every 20 ms, in a file, until it is killed."""
    await work.begin()
    while True:
        with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
            file.write("x")
        await asyncio.sleep(0.02)


async def main() -> None:
    again = "again" in sys.argv
    executor = Executor(work=work, ask=ask)
    async with serving(executor, journal=sys.argv[1], idempotent=again) as house:
        working = await house.begin("work")
        await house.until(working.id, 2)
        asking = await house.task("ask")
        queued = await house.begin("work")
        waiting = asyncio.create_task(house.send("work", task_id=queued.id))
        await asyncio.sleep(0.1)
        print(json.dumps({"working": working.id, "asking": asking.id, "queued": queued.id}))
        sys.stdout.flush()
        await waiting


if __name__ == "__main__":
    asyncio.run(main())
