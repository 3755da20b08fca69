"""A remote agent's answers: followed or asked for, plain and bounded, failures in its words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from endstop import DelegationFailed, RemoteAgent, agent_tool, delegate
from endstop.agents.remote_answer import FILE_BYTES
from endstop.core.terms import Effect, Outcome
from endstop.errors import CallerError
from tests.driving import call
from tests.remote.house import QUICK, Server, loop_test, remote, running


@pytest.fixture(scope="module", params=["stock", "endstop"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("remote"), request.param)
    yield made
    made.stop()


@pytest.fixture(params=["JSONRPC", "HTTP+JSON", "polling"])
def agent(request: pytest.FixtureRequest, server: Server) -> RemoteAgent:
    """The same agent, reached in every way."""
    if request.param == "polling":
        return remote(server.url, streaming=False)
    return remote(server.url, binding=request.param)


@loop_test
async def test_an_answer_is_plain_data(agent: RemoteAgent) -> None:
    async with running() as run:
        answer = await delegate(agent, "echo hello", run=run)
        assert answer["text"] == "hello"
        assert [one["name"] for one in answer["artifacts"]] == ["echo"]
        assert answer["artifacts"][0]["parts"] == [{"text": "hello"}]
        assert answer["task"]
        assert answer["context"]


@loop_test
async def test_a_message_instead_of_a_task_is_the_answer(agent: RemoteAgent) -> None:
    async with running() as run:
        answer = await delegate(agent, "message hello", run=run)
        assert answer["text"] == "hello"
        assert answer["artifacts"] == []


@loop_test
async def test_work_is_followed_to_its_end(agent: RemoteAgent, server: Server) -> None:
    async with running() as run:
        before = server.count("tick")
        answer = await delegate(agent, "work 6", run=run)
        assert answer["text"] == "did 6"
        assert server.count("tick") == before + 6


@loop_test
async def test_a_failure_comes_with_its_words(agent: RemoteAgent) -> None:
    async with running() as run:
        for prompt, words in (
            ("fail no more paper", "agent peer failed: no more paper"),
            ("fail", "agent peer failed and did not say why"),
            ("reject not my job", "agent peer rejected the task: not my job"),
        ):
            with pytest.raises(DelegationFailed, match=words) as failed:
                await delegate(agent, prompt, run=run)
            assert failed.value.answer.outcome is Outcome.FAILED
            assert failed.value.answer.effect is Effect.UNKNOWN


@loop_test
async def test_every_kind_of_part_is_plain(server: Server) -> None:
    async with running() as run:
        answer = await delegate(remote(server.url), "parts", run=run)
        assert answer["text"] == "one\ntwo"
        assert answer["artifacts"][0]["parts"] == [
            {"text": "one"},
            {"file": {"name": "f.bin", "media_type": "app/x", "size": 2, "bytes": "AP8="}},
            {"file": {"name": "x", "url": "https://example.com/x"}},
            {"text": "two"},
        ]


@loop_test
async def test_many_at_once(server: Server) -> None:
    agent = remote(server.url)
    async with running() as run:
        handles = [delegate(agent, f"echo {number}", run=run) for number in range(8)]
        answers = [await handle for handle in handles]
        assert [answer["text"] for answer in answers] == [str(number) for number in range(8)]
        assert agent._followed == {}, "what is over is forgotten"


@loop_test
async def test_as_a_tool_it_answers_a_model(server: Server) -> None:
    agent = remote(server.url, normalise=lambda answer: answer["text"])
    async with running(tools=[agent_tool(agent, name="helper")]) as run:
        batch = await run.execute(
            [call("helper", prompt="echo hi"), call("helper", prompt="fail x")]
        )
        assert [result.outcome for result in batch] == [Outcome.SUCCEEDED, Outcome.FAILED]
        assert batch[0].value == "hi"
        assert "agent peer failed: x" in batch[1].text


@loop_test
async def test_the_effect_key_is_the_id_of_the_message(server: Server) -> None:
    agent = remote(server.url)
    async with running() as run:
        handle = delegate(agent, "echo keyed", run=run)
        await handle
        (note,) = [note for note in server.notes if note.endswith(" echo keyed")]
        assert note.startswith(f"got {handle.id}@"), "with a name for the journal behind it"


def test_a_token_opens_the_door(tmp_path: Path) -> None:
    server = Server(tmp_path, "stock", "--token", "s3cret")

    async def scenario() -> None:
        async with running() as run:
            good, bad = remote(server.url, token="s3cret"), remote(server.url, token="wrong")
            assert (await delegate(good, "echo in", run=run))["text"] == "in"
            with pytest.raises(DelegationFailed, match="401") as failed:
                await delegate(bad, "echo in", run=run)
            assert "s3cret" not in str(failed.value)
            assert "wrong" not in str(failed.value)

    asyncio.run(scenario())
    server.stop()


def test_odd_arguments_are_refused_in_words() -> None:
    for url in ("", "agent.example", "ftp://agent.example", "http://", 7, None):
        with pytest.raises(CallerError, match="URL"):
            RemoteAgent(url)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="binding is one of JSONRPC"):
        RemoteAgent("http://agent.example", binding="SOAP")
    with pytest.raises(CallerError, match="lost_s is -1"):
        RemoteAgent("http://agent.example", lost_s=-1)
    with pytest.raises(CallerError, match="normalise is a function"):
        RemoteAgent("http://agent.example", normalise="text")  # type: ignore[arg-type]
    assert RemoteAgent("https://agent.example:8000/a/b/").name == "agent_example_8000_a_b"
    assert RemoteAgent("http://u:p@agent.example").name == "agent_example", "no secret in a name"
    assert FILE_BYTES > 0
    assert QUICK.probes == 3


@loop_test
async def test_a_binding_that_the_card_does_not_offer_is_named(server: Server) -> None:
    async with running() as run:
        agent = remote(server.url, binding="GRPC")
        with pytest.raises(DelegationFailed, match=r"its card offers HTTP\+JSON, JSONRPC"):
            await delegate(agent, "echo", run=run)
