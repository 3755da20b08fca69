"""Killed in every phase, then left alone, cancelled or resumed: law 16, and laws 3 to 5, 10, 20.

Nothing runs twice, nothing is lost, every call gets one honest answer, the books balance.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from endstop import BlockingRuntime, Runtime
from endstop.core import events as e
from endstop.core.restore import restore
from endstop.core.state import State
from endstop.core.terms import Effect, EffectClass, Outcome, Reason
from endstop.run.orphans import Orphan
from endstop.store.sqlite import SqliteJournal
from endstop.testing.laws import check_state, check_story
from tests.kill.scene import EFFECTS, OVER, PHASES, RUN, TARGET, Scene, config, tools

pytestmark = [pytest.mark.serial, pytest.mark.timeout(120)]

ACTIONS = ("nothing", "cancel", "resume")
SEEDS = 8
WAIT_S = 30.0


class Nursery:
    """Forks the scenes; a child is killed by its pid."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _line(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads(self._lines.get(timeout=WAIT_S))
        except queue.Empty:
            raise AssertionError("the scene did not come to its phase") from None
        return told

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def kill(self, scene: Scene, delay_s: float) -> None:
        """Play a scene to its phase, and kill it a moment later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(scene)) + "\n")
        told = {**self._line(), **self._line()}
        assert told["reached"], "the scene ended before its phase"
        time.sleep(delay_s)
        os.kill(told["pid"], signal.SIGKILL)
        give_up = time.monotonic() + WAIT_S
        while _exists(told["pid"]):
            assert time.monotonic() < give_up, "the killed process is still there"
            time.sleep(0.001)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def heir(scene: Scene, action: str) -> None:
    """What comes after the crash."""
    made = tools(scene, lambda phase: None)
    options: dict[str, Any] = {"journal": scene.journal, "config": config()}
    if action == "resume" and scene.driver == "async":

        async def drive() -> None:
            async with Runtime(made, **options) as runtime:
                run = await runtime.resume(RUN)
                for one in runtime.pending():
                    assert runtime.approve(one.call_id)
                await run.finish()
                run.close()

        asyncio.run(drive())
        return
    runtime = BlockingRuntime(made, **options)
    if action == "resume":
        run = runtime.resume(RUN)
        for one in runtime.pending():
            assert runtime.approve(one.call_id)
        run.finish()
        run.close()
    elif action == "cancel":
        orphan = Orphan(runtime.engine.journal, RUN)
        if not orphan.left.ended:
            orphan.end(Reason.CANCELLED_BY_USER)
    runtime.close()


def told(path: Path) -> list[e.Event]:
    journal = SqliteJournal(path, readonly=True)
    try:
        return [one.event for one in journal.read(RUN)]
    finally:
        journal.close()


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("phase", PHASES)
def test_law_16_killed_and(phase: str, action: str, nursery: Nursery, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        rng = random.Random(f"{phase} {action} {seed}")
        path, log = tmp_path / f"{seed}.db", tmp_path / f"{seed}.log"
        scene = Scene(
            phase=phase,
            effect=EFFECTS[seed % len(EFFECTS)],
            driver="async" if (seed // len(EFFECTS)) % 2 else "blocking",
            journal=f"sqlite:{path}",
            log=str(log),
            reconciles=seed % 3 == 2,
        )
        nursery.kill(scene, rng.choice((0.0, 0.0, 0.001, rng.random() * 0.02)))
        before = log.read_text(encoding="utf-8").splitlines()
        heir(scene, action)
        lines = log.read_text(encoding="utf-8").splitlines()
        wrong = judge(told(path), before, lines, action)
        assert not wrong, (scene, wrong)
        if action == "nothing":
            events = told(path)
            heir(scene, "nothing")
            assert told(path) == events, "opened again, it says the same"


def judge(events: list[e.Event], before: list[str], lines: list[str], action: str) -> list[str]:
    """What is wrong with the record, measured by what the bodies wrote down."""
    ended = isinstance(events[-1], e.RunEnded)
    wrong = check_story(events, complete=ended)
    if not ended and (action != "nothing" or not isinstance(events[-1], e.RunInterrupted)):
        wrong.append(f"law 16: the run has no ending, its last event is {events[-1]}")
    endings = {one.call: one for one in events if isinstance(one, e.CallSettled)}
    for accepted in [one for one in events if isinstance(one, e.CallAccepted)]:
        call = accepted.call
        begins = [line for line in lines if line.startswith(f"begin {call} ")]
        ends = [line for line in lines if line.startswith(f"end {call} ")]
        keys = {line.split()[2] for line in (*begins, *ends)}
        wrong += [f"law 10: {call} has several keys {keys}"] if len(keys) > 1 else []
        wrong += _one_call(accepted, endings.get(call), len(begins), len(ends))
        over_before = [line for line in before if line.startswith(f"begin {call} ")]
        if len(begins) > len(over_before) and action != "resume":
            wrong.append(f"law 10: {call} ran again though nobody resumed it")
    return wrong + _books(events, ended)


def _one_call(
    accepted: e.CallAccepted, ending: e.CallSettled | None, begins: int, ends: int
) -> list[str]:
    call, contract = accepted.call, accepted.contract
    again = contract.effect in (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)
    again = again or (contract.reconciles and ends <= 1)
    wrong = []
    if begins > (2 if again else 1):
        wrong.append(f"law 10: {call} ({contract.effect}) ran {begins} times")
    if ending is None:
        if begins and not again:
            wrong.append(f"law 16: {call} began and is left open")
        return wrong
    if ending.outcome is Outcome.SUCCEEDED and not ends:
        wrong.append(f"law 5: {call} succeeded, and its body did not")
    if ending.effect is Effect.DONE and not ends:
        wrong.append(f"law 5: {call} says done, it was not")
    if ending.effect is Effect.NONE and ends and contract.effect is not EffectClass.READ_ONLY:
        wrong.append(f"law 5: {call} says no effect, it had one")
    if ending.outcome is Outcome.REJECTED and begins:
        wrong.append(f"law 5: {call} began and was rejected")
    if not begins and ending.outcome is Outcome.LOST and call != TARGET:
        wrong.append(f"law 16: {call} never began and is lost")
    if call == OVER and (ending.outcome, begins) != (Outcome.SUCCEEDED, 1):
        wrong.append(f"law 15: {call} was over before, now {ending.outcome} after {begins}")
    return wrong


def _books(events: list[e.Event], ended: bool) -> list[str]:
    """Law 20: what the record says was spent, counted in a state that knows nothing else."""
    state = State({})
    run = restore(state, [(0.0, event) for event in events], 0.0, 0.0)
    wrong = check_state(state) if ended else []
    if ended and any(run.budget.reserved.values()):
        wrong.append(f"law 20: {run.budget.reserved} is still reserved")
    # What was granted and may have happened is counted once: as reported, or as was reserved.
    granted = {one.call for one in events if isinstance(one, e.CallGranted)}
    for call in [state.calls[name] for name in granted]:
        paid = any(money.amount for money in call.spent) or call.assumed is not None
        if call.settled is not None and call.settled.effect is not Effect.NONE and not paid:
            wrong.append(f"law 20: {call.id} left {call.settled.effect} and cost nothing")
    return wrong
