"""The same agent over every binding and version of the protocol, streamed and asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")
pytest.importorskip("grpc", reason="needs the extra `grpc`")

from a2a.types import AgentCard

from endstop import HandleCancelled, Runtime, delegate
from endstop.a2a import EndstopRequestHandler
from endstop.agents import Proof
from endstop.server import Serving, card_for
from tests.remote.house import WAIT_S, loop_test, remote, running
from tests.remote.serving import Agent


def only(card: AgentCard, binding: str, version: str) -> AgentCard:
    """The card with one way left."""
    found = AgentCard()
    found.CopyFrom(card)
    ways = [
        way
        for way in card.supported_interfaces
        if (way.protocol_binding, way.protocol_version) == (binding, version)
    ]
    del found.supported_interfaces[:]
    found.supported_interfaces.extend(ways)
    assert len(ways) == 1
    return found


@pytest.mark.parametrize("streaming", [None, False], ids=["stream", "poll"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@loop_test
async def test_answers_questions_and_stops_come_through(
    tmp_path: Path, binding: str, version: str, streaming: bool | None
) -> None:
    agent, card = Agent(tmp_path / "notes"), card_for("remote", "Does what it is told.")
    theirs = Runtime(bodies="own-loop")
    handler = EndstopRequestHandler(agent, agent_card=card, runtime=theirs)
    tokens = {"alice": "0123456789abcdef"}
    async with (
        Serving(handler, card, runtime=theirs, grpc_port=0, tokens=tokens) as serving,
        running() as run,
    ):
        peer = remote(
            only(serving.agent_card, binding, version),
            binding=binding,
            streaming=streaming,
            token=tokens["alice"],
        )
        run._runtime.answer_with(lambda asked: "blue")
        assert (await delegate(peer, "echo hi", run=run))["text"] == "hi"
        assert (await delegate(peer, "ask which?", run=run))["text"] == "answered blue"
        handle = delegate(peer, "work 500", run=run)
        async with asyncio.timeout(WAIT_S):
            while not peer._followed:
                await asyncio.sleep(0.01)
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.STOPPED
