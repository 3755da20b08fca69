"""Cancel: one ladder, the state that won, and honest words, whatever the executor does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Part, Task
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict

from endstop import Runtime
from endstop.a2a import EndstopRequestHandler
from endstop.errors import CallerError
from tests.a2a.serving import (
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    TERMINAL,
    WORKING,
    Executor,
    House,
    Work,
    ask,
    card,
    complete,
    everything,
    serving,
    sleep,
    words,
)

GRACE_S = 0.3


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


def calls(task: Task) -> list[dict[str, Any]]:
    """What became of each call, as a program reads it."""
    return list(MessageToDict(task.metadata).get("endstop/calls", []))


async def start(house: House, text: str) -> Task:
    """A task that works."""
    task = await house.begin(text)
    return await house.until(task.id, WORKING)


async def swallow(work: Work) -> None:
    """Take no notice of a stop, and claim to have succeeded."""
    await work.begin()
    for _ in range(20):
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    await work.updater.complete(work.say("done after all"))


async def lie(work: Work) -> None:
    """Claim success while being stopped."""
    await work.begin()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await work.updater.complete(work.say("done after all"))
        raise


async def block(work: Work) -> None:
    """Block the event loop."""
    await work.begin()
    time.sleep(1.0)
    await work.updater.complete()


async def in_a_thread(work: Work) -> None:
    """A blocking tool on a thread that nobody can stop."""
    await work.begin()
    await asyncio.to_thread(time.sleep, 0.8)
    await work.updater.complete()


@pytest.mark.parametrize("behaviour", [sleep, swallow, lie, block, in_a_thread])
def test_a_canceled_task_stays_canceled_whatever_its_executor_does(
    behaviour: Any, journal: str | None
) -> None:
    async def play() -> None:
        executor = Executor(go=behaviour)
        async with serving(executor, journal=journal, grace_s=GRACE_S) as house:
            began = await start(house, "go")
            watching = asyncio.create_task(everything(house.subscribe(began.id)))
            await asyncio.sleep(0.02)
            at = time.monotonic()
            task = await house.cancel(began.id)
            assert time.monotonic() - at < GRACE_S + 1.0, "law 6 bounded-stop"
            assert task.status.state == CANCELED
            assert words(task).startswith("Canceled.")
            (row,) = calls(task)
            assert row["effect"] == "unknown", "law 5 honest-effect: it had begun"
            seen = await watching
            ends = [one for one in seen if one.status.state in TERMINAL]
            assert [one.status.state for one in ends] == [CANCELED], "law 3 one-ending"
            await asyncio.sleep(0.1)
            assert (await house.get(began.id)).status.state == CANCELED
            assert (await house.cancel(began.id)).status.state == CANCELED, "idempotent"
            await house.settled()

    asyncio.run(play())


def test_what_could_not_be_stopped_is_said_to_be_alive() -> None:
    async def play() -> None:
        async with serving(Executor(go=swallow), grace_s=0.1) as house:
            began = await start(house, "go")
            task = await house.cancel(began.id)
            assert "may still be running" in words(task)
            (row,) = calls(task)
            assert (row["stopped"], row["alive"]) == ("abandoned", True)
            await house.settled()

    asyncio.run(play())


def test_a_stop_is_felt_at_once_by_an_executor_that_cooperates() -> None:
    async def play() -> None:
        async with serving(Executor(go=sleep), grace_s=5.0) as house:
            began = await start(house, "go")
            at = time.monotonic()
            task = await house.cancel(began.id)
            assert time.monotonic() - at < 0.5
            (row,) = calls(task)
            assert row["stopped"] == "asked"

    asyncio.run(play())


def test_an_executors_own_cancel_is_called_once_and_changes_nothing() -> None:
    async def hang(work: Work) -> None:
        await asyncio.sleep(60)

    async def complete_it(work: Work) -> None:
        await work.updater.complete(work.say("I win"))

    async def play(on_cancel: Any) -> None:
        executor = Executor(go=swallow)
        executor.on_cancel = on_cancel
        async with serving(executor, grace_s=GRACE_S) as house:
            began = await start(house, "go")
            at = time.monotonic()
            found = await asyncio.gather(*[house.cancel(began.id) for _ in range(10)])
            assert time.monotonic() - at < GRACE_S + 1.0, "one shared ladder"
            assert {one.status.state for one in found} == {CANCELED}
            assert executor.cancels == 1
            await house.settled()

    for on_cancel in (None, hang, complete_it):
        asyncio.run(play(on_cancel))


def test_cancel_before_the_executor_began_says_that_nothing_did() -> None:
    async def play() -> None:
        executor = Executor(book=ask)
        async with serving(executor) as house:
            task = await house.task("book")
            assert task.status.state == INPUT_REQUIRED
            stopped = await house.cancel(task.id)
            assert stopped.status.state == CANCELED
            assert "already happened: the agent" in words(stopped)

    asyncio.run(play())


def test_what_is_over_cannot_be_canceled(journal: str | None) -> None:
    async def play() -> None:
        async with serving(Executor(hello=complete), journal=journal) as house:
            task = await house.task("hello")
            with pytest.raises(TaskNotCancelableError, match="COMPLETED"):
                await house.cancel(task.id)
            with pytest.raises(TaskNotFoundError):
                await house.cancel("nowhere")

    asyncio.run(play())


def test_what_is_published_after_the_end_is_counted_and_shown_to_nobody() -> None:
    async def go_on(work: Work) -> None:
        await work.begin()
        await work.updater.complete(work.say("done"))
        again = Work(work.context, work.queue)
        await again.updater.start_work(again.say("again"))
        await again.updater.add_artifact([Part(text="late")], artifact_id="late")
        await again.updater.failed()

    async def play() -> None:
        async with serving(Executor(go=go_on)) as house:
            seen = await everything(house.stream("go"))
            assert seen[-1].status.state == COMPLETED
            task = await house.get(seen[0].id)
            assert (task.status.state, words(task)) == (COMPLETED, "done")
            assert not task.artifacts
            assert house.handler.tasks().hall.suppressed == 3

    asyncio.run(play())


def test_an_executor_that_goes_on_after_its_end_is_stopped() -> None:
    async def linger(work: Work) -> None:
        await work.begin()
        await work.updater.complete(work.say("done"))
        await asyncio.sleep(60)

    async def play() -> None:
        async with serving(Executor(go=linger), grace_s=0.2) as house:
            at = time.monotonic()
            task = await house.task("go")
            assert (task.status.state, words(task)) == (COMPLETED, "done")
            assert time.monotonic() - at < 3.0

    asyncio.run(play())


def test_an_agent_that_gives_up_by_itself_is_canceled() -> None:
    async def give_up(work: Work) -> None:
        await work.begin()
        await work.updater.cancel(work.say("not worth it"))

    async def play() -> None:
        async with serving(Executor(go=give_up)) as house:
            task = await house.task("go")
            assert (task.status.state, words(task)) == (CANCELED, "not worth it")

    asyncio.run(play())


def test_whoever_stops_waiting_stops_nothing(journal: str | None) -> None:
    """Law 18 audience-free: a client that leaves does not decide what happens."""

    async def short(work: Work) -> None:
        await work.begin()
        await asyncio.sleep(0.3)
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(go=short), journal=journal) as house:
            waiting = asyncio.create_task(house.task("go"))
            await asyncio.sleep(0.1)
            waiting.cancel()
            stream = house.stream("go")
            first = await anext(stream)
            await stream.aclose()
            found = (await house.list()).tasks
            assert len(found) == 2
            for task in found:
                assert (await house.until(task.id, *TERMINAL)).status.state == COMPLETED
            assert first.id in {one.id for one in found}
            hall = house.handler.tasks().hall
            assert not hall.tasks, "what has ended has left memory"

    asyncio.run(play())


def test_a_shutdown_ends_what_runs_and_says_so(tmp_path: Path) -> None:
    file = str(tmp_path / "tasks.db")

    async def play() -> None:
        async with serving(Executor(go=sleep), journal=file, grace_s=0.2) as house:
            began = await start(house, "go")
        async with serving(Executor(go=sleep), journal=file) as house:
            task = await house.get(began.id)
            assert task.status.state == FAILED
            assert "shut down" in words(task)

    asyncio.run(play())


def test_a_handler_needs_a_card_and_a_runtime_of_its_own() -> None:
    with pytest.raises(CallerError, match="agent_card"):
        EndstopRequestHandler(Executor())

    async def play() -> None:
        async with Runtime(bodies="own-loop") as runtime, serving(Executor(), runtime=runtime):
            with pytest.raises(CallerError, match="its own runtime"):
                EndstopRequestHandler(Executor(), agent_card=card(), runtime=runtime).tasks()

    asyncio.run(play())


def test_what_has_no_use_here_is_taken_and_warned_about() -> None:
    with pytest.warns(UserWarning, match="does not use task_store: the journal is its store"):
        EndstopRequestHandler(Executor(), object(), card())
