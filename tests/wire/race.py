"""Row 9: a cancel in the instant of completion, many times, and every surface asked how it ended.

How long a body works follows the tries before it, a little longer after a completion and a little
shorter after a cancel, so that most tries are close to the instant on any machine; the seed moves
each one to either side. What must hold needs no luck: one ending, the same in the cancel's answer,
the stream, the store and the push.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from a2a.utils.errors import TaskNotCancelableError

from tests.wire.executors import Order
from tests.wire.harness import TERMINAL, Caller, Server, state_of
from tests.wire.hook import Hook, hook

LANES = 6
STEP = 1.03
SPREAD_S = 0.003
"""How far the seed moves a try to either side of the instant."""


@dataclass(slots=True)
class Tally:
    """How the tries ended, and those that the surfaces disagreed about."""

    endings: dict[str, int] = field(default_factory=dict)
    works_s: float = 0.05
    wrong: list[str] = field(default_factory=list)


async def _answer(client: Caller, task: str) -> str:
    try:
        return str(state_of(await client.cancel(task)))
    except TaskNotCancelableError:
        return "not cancelable"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def _once(client: Caller, told: Hook, seed: int, tally: Tally) -> None:
    luck = random.Random(seed)
    works_s = tally.works_s + luck.uniform(-SPREAD_S, SPREAD_S)
    order = Order(do="later", every_s=max(0.0, works_s))
    stream = client.stream(order, push=told.url)
    task = (await stream.until("WORKING")).task_id
    answer = await _answer(client, task)
    seen = await stream.end(5.0)
    stored = await client.settled(task, 5.0)
    pushed = await told.ended(task, 5.0)
    tally.endings[stored] = tally.endings.get(stored, 0) + 1
    step = 1 / STEP if "CANCELED" in (stored, answer) else STEP
    tally.works_s = min(1.0, max(0.001, tally.works_s * step))
    answered = stored if answer == "not cancelable" and stored != "CANCELED" else answer
    same = {answered, stored, *seen.endings, *pushed} == {stored}
    if not same or len(seen.endings) != 1 or len(pushed) != 1 or stored not in TERMINAL:
        tally.wrong.append(
            f"seed {seed}: answer {answer}, stored {stored}, stream {seen.endings}, push {pushed}"
        )


async def race(server: Server, tries: int, until_wrong: bool = False) -> Tally:
    """So many tries, a few of them side by side; fewer where the first that is wrong is enough."""
    tally = Tally()
    seeds = iter(range(tries))
    async with hook() as told, Caller(server) as client:

        async def lane() -> None:
            for seed in seeds:
                await _once(client, told, seed, tally)
                if until_wrong and tally.wrong:
                    return

        await asyncio.gather(*(lane() for _ in range(LANES)))
    return tally
