"""kill -9 of a program that drives an agent, in every phase, and another that goes on with it.

Law 16 survives-restart with a real process and a real file: what the journal says is believed only
as far as the log of what really happened agrees with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from endstop import Runtime
from endstop.agents import Ended, LoopResult
from tests.loop.killed import LOG, PHASES, make
from tests.loop.support import check_pairs, results_in
from tests.support import ROOT

WAIT_S = 60.0
REACHED = {
    "first reply": "asked 1",
    "batch": "hold",
    "steered": "steered",
    "approval": "approval asked, and the call before it is over",
    "second reply": "asked 2",
    "last reply": "asked 3",
}
ANSWERS = {
    "first reply": ["paid 1", "paid 3"],
    "batch": ["paid 1", "Tool call lost", "paid 2", "paid 3"],
    "steered": ["paid 1", "Tool call lost", "Tool call not started: a newer request", "paid 3"],
    "approval": ["paid 1", "asked 1", "paid 3"],
    "second reply": ["paid 1", "paid 3"],
    "last reply": ["paid 1", "paid 3"],
}
"""How the results begin that the model has read in the end."""


def lived_until_killed(phase: str, journal: Path, log: Path) -> None:
    """The first life: a program of its own that is killed where it stays."""
    log.touch()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.loop.killed", phase, str(journal)],
        env={**os.environ, LOG: str(log), "PYTHONPATH": path},
        cwd=ROOT,
    )
    end = time.monotonic() + WAIT_S
    try:
        while REACHED[phase] not in log.read_text().splitlines():
            assert program.poll() is None, "it ended by itself"
            assert time.monotonic() < end, f"it never came to {phase}"
            time.sleep(0.01)
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()


async def resumed(journal: Path) -> LoopResult:
    """The second life, here."""
    async with Runtime(journal=f"sqlite:{journal}") as runtime:
        going = asyncio.create_task(make("").resume(runtime, "r"))
        while not going.done():
            for pending in runtime.pending():
                runtime.approve(pending.call_id)
            await asyncio.wait({going}, timeout=0.01)
        return await going


@pytest.mark.parametrize("phase", PHASES)
def test_survives_restart_in_every_phase(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, log = tmp_path / "a.db", tmp_path / "log"
    lived_until_killed(phase, journal, log)
    before = Counter(log.read_text().splitlines())
    monkeypatch.setenv(LOG, str(log))
    result = asyncio.run(asyncio.wait_for(resumed(journal), WAIT_S))
    assert (result.ended, result.text) == (Ended.DONE, "last")
    check_pairs(result.messages, "openai-chat")
    results = results_in(result.messages)
    assert len(results) == len(ANSWERS[phase])
    for found, begins in zip(results, ANSWERS[phase], strict=True):
        assert found.startswith(begins), (found, begins)
    users = [m["content"] for m in result.messages if m["role"] == "user"]
    assert users == (["go", "faster"] if phase == "steered" else ["go"])
    happened = Counter(log.read_text().splitlines())
    for done in ("pay 1", "pay 2", "pay 3", "ask 1", "hold"):
        assert happened[done] <= 1, f"{done} happened twice"
    asked = [f"asked {turn}" for turn in (1, 2, 3)]
    broken_off = {REACHED[phase]} & set(asked)
    for one in asked:
        # A reply that had not arrived is asked for again; one that was recorded is not.
        assert happened[one] == 1 + (one in broken_off), (one, before, happened)
