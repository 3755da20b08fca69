"""A cancel around the instant of completion, seeded, a thousand times (law 3 one-ending).

Answer, store and stream are three readings of one record: they must never disagree, and a task that
was canceled anywhere is canceled everywhere.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Task, TaskState
from a2a.utils.errors import TaskNotCancelableError

from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    TERMINAL,
    Executor,
    House,
    Work,
    everything,
    serving,
    words,
)

SEED = 20
AT_ONCE = 25


async def short(work: Work) -> None:
    """Work for a moment that the message names, and end well."""
    await work.begin()
    delay_s = float(work.text.split()[1])
    if delay_s:
        await asyncio.sleep(delay_s)
    await work.updater.complete(work.say("done"))


async def one(house: House, delay_s: float, wait_s: float) -> tuple[set[int], str]:
    """Cancel one task somewhere around its end; returns all that was said of its end."""
    sent = asyncio.create_task(house.send(f"go {delay_s}", context_id="race"))
    stream = house.stream(f"go {delay_s}")
    first = await anext(stream)
    assert isinstance(first, Task)
    reading = asyncio.create_task(everything(stream))
    if wait_s:
        await asyncio.sleep(wait_s)
    said = set()
    try:
        said.add((await house.cancel(first.id)).status.state)
    except TaskNotCancelableError:
        said.add(COMPLETED)
    ends = [one.status.state for one in await reading if one.status.state in TERMINAL]
    assert len(ends) == 1, f"a stream shows one end: {ends}"
    said.add(ends[0])
    stored = await house.get(first.id)
    assert stored.status.state in (CANCELED, COMPLETED), words(stored)
    said.add(stored.status.state)
    answer = await sent
    assert isinstance(answer, Task)
    said_of_other = {answer.status.state, (await house.get(answer.id)).status.state}
    assert said_of_other == {COMPLETED}, f"law 2 right-target: nobody stopped that one: {answer}"
    return said, first.id


@pytest.mark.parametrize(("store", "tries"), [("memory", 1000), ("sqlite", 1000)])
def test_nobody_disagrees_about_the_end(store: str, tries: int, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    journal = str(tmp_path / "tasks.db") if store == "sqlite" else None

    async def play() -> dict[int, int]:
        found: dict[int, int] = {}
        async with serving(Executor(go=short), journal=journal, grace_s=2.0) as house:
            left = tries
            while left > 0:
                batch = min(AT_ONCE, left)
                left -= batch
                delays = [chance.choice((0.0, 0.001, 0.003)) for _ in range(batch)]
                rounds = [
                    one(house, delay_s, chance.uniform(0.0, 2.0) * delay_s) for delay_s in delays
                ]
                for said, task_id in await asyncio.gather(*rounds):
                    assert len(said) == 1, (
                        f"{task_id}: {[TaskState.Name(state) for state in said]}"  # type: ignore[arg-type]
                    )
                    (end,) = said
                    found[end] = found.get(end, 0) + 1
            # Once more from the record alone.
            assert not house.handler.tasks().hall.tasks
        return found

    found = asyncio.run(play())
    assert sum(found.values()) == tries
    assert found.keys() == {CANCELED, COMPLETED}, f"both must have won at times: {found}"
