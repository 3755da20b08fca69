"""An answer that is secret goes to the body that asked, and into no record (law 13)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from endstop import current
from endstop.tools.context import AsyncContext
from tests.a2a.serving import COMPLETED, INPUT_REQUIRED, Executor, House, Work, serving

SECRET = "correct-horse-battery"


class Locked(Executor):
    """Asks for a password, and completes with what it was told of it in `heard`."""

    def __init__(self) -> None:
        super().__init__(unlock=self.unlock)
        self.heard: list[str] = []

    async def unlock(self, work: Work) -> None:
        await work.begin()
        ctx = current()
        assert isinstance(ctx, AsyncContext)
        self.heard.append(await ctx.ask("password?", secret=True))
        await work.updater.complete(work.say("unlocked"))


async def unlocked(at: House, by_way_of: House, executor: Locked, tmp_path: Path) -> None:
    """Have a password asked for at one server, and answer at another, twice."""
    task = await at.task("unlock")
    assert task.status.state == INPUT_REQUIRED
    ended = await by_way_of.task(SECRET, task_id=task.id, message_id="answer")
    assert ended.status.state == COMPLETED
    again = await by_way_of.task(SECRET, task_id=task.id, message_id="answer")
    assert again.id == task.id, "the same message again is answered, and nothing else"
    assert executor.heard == [SECRET]
    said = [part.text for message in ended.history for part in message.parts]
    assert "(a secret answer)" in said
    assert SECRET not in " ".join(said)
    held = [one.read_bytes() for one in tmp_path.iterdir() if one.is_file()]
    assert held
    assert not any(SECRET.encode() in content for content in held)


def test_a_secret_answer_is_in_no_record(tmp_path: Path) -> None:
    executor = Locked()

    async def play() -> None:
        async with serving(executor, journal=str(tmp_path / "tasks.db")) as house:
            await unlocked(house, house, executor, tmp_path)

    asyncio.run(play())


def test_a_secret_answer_to_the_other_server_is_in_no_file_on_its_way(tmp_path: Path) -> None:
    executor = Locked()
    journal = str(tmp_path / "tasks.db")

    async def play() -> None:
        async with (
            serving(executor, journal=journal) as first,
            serving(executor, journal=journal) as second,
        ):
            await unlocked(first, second, executor, tmp_path)

    asyncio.run(play())
