"""Stopping a remote agent: what was asked for, and what the agent's own word confirms.

Laws 5 honest-effect, 6 bounded-stop and 17 children-settle across the wire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from endstop import (
    Effect,
    HandleCancelled,
    LocalAgent,
    Outcome,
    RemoteAgent,
    Run,
    StoppedBy,
    delegate,
)
from endstop.agents import Proof, Task
from endstop.agents.remote_wire import Kind, Wire, WireError
from tests.remote.house import Line, Server, line, loop_test, remote, running
from tests.remote.serving import card_of


@pytest.fixture(scope="module", params=["stock", "endstop"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("remote"), request.param)
    yield made
    made.stop()


@loop_test
@pytest.mark.parametrize("streaming", [None, False], ids=["stream", "poll"])
async def test_a_cancel_reaches_the_agent_and_is_confirmed(
    server: Server, streaming: bool | None
) -> None:
    async with running() as run:
        handle = delegate(remote(server.url, streaming=streaming), "work 500", run=run)
        ticks = server.count("tick")
        await server.until(lambda: server.count("tick") > ticks)
        began = time.monotonic()
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert time.monotonic() - began < 10.0
        assert cancelled.value.proof is Proof.STOPPED
        answer = handle.answer
        assert answer is not None
        assert answer.effect is Effect.UNKNOWN
        assert answer.stopped_by is StoppedBy.ASKED
        ticks = server.count("tick")
        await asyncio.sleep(0.3)
        assert server.count("tick") <= ticks + 1, "the work has stopped"


@loop_test
async def test_a_cancel_that_nobody_confirms_is_unknown(server: Server) -> None:
    """The line is cut: the cancel was asked for, and nobody can say what came of it."""
    async with line(server.port) as wire, running(grace_s=0.5) as run:
        cancels = server.count("cancel")
        agent = behind(wire)
        handle = delegate(agent, "work 500", run=run)
        await server.until(lambda: bool(agent._followed))
        wire.cut()
        began = time.monotonic()
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert 0.5 <= time.monotonic() - began < 10.0
        assert cancelled.value.proof is Proof.UNKNOWN
        answer = handle.answer
        assert answer is not None
        assert answer.outcome is Outcome.CANCELLED
        assert answer.effect is Effect.UNKNOWN
        assert answer.stopped_by is StoppedBy.ABANDONED
        assert answer.alive
        # The line is there again: the cancel still arrives, and then it is proved.
        assert server.count("cancel") == cancels
        wire.mend()
        await server.until(lambda: server.count("cancel") > cancels)
        async with asyncio.timeout(20):
            while handle.proof is not Proof.STOPPED:
                await asyncio.sleep(0.02)
        assert handle.answer.outcome is Outcome.CANCELLED, "a late end changes no outcome"


@loop_test
async def test_a_stop_that_is_owed_comes_before_the_stream(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 7 every-wait-listens: the line comes back just after the stop was tried."""
    tried, cancel = 0, Wire.cancel

    async def fails_at_first(wire: Wire, task_id: str, limit_s: float) -> Any:
        nonlocal tried
        tried += 1
        if tried <= 2:
            raise WireError(Kind.UNREACHABLE, "the line is down")
        return await cancel(wire, task_id, limit_s)

    monkeypatch.setattr(Wire, "cancel", fails_at_first)
    async with running() as run:
        agent, ticks = remote(server.url), server.count("tick")
        handle = delegate(agent, "work 500", run=run)
        await server.until(lambda: server.count("tick") > ticks)
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.STOPPED
        assert tried == 3


def behind(wire: Line) -> RemoteAgent:
    """The agent, reached over a line that can be cut."""
    return remote(card_of(f"http://127.0.0.1:{wire.port}", streaming=True))


@loop_test
async def test_an_agent_that_had_finished_keeps_its_result(server: Server) -> None:
    async with running() as run, line(server.port) as wire:
        agent, ticks = behind(wire), server.count("tick")
        handle = delegate(agent, "work 20", run=run)
        await server.until(lambda: bool(agent._followed))
        wire.cut()
        await server.until(lambda: server.count("tick") >= ticks + 20)
        await asyncio.sleep(0.3)
        handle.cancel()
        wire.mend()
        answer = await handle
        assert answer["text"] == "did 20"
        assert handle.answer is not None
        assert [str(flag) for flag in handle.answer.flags] == ["cancel_requested"]


@loop_test
async def test_a_deadline_stops_the_agent_too(server: Server) -> None:
    async with running() as run:
        cancels = server.count("cancel")
        handle = delegate(remote(server.url), "work 500", run=run, timeout_s=0.6)
        answer = await handle.answered()
        assert answer.outcome is Outcome.TIMED_OUT
        assert answer.effect is Effect.UNKNOWN
        assert answer.stopped_by is StoppedBy.ASKED
        await server.until(lambda: server.count("cancel") > cancels)


@loop_test
async def test_a_stop_of_the_run_cascades_to_the_agents_of_its_children(server: Server) -> None:
    agent = remote(server.url)

    async def lead(task: Task, run: Run) -> str:
        answer = await delegate(agent, "work 500", run=run)
        return str(answer["text"])

    local = LocalAgent(name="lead", fn=lead)
    async with running() as run:
        ticks = server.count("tick")
        handle = delegate(local, "go", run=run)
        await server.until(lambda: server.count("tick") > ticks)
        await run.cancel()
        assert handle.done
        ticks = server.count("tick")
        await asyncio.sleep(0.3)
        assert server.count("tick") <= ticks + 1
        report = await run._runtime.cancel("r")
        assert report is not None


@loop_test
async def test_an_agent_whose_cancel_raises(server: Server) -> None:
    """Theirs kills the task and calls it failed, ours stops it all the same: both are over."""
    async with running() as run:
        handle = delegate(remote(server.url), "stubborn 100", run=run)
        ticks = server.count("tick")
        await server.until(lambda: server.count("tick") > ticks)
        handle.cancel()
        with pytest.raises(HandleCancelled) as cancelled:
            await handle
        assert cancelled.value.proof is Proof.STOPPED
