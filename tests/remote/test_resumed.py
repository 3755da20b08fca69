"""A task at a remote agent whose caller was killed is gone on with, and not submitted again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("a2a", reason="needs the extra `server`")

from endstop import Outcome, Runtime, delegate
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


LOSER = """
import asyncio, os, sys
from endstop import Runtime, delegate
from tests.remote.house import remote

async def main():
    async with Runtime(journal=sys.argv[1]) as runtime, runtime.run("r") as run:
        agent = remote(sys.argv[2], contract={"effect": "idempotent"})
        delegate(agent, sys.argv[3], run=run)
        while not os.path.exists(sys.argv[4]):
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@loop_test
async def test_a_prompt_whose_answer_was_lost_makes_no_second_task_at_ours(tmp_path: Path) -> None:
    """Killed between sending and hearing the task's name: the same message is sent again."""
    server, journal = Server(tmp_path, "endstop"), tmp_path / "runs.db"
    card = [sys.executable, "-c", LOSER, str(journal), server.url, "work 40", str(server.file)]
    child = await asyncio.to_thread(
        subprocess.run, card, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert child.returncode == -9, child.stderr
    async with Runtime(journal=str(journal)) as runtime:
        recognise(runtime, remote(server.url, contract={"effect": "idempotent"}))
        run = await runtime.resume("r")
        (batch,) = await run.finish()
        assert batch[0].value["text"] == "did 40"
        assert server.count("got") == 1
    # A call of the same name in another journal is another call.
    async with Runtime(journal=str(tmp_path / "other.db")) as runtime, runtime.run("r") as run:
        answer = await delegate(remote(server.url), "work 1", run=run)
        assert answer["text"] == "did 1"
        assert server.count("got") == 2
    server.stop()
