"""What a remote agent asks becomes our question, and the answer goes back to its task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

import httpx
from a2a.client import ClientConfig, create_client
from a2a.types import Message, Part, Role, SendMessageRequest

from endstop import HandleCancelled, Run, delegate
from endstop.agents import Proof, Task
from endstop.agents.remote import RemoteAgent
from endstop.core.events import QuestionAsked
from endstop.run.questions import Question
from endstop.store.sqlite import SqliteJournal
from tests.agents.desk import Desk
from tests.driving import Street, quick
from tests.remote.house import Server, loop_test, remote, running


@pytest.fixture(scope="module", params=["stock", "endstop"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("remote"), request.param)
    yield made
    made.stop()


@pytest.fixture
def street() -> Iterator[Street]:
    made = Street()
    yield made
    made.close()


async def question(run: Run) -> Question:
    """The one open question; waits for it."""
    async with asyncio.timeout(20):
        while not (found := run._runtime.questions()):
            await asyncio.sleep(0.01)
    assert len(found) == 1
    return found[0]


@loop_test
@pytest.mark.parametrize("streaming", [None, False], ids=["stream", "poll"])
async def test_a_question_is_asked_here_and_answered_there(
    server: Server, streaming: bool | None
) -> None:
    async with running() as run:
        handle = delegate(remote(server.url, streaming=streaming), "ask red or blue?", run=run)
        asked = await question(run)
        assert asked.text == "red or blue?"
        assert asked.call_id == handle.id
        assert not handle.done
        assert run._runtime.answer(asked.question_id, "blue")
        answer = await handle
        assert answer["text"] == "answered blue"
        sent = [note for note in server.notes if note.endswith(" blue")]
        assert sent[-1].startswith(f"got {handle.id}-answer-"), "its id says whose answer it is"


@loop_test
async def test_what_an_agent_asks_as_a_secret_is_a_secret_here(tmp_path: Path) -> None:
    """The answer is in no record: not in ours, and not in that of the agent."""
    word, journal = "hush-4711", tmp_path / "agent.db"
    server = Server(tmp_path, "endstop", "--journal", f"sqlite:{journal}")
    try:
        async with running() as run:
            handle = delegate(remote(server.url), "secret the code?", run=run)
            asked = await question(run)
            assert asked.text == "the code?"
            assert asked.secret
            assert run._runtime.answer(asked.question_id, word)
            assert (await handle)["text"] == f"{len(word)} characters"
            kept = run._runtime.engine.journal.read(run.id)
            assert not [one for one in kept if word in repr(one.event)]
    finally:
        server.stop()
    theirs = SqliteJournal(str(journal))
    told = [one.event for name in theirs.runs() for one in theirs.read(name)]
    theirs.close()
    assert any(isinstance(one, QuestionAsked) for one in told)
    assert not [one for one in told if word in repr(one)]


@loop_test
async def test_an_agent_that_must_be_authorised_says_so_in_words(server: Server) -> None:
    async with running() as run:
        handle = delegate(remote(server.url), "auth sign in at example.com", run=run)
        asked = await question(run)
        assert asked.text == (
            "Agent peer needs to be authorised before it can go on. sign in at example.com"
        )
        assert run._runtime.answer(asked.question_id, "done")
        assert (await handle)["text"] == "authorised done"


@loop_test
async def test_the_deadline_stands_still_while_a_human_thinks(server: Server) -> None:
    """Law 8 machine-time."""
    async with running() as run:
        handle = delegate(remote(server.url), "ask well?", run=run, timeout_s=3.0)
        asked = await question(run)
        await asyncio.sleep(3.2)
        assert not handle.done
        assert run._runtime.answer(asked.question_id, "yes")
        assert (await handle)["text"] == "answered yes"


@loop_test
async def test_a_stop_withdraws_the_question_and_reaches_the_agent(server: Server) -> None:
    async with running() as run:
        handle = delegate(remote(server.url), "ask well?", run=run)
        asked = await question(run)
        cancels = server.count("cancel")
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.STOPPED
        assert run._runtime.questions() == []
        assert not run._runtime.answer(asked.question_id, "late")
        assert server.count("cancel") >= cancels


@loop_test
async def test_a_question_that_was_answered_elsewhere_is_withdrawn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endstop.agents.remote_asking.LOOK_S", 0.1)
    agent = remote(server.url)
    async with running() as run:
        handle = delegate(agent, "ask well?", run=run)
        await question(run)
        (task_id,) = agent._followed
        async with httpx.AsyncClient(timeout=10) as http:
            client = await create_client(server.url, ClientConfig(httpx_client=http))
            message = Message(
                message_id="other", role=Role.ROLE_USER, task_id=task_id, parts=[Part(text="mine")]
            )
            async for _ in client.send_message(SendMessageRequest(message=message)):
                pass
        assert (await handle)["text"] == "answered mine"
        assert run._runtime.questions() == []


def test_it_works_the_same_from_a_blocking_program(server: Server, street: Street) -> None:
    desk = Desk(street.open("blocking", config=quick(grace_s=5.0)))
    desk.house.rt.answer_with(lambda asked: "green")
    agent = remote(server.url)
    assert desk.take(desk.delegate(agent, "echo hi"))["text"] == "hi"
    assert desk.take(desk.delegate(agent, "ask which?"))["text"] == "answered green"
    handle = desk.delegate(agent, "work 500")
    while not server.count("tick"):
        handle.wait(0.05)
    handle.cancel()
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(handle)
    assert cancelled.value.proof is Proof.STOPPED
    desk.check_closed()


@loop_test
async def test_a_task_is_taken_up_by_its_reference_alone(server: Server) -> None:
    """Whoever has the reference, in another process after a crash, goes on with the same task."""
    references: list[dict[str, str]] = []

    class First(RemoteAgent):
        async def submit(self, task: Task) -> dict[str, str]:
            reference = await super().submit(task)
            references.append(reference)
            return reference

    class Second(RemoteAgent):
        async def submit(self, task: Task) -> dict[str, str]:
            return references[0]

    async with running() as run:
        first = First(server.url, name="peer")
        handle = delegate(first, "work 12", run=run, detached=True)
        await server.until(lambda: bool(references))
        assert references[0].keys() == {"task", "context"}
        got = server.count("got")
        second = Second(server.url, name="again")
        assert (await delegate(second, "", run=run))["text"] == "did 12"
        assert server.count("got") == got, "no second task"
        await handle
        assert second._followed == {}
        with pytest.raises(Exception, match="no reference to a task"):
            await second.fetch({})
