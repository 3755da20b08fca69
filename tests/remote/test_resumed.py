"""A task at a remote agent whose caller was killed is gone on with, and not submitted again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from endstop import Outcome, Runtime
from endstop.agents import recognise
from tests.remote.house import WAIT_S, Server, loop_test, remote
from tests.support import ROOT

CALLER = """
import asyncio, os, sys
from endstop import Runtime, delegate
from tests.remote.house import remote

async def main():
    async with Runtime(journal=sys.argv[1]) as runtime, runtime.run("r") as run:
        agent = remote(sys.argv[2])
        handle = delegate(agent, sys.argv[3], run=run)
        while not agent._followed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        print("followed", flush=True)
        await handle

asyncio.run(main())
"""


@pytest.fixture(params=["stock", "endstop"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, request.param)
    yield made
    made.stop()


def killed_caller(server: Server, journal: Path, prompt: str) -> None:
    """A program that delegates, and is killed while the agent works."""
    child = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(journal), server.url, prompt],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "followed\n"
    child.kill()
    child.wait(WAIT_S)
    child.stdout.close()


@loop_test
async def test_the_same_task_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    """Law 10 no-blind-retry and law 16 survives-restart, across the wire."""
    journal = tmp_path / "runs.db"
    await asyncio.to_thread(killed_caller, server, journal, "work 60")
    assert server.count("got") == 1
    async with Runtime(journal=str(journal)) as runtime:
        recognise(runtime, remote(server.url))
        run = await runtime.resume("r")
        (batch,) = await run.finish()
        assert [result.outcome for result in batch] == [Outcome.SUCCEEDED]
        assert batch[0].value["text"] == "did 60"
        assert server.count("got") == 1, "no second task"


@loop_test
async def test_a_question_is_asked_again_and_answered(server: Server, tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    await asyncio.to_thread(killed_caller, server, journal, "ask which?")
    async with Runtime(journal=str(journal)) as runtime:
        recognise(runtime, remote(server.url))
        run = await runtime.resume("r")
        asked: list[str] = []
        runtime.answer_with(lambda one: asked.append(one.text) or "this one")
        (batch,) = await run.finish()
        assert batch[0].value["text"] == "answered this one"
        assert asked == ["which?"]
