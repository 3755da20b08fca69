"""Agents behind agents: a stop, a question and an answer go all the way, over two servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from endstop import (
    HandleCancelled,
    ModelAgent,
    RemoteAgent,
    Runtime,
    Scripted,
    agent_tool,
    delegate,
)
from endstop.a2a import EndstopRequestHandler
from endstop.agents import Proof
from endstop.agents.models import Say
from endstop.server import Serving, card_for
from tests.remote.house import Server, loop_test, remote, running


@pytest.fixture
def last(tmp_path: Path) -> Iterator[Server]:
    """The server at the end of the chain, in a process of its own."""
    made = Server(tmp_path, "endstop")
    yield made
    made.stop()


@asynccontextmanager
async def middle(last: Server, prompt: str) -> AsyncIterator[RemoteAgent]:
    """An agent in the middle: its model has one tool, which is the agent at the end."""
    tool = agent_tool(remote(last.url, normalise=lambda answer: answer["text"]), name="helper")
    model = Scripted([Say(calls=[("helper", {"prompt": prompt})]), "that is all"])
    card = card_for("Middle", "Asks somebody else.")
    runtime = Runtime(bodies="own-loop")
    agent = ModelAgent(name="middle", model=model, tools=[tool])
    handler = EndstopRequestHandler(agent, agent_card=card, runtime=runtime)
    async with Serving(handler, card, runtime=runtime) as serving:
        yield remote(serving.url, name="middle")


@loop_test
async def test_an_answer_comes_back_through_both(last: Server) -> None:
    async with middle(last, "echo far away") as agent, running() as run:
        answer = await delegate(agent, "go", run=run)
        assert answer["text"] == "that is all"
        assert any(note.endswith("echo far away") for note in last.notes)


@loop_test
async def test_a_stop_reaches_the_end_of_the_chain(last: Server) -> None:
    """Law 17 children-settle, over two machines' worth of wire."""
    async with middle(last, "work 500") as agent, running() as run:
        handle = delegate(agent, "go", run=run)
        await last.until(lambda: last.count("tick") > 2)
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.STOPPED
        ticks = last.count("tick")
        await asyncio.sleep(0.4)
        assert last.count("tick") <= ticks + 1, "the work at the end has stopped"


@loop_test
async def test_a_question_comes_from_the_end_of_the_chain(last: Server) -> None:
    async with middle(last, "ask which way?") as agent, running() as run:
        asked: list[str] = []
        run._runtime.answer_with(lambda one: asked.append(one.text) or "left")
        answer = await delegate(agent, "go", run=run)
        assert answer["text"] == "that is all"
        assert len(asked) == 1
        assert "which way?" in asked[0]
        assert any(note.endswith(" left") for note in last.notes)
