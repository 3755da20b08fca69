"""What an executor says: kept in its order, in few steps, and never later than it matters."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import Artifact, Message, Part, TaskArtifactUpdateEvent
from a2a.utils.errors import InternalError, TaskNotFoundError, UnsupportedOperationError

from endstop import current
from endstop.a2a import executor
from endstop.core import events as e
from endstop.errors import JournalError
from endstop.store.memory import MemoryJournal
from endstop.work import ending
from tests.a2a.serving import (
    COMPLETED,
    FAILED,
    LIMIT_S,
    WORKING,
    Executor,
    Work,
    ask,
    complete,
    everything,
    serving,
    words,
)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "tasks.db") if request.param == "sqlite" else None


class Counting(MemoryJournal):
    """A journal that remembers what came in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[str]] = []

    def append(self, run: str, expected_seq: int, events: Any, durability: Any) -> None:
        self.appends.append([type(event).__name__ for event in events])
        super().append(run, expected_seq, events, durability)


def test_a_task_is_there_with_its_message_or_not_at_all() -> None:
    """Law 15 record-first: no crash can leave a task that nobody sent anything to."""
    journal = Counting()

    async def play() -> None:
        async with serving(Executor(hello=complete), journal=journal) as house:
            await house.task("hello")

    asyncio.run(play())
    assert journal.appends[0] == [
        "RunOpened",
        "Noted",
        "BatchOpened",
        "CallAccepted",
        "CallQueued",
        "CallGranted",
    ]


def test_what_is_said_in_a_row_takes_few_steps() -> None:
    journal = Counting()

    async def play() -> None:
        async with serving(Executor(hello=complete), journal=journal) as house:
            await house.task("hello")

    asyncio.run(play())
    # The last words and the end are one step; the first words are another where the handler's loop
    # came to them before the body said the rest.
    assert journal.appends[-1][-5:] == [
        "Noted",
        "RunClosing",
        "CallSettled",
        "BatchClosed",
        "RunEnded",
    ]
    assert journal.appends[1] == ["CallStarted"]
    assert sum(one.count("Noted") for one in journal.appends) == 4
    assert len(journal.appends) <= 5


def test_a_body_that_blocks_its_loop_is_heard_meanwhile(journal: str | None) -> None:
    """Its words are not kept until it lets go of the loop: somebody waits for them."""
    go_on = threading.Event()

    async def block(work: Work) -> None:
        await work.updater.start_work(work.say("I begin"))
        assert go_on.wait(LIMIT_S)
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(block=block), journal=journal) as house:
            try:
                begun = await house.begin("block")
                task = await house.until(begun.id, WORKING)
                while words(task) != "I begin":
                    await asyncio.sleep(0.005)
                    task = await house.get(begun.id)
            finally:
                go_on.set()
            await house.until(begun.id, COMPLETED)

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_the_last_words_before_an_error_are_kept(journal: str | None) -> None:
    """And before it: what raises has said them."""

    async def fail(work: Work) -> None:
        await work.begin()
        await work.updater.add_artifact([Part(text="half")], artifact_id="half")
        raise ValueError("no more")

    async def play() -> None:
        async with serving(Executor(fail=fail), journal=journal) as house:
            task = await house.task("fail")
            assert task.status.state == FAILED
            assert [one.artifact_id for one in task.artifacts] == ["half"]

    asyncio.run(play())


def test_what_is_said_while_it_is_stopped_is_kept(journal: str | None) -> None:
    """A body that tidies up may say so; its call has its ending only then."""

    async def tidy(work: Work) -> None:
        await work.begin()
        try:
            await asyncio.sleep(60)
        finally:
            await work.updater.add_artifact([Part(text="tidied")], artifact_id="tidied")

    async def play() -> None:
        async with serving(Executor(tidy=tidy), journal=journal) as house:
            begun = await house.begin("tidy")
            await house.until(begun.id, WORKING)
            task = await house.cancel(begun.id)
            assert [one.artifact_id for one in task.artifacts] == ["tidied"]
            journal_ = house.handler.tasks().runtime.engine.journal
            events = [one.event for one in journal_.read(begun.id)]
            notes = [n for n, one in enumerate(events) if isinstance(one, e.Noted)]
            settled = [n for n, one in enumerate(events) if isinstance(one, e.CallSettled)]
            assert notes[-1] < settled[0]

    asyncio.run(play())


def test_many_words_without_a_pause_keep_their_order(journal: str | None) -> None:
    count = 500

    async def chatter(work: Work) -> None:
        await work.begin()
        for n in range(count):
            await work.updater.add_artifact(
                [Part(text=str(n))], artifact_id="one", append=n > 0, last_chunk=n == count - 1
            )
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(chatter=chatter), journal=journal) as house:
            task = await house.task("chatter")
            found = [part.text for one in task.artifacts for part in one.parts]
            assert found == [str(n) for n in range(count)]

    asyncio.run(play())


def test_words_from_another_thread_are_not_lost(journal: str | None) -> None:
    """An executor may publish from a thread of its own, while its body does the same."""
    count = 200

    async def both(work: Work) -> None:
        await work.begin()

        def aside() -> None:
            for n in range(count):
                loop = asyncio.new_event_loop()
                loop.run_until_complete(
                    work.updater.add_artifact([Part(text="x")], artifact_id=f"aside{n}")
                )
                loop.close()

        thread = asyncio.create_task(asyncio.to_thread(aside))
        for n in range(count):
            await work.updater.add_artifact([Part(text="y")], artifact_id=f"body{n}")
            await asyncio.sleep(0)
        await thread
        await work.updater.complete()

    async def play() -> None:
        async with serving(Executor(both=both), journal=journal) as house:
            task = await house.task("both")
            assert task.status.state == COMPLETED
            found = {one.artifact_id for one in task.artifacts}
            wanted = {f"{who}{n}" for who in ("aside", "body") for n in range(count)}
            assert found == wanted

    asyncio.run(play())


def test_a_task_that_could_not_be_opened_is_not_there() -> None:
    """A runtime that is closed meanwhile takes no task, and none is left over."""

    async def play() -> None:
        async with serving(Executor(hello=complete)) as house:
            tasks = house.handler.tasks()
            runtime = tasks.runtime
            opened: list[str] = []
            prepare = runtime._prepare_run

            def closing(labels: Any) -> Any:
                run, opening = prepare(labels)
                opened.append(run.id)
                runtime._closed = True
                return run, opening

            runtime._prepare_run = closing  # type: ignore[method-assign]
            with pytest.raises(Exception, match="over and takes no more messages"):
                await house.task("hello")
            runtime._closed = False
            assert len(opened) == 1
            assert not tasks.hall.tasks
            with pytest.raises(TaskNotFoundError):
                await house.get(opened[0])

    asyncio.run(play())


def test_a_body_that_outlives_its_call_ends_nothing(journal: str | None) -> None:
    """Law 3 one-ending: its word on the end is late, and takes none from the call that works."""
    before: list[Work] = []

    async def first(work: Work) -> None:
        await ask(work)
        before.append(work)

    async def second(work: Work) -> None:
        await work.updater.start_work()
        late = TaskUpdater(before[-1].queue, work.updater.task_id, work.updater.context_id)
        await late.complete(work.say("too late"))
        await work.updater.add_artifact([Part(text="mine")], artifact_id="mine")
        await work.updater.complete(work.say("in time"))

    async def play() -> None:
        async with serving(Executor(first=first, second=second), journal=journal) as house:
            for _ in range(20):
                asked = await house.task("first")
                task = await house.task("second", task_id=asked.id)
                assert task.status.state == COMPLETED, words(task)
                assert words(task) == "in time"
                assert [one.artifact_id for one in task.artifacts] == ["mine"]
            assert house.handler.tasks().hall.suppressed == 20

    asyncio.run(play())


def test_nothing_that_comes_after_the_last_words_is_recorded_before_them(
    journal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the executor's may say more while its body returns: that is too late."""
    at_work: list[Work] = []

    async def first(work: Work) -> None:
        at_work.append(work)
        await work.begin()
        await work.updater.add_artifact([Part(text="mine")], artifact_id="mine")
        await work.updater.requires_input(work.say("which one?"))

    def meanwhile(*said: Any) -> None:
        work = at_work[-1]
        artifact = Artifact(artifact_id="late", parts=[Part(text="late")])
        work.queue.publish(TaskArtifactUpdateEvent(artifact=artifact))  # type: ignore[attr-defined]
        work.queue._port.flush()  # type: ignore[attr-defined]
        ending.say_last(*said)

    monkeypatch.setattr(executor, "say_last", meanwhile)

    async def play() -> None:
        async with serving(Executor(first=first), journal=journal) as house:
            task = await house.task("first")
            assert words(task) == "which one?"
            assert [one.artifact_id for one in task.artifacts] == ["mine"]
            assert house.handler.tasks().hall.suppressed == 1

    asyncio.run(play())


class Refusing(MemoryJournal):
    """A journal that takes nothing as long as it is told so."""

    refuses = False

    def append(self, run: str, expected_seq: int, events: Any, durability: Any) -> None:
        if self.refuses:
            raise JournalError("the disk is full")
        super().append(run, expected_seq, events, durability)


def test_a_task_whose_first_record_is_refused_is_not_there() -> None:
    """Law 15 record-first: whoever sent the message is told, and nothing is left of it."""
    journal = Refusing()

    async def play() -> None:
        async with serving(Executor(hello=complete), journal=journal) as house:
            tasks = house.handler.tasks()
            await tasks.begun()
            journal.refuses = True
            for sent in (
                house.send("hello"),
                house.begin("hello"),
                everything(house.stream("hello")),
            ):
                with pytest.raises(UnsupportedOperationError, match="takes no more messages"):
                    await asyncio.wait_for(sent, LIMIT_S)
            engine = tasks.runtime.engine
            while engine.state.runs:
                await asyncio.sleep(0.005)
            kept = (tasks.hall.tasks, engine.fences, engine.plans, engine.state.calls)
            assert not any(kept)
            assert not engine._promises
            journal.refuses = False
            assert (await house.task("hello")).status.state == COMPLETED

    asyncio.run(asyncio.wait_for(play(), 2 * LIMIT_S))


def test_whoever_waits_for_a_task_that_cannot_be_recorded_is_told() -> None:
    """A disk that is full in the middle of it: nobody waits for an ending that cannot come."""
    journal = Refusing()
    stopped = threading.Event()

    async def chatter(work: Work) -> None:
        await work.begin()
        try:
            while True:
                await asyncio.sleep(0.01)
                await work.updater.start_work(work.say("still"))
        finally:
            stopped.set()

    async def play() -> None:
        async with serving(Executor(chatter=chatter), journal=journal) as house:
            sent = asyncio.create_task(house.send("chatter"))
            streamed = asyncio.create_task(everything(house.stream("chatter")))
            begun = await house.begin("chatter")
            subscribed = asyncio.create_task(everything(house.subscribe(begun.id)))
            await house.until(begun.id, WORKING)
            await asyncio.sleep(0.1)
            journal.refuses = True
            for waiting in (sent, streamed, subscribed):
                with pytest.raises(InternalError, match="cannot record the task any more"):
                    await asyncio.wait_for(waiting, LIMIT_S)
            assert stopped.wait(LIMIT_S), "what cannot be recorded does not go on"
            engine = house.handler.tasks().runtime.engine
            while engine.state.runs:
                await asyncio.sleep(0.005)
            journal.refuses = False
            # The record stands where it stood; it is not said to be over.
            assert (await house.get(begun.id)).status.state == WORKING

    asyncio.run(asyncio.wait_for(play(), 2 * LIMIT_S))


def test_a_message_whose_record_is_refused_is_told_of() -> None:
    """And the task that it was for is not worked on here any more."""
    journal = Refusing()

    async def play() -> None:
        async with serving(Executor(ask=ask, hello=complete), journal=journal) as house:
            asked = await house.task("ask")
            journal.refuses = True
            with pytest.raises(UnsupportedOperationError, match="takes no more messages"):
                await house.task("hello", task_id=asked.id)
            journal.refuses = False
            assert house.handler.agent_executor.executions == ["ask"]  # type: ignore[union-attr]

    asyncio.run(asyncio.wait_for(play(), 2 * LIMIT_S))


def test_a_message_stays_the_answer_whatever_is_said_after_it(journal: str | None) -> None:
    """Law 3 one-ending: what comes too late makes no task of it."""

    async def reply(work: Work) -> None:
        await work.queue.enqueue_event(work.say("here"))
        await work.updater.failed(work.say("too late"))

    async def play() -> None:
        async with serving(Executor(reply=reply), journal=journal) as house:
            for _ in range(20):
                answer = await house.send("reply")
                assert isinstance(answer, Message), answer
                (streamed,) = await everything(house.stream("reply"))
                assert isinstance(streamed, Message), streamed
            assert house.handler.tasks().hall.suppressed == 40

    asyncio.run(play())


def test_what_leads_to_a_question_is_recorded_before_it(journal: str | None) -> None:
    """A question takes the place of what is shown; what was said before it stays in the history."""

    async def wonder(work: Work) -> None:
        await work.begin()
        await work.updater.update_status(WORKING, work.say("there are two"))
        answer = await current().ask("which one?")  # type: ignore[misc]
        await work.updater.complete(work.say(answer))

    async def play() -> None:
        async with serving(Executor(wonder=wonder), journal=journal) as house:
            for _ in range(10):
                asked = await house.task("wonder")
                assert words(asked) == "which one?"
                assert "there are two" in [m.parts[0].text for m in asked.history]
                task = await house.task("this", task_id=asked.id)
                assert words(task) == "this"
                assert "there are two" in [m.parts[0].text for m in task.history]

    asyncio.run(play())
