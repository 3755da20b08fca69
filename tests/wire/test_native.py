"""A cancel of an agent of endstop's own stops a process with all that it started."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a2a.types import Task
from google.protobuf.json_format import MessageToJson

from tests.wire.harness import Caller, Server, house, state_of
from tests.wire.ticks import Ticks

AGENT = "tests/wire/native.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with house("endstop", tmp_path_factory.mktemp("native"), AGENT) as home:
        yield home.start("sqlite", "--grace", "0.5")


def cancelled(server: Server, tool: str, ticks: Ticks) -> tuple[Task, float]:
    """A task of this tool, cancelled while it works; and when that was answered."""

    async def conversation() -> tuple[Task, float]:
        async with Caller(server) as client:
            stream = client.stream(f"{tool} {ticks.file}")
            await ticks.seen("tick", 3)
            task = await client.cancel((await stream.until("WORKING")).task_id)
            answered = time.time()
            seen = await stream.end(5.0)
            assert (seen.closed, seen.endings) == (True, ["CANCELED"]), seen.states
            return task, answered

    return asyncio.run(conversation())


@pytest.mark.parametrize("tool", ["shell", "apart"])
def test_law_11_whole_tree_a_cancel_ends_every_process(
    server: Server, tmp_path: Path, tool: str
) -> None:
    ticks = Ticks(tmp_path / "ticks")
    task, answered = cancelled(server, tool, ticks)
    assert state_of(task) == "CANCELED"
    time.sleep(0.5)
    assert ticks.after(answered + 0.1) == 0, "something of the tree lives on"
    assert row_of(task, tool)["stopped"] in ("asked", "killed")


def test_law_9_on_the_books_a_deaf_thread_is_told_of(server: Server, tmp_path: Path) -> None:
    ticks = Ticks(tmp_path / "ticks")
    task, _ = cancelled(server, "deaf", ticks)
    assert state_of(task) == "CANCELED"
    (part,) = task.status.message.parts
    assert "may still be running: deaf" in part.text
    row = row_of(task, "deaf")
    assert (row["stopped"], row["outcome"], row["effect"]) == ("abandoned", "cancelled", "unknown")


def row_of(task: Task, tool: str) -> dict[str, Any]:
    """What the table of a task says of the one call of a tool."""
    table = json.loads(MessageToJson(task.metadata))["endstop/calls"]
    (row,) = [row for row in table if row["tool"] == tool]
    assert isinstance(row, dict)
    return row
