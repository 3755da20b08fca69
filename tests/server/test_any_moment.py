"""A server that is ended at any moment: the next one finds every task, and none is left working.

Law 16 survives-restart, in real processes. `ENDSTOP_KILLS` names how many endings are tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.house import Served, until

KILLS = int(os.environ.get("ENDSTOP_KILLS", "2"))
ORDERS = ("echo hi", "work w{}", "ask", "stubborn s{}", "flood 50", "block b{}", "fail")
TASKS = 12


class Crowd:
    """Clients that begin tasks, and cancel some, while the server may go at any moment."""

    def __init__(self, served: Served, chance: random.Random) -> None:
        self.served = served
        self.known: list[str] = []
        orders = [chance.choice(ORDERS).format(at) for at in range(TASKS)]
        cancels = [chance.random() < 0.3 for _ in orders]
        self.threads = [
            threading.Thread(target=self._client, args=one)
            for one in zip(orders, cancels, strict=True)
        ]
        for thread in self.threads:
            thread.start()
            time.sleep(chance.random() * 0.03)

    def _client(self, order: str, cancels: bool) -> None:
        # What was not answered may be there, or not; what was, must be.
        with contextlib.suppress(httpx.HTTPError, json.JSONDecodeError, AssertionError):
            task = self.served.send(order, token=None, at_once=True)["id"]
            self.known.append(task)
            if cancels:
                self.served.rpc("CancelTask", {"id": task}, token=None)


def tasks_of(served: Served) -> dict[str, tuple[str, str]]:
    """Every task: its state, and what its body is called."""
    asked = {"pageSize": 100, "historyLength": 10}
    answer = served.rpc("ListTasks", asked, token=None)["result"]
    return {
        one["id"]: (
            str(one["status"]["state"])[11:],
            one["history"][0]["parts"][0]["text"].rpartition(" ")[2],
        )
        for one in answer["tasks"]
    }


def at_work(served: Served, begun: dict[str, int]) -> list[str]:
    """Tasks that are working although their body had begun on the server that is gone."""
    found = tasks_of(served).values()
    return [name for state, name in found if state in ("WORKING", "SUBMITTED") and name in begun]


def effects(folder: Path) -> dict[str, int]:
    """What the bodies have done in the world."""
    return {file.name: file.stat().st_size for file in folder.iterdir() if not file.suffix}


@pytest.mark.serial
@pytest.mark.parametrize("seed", range(KILLS))
def test_law_16_survives_restart_whenever_the_server_ends(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    options: tuple[Any, ...] = ("--journal", str(tmp_path / "tasks.db"), "--grace", "0.3")
    first = Served(tmp_path, *options)
    crowd = Crowd(first, chance)
    time.sleep(chance.random() * 0.3)
    number = (signal.SIGKILL, signal.SIGTERM)[seed % 2]
    first.process.send_signal(number)
    assert first.process.wait(30) == (0 if number is signal.SIGTERM else -number)
    for thread in crowd.threads:
        thread.join(30)
    first.end()
    done = effects(tmp_path)
    again = Served(tmp_path, *options)
    try:
        # What had not begun goes on here; of what had, nothing does.
        until(lambda: not at_work(again, done))
        found = tasks_of(again)
        assert set(crowd.known) <= set(found), "a task that a client was told of is gone"
        for task, (state, _) in found.items():
            if state in ("INPUT_REQUIRED", "WORKING", "SUBMITTED"):
                answer = again.rpc("CancelTask", {"id": task}, token=None)["result"]
                assert answer["status"]["state"] in ("TASK_STATE_CANCELED", "TASK_STATE_COMPLETED")
        now = effects(tmp_path)
        assert {name: now[name] for name in done} == done, "a body went on, or ran again"
        assert "Traceback" not in first.words() + again.words()
    finally:
        again.end()
