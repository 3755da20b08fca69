"""The benchmarks run, print whole rows and count what ran. No time is asserted here."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import journal, noop, table
from benchmarks.footprint import closure
from benchmarks.measure import Sample, compare, in_turn
from benchmarks.rows import Row, plain
from endstop import Runtime, ToolCall, tool
from tests.support import ROOT

# The first to ask for `rows` waits for a whole quick run, on a machine that may be busy.
RUN_S = 300

FIELDS = {
    "name",
    "mode",
    "n",
    "journal",
    "cpu_us",
    "wall_us",
    "floor",
    "floor_cpu_us",
    "floor_wall_us",
    "ratio",
    "wall_ratio",
    "target",
    "met",
}


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Every row of a quick run, as it is printed."""
    done = run_command("--quick", "--json")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.serial
@pytest.mark.timeout(RUN_S)
def test_every_row_has_every_field(rows: list[dict[str, Any]]) -> None:
    assert rows
    for row in rows:
        assert row.keys() >= FIELDS, row
        assert row["n"] >= 1, row
        if row["floor"] is None:
            assert row["value"] is not None, row
            assert row["unit"], row
        else:
            for name in ("cpu_us", "wall_us", "floor_cpu_us", "floor_wall_us"):
                assert row[name] > 0, row
            assert row["ratio"] == pytest.approx(row["cpu_us"] / row["floor_cpu_us"], rel=0.01)
            assert row["wall_ratio"] == pytest.approx(
                row["wall_us"] / row["floor_wall_us"], rel=0.01
            )


@pytest.mark.serial
@pytest.mark.timeout(RUN_S)
def test_a_row_says_whether_its_target_is_met(rows: list[dict[str, Any]]) -> None:
    judged = [row for row in rows if row["target"] is not None]
    assert judged
    for row in judged:
        number = row["ratio"] if row["ratio"] is not None else row["value"]
        assert row["met"] is (number <= row["target"]), row
    assert all(row["met"] is None for row in rows if row["target"] is None)


@pytest.mark.serial
@pytest.mark.timeout(RUN_S)
def test_every_promised_number_has_its_row(rows: list[dict[str, Any]]) -> None:
    there = {(row["name"], row["mode"], row["n"], row["journal"]) for row in rows}
    for n in (1, 10, 100, 1000):
        for mode in ("async", "threaded", "blocking"):
            assert ("noop", mode, n, "memory") in there
        for name in ("noop-one-key", "noop-undeclared"):
            assert (name, "async", n, "memory") in there
        assert ("noop-sqlite", "async", n, "sqlite") in there
    names = {row["name"] for row in rows}
    assert names >= {
        "linear",
        "read-reply",
        "waiters",
        "waiters-begun",
        "waiters-threads",
        "cancel-coroutine",
        "cancel-thread",
        "cancel-tree",
        "process-call",
        "import",
        "import-loads-cli",
        "install-size",
        "install-count",
        "memory-finished",
        "memory-closed",
        "memory-waiting",
        "parked-memory",
        "parked-idle",
        "parked-wake",
        "parked-list",
        "serve-send",
        "serve-first-event",
        "serve-memory",
    }


@pytest.mark.serial
@pytest.mark.timeout(RUN_S)
def test_what_is_counted_and_not_timed_holds(rows: list[dict[str, Any]]) -> None:
    found = {(row["name"], row["mode"]): row["value"] for row in rows if row["floor"] is None}
    for mode in ("async", "threaded"):
        assert found["waiters-begun", mode] == 0
        assert found["waiters-threads", mode] == 0
    assert found["import-loads-cli", "sync"] == 0
    assert found["install-count", "sync"] <= 18
    assert found["install-size", "sync"] <= 20


@pytest.mark.parametrize("mode", ["async", "threaded", "blocking"])
def test_a_sample_runs_every_call(mode: str) -> None:
    calls = 100 * noop.batches_in_a_sample(100)
    with noop.sides(mode, 100, resources="none", effect="effectful") as (floor, ours):
        noop.counter.take()
        for side in (floor, ours):
            sample = side()
            assert noop.counter.take() == 0, "the sample itself has counted and taken"
            assert sample.cpu_us > 0
            assert sample.wall_us > 0
    assert calls == noop.CALLS


def test_a_sample_that_skips_a_call_is_refused() -> None:
    noop.counter.take()
    noop.counter.bump()
    with pytest.raises(AssertionError, match="2 calls were asked for, 1 ran, 0 succeeded"):
        noop.check([], 2)
    with pytest.raises(AssertionError, match="the floor ran 0 of 5 calls"):
        noop.check_floor(5)


def test_a_failing_body_does_not_pass_as_a_call() -> None:
    @tool(resources=(), name="noop")
    async def failing() -> None:
        noop.counter.bump()
        raise ValueError("no")

    async def story() -> None:
        noop.counter.take()
        async with Runtime([failing]) as rt, rt.run() as run:
            batch = await run.execute([ToolCall(model_id="", tool="noop", arguments={})])
            noop.check([batch], 1)

    with pytest.raises(AssertionError, match="1 calls were asked for, 1 ran, 0 succeeded"):
        asyncio.run(story())


def test_the_journal_floor_writes_our_rows() -> None:
    """Its own checks compare rows with transactions and endings with calls; here they run."""
    pair, memory_us, rows, groups = journal.measure("async", 1000, 1, "effectful")
    assert rows > 2 * noop.CALLS
    assert 1 <= groups < noop.CALLS
    assert memory_us > 0
    assert pair.rounds == 1


def test_sides_take_turns_and_the_first_turn_is_not_kept() -> None:
    order: list[str] = []

    def side(name: str, costs: Iterator[float]) -> Any:
        def sample() -> Sample:
            order.append(name)
            cost = next(costs)
            return Sample(cpu_us=cost, wall_us=2 * cost)

        return sample

    floors, ours = in_turn(2, side("a", iter([1, 4, 2])), side("b", iter([9, 12, 8])))
    assert order == ["a", "b"] * 3
    assert [s.cpu_us for s in floors] == [4, 2]
    pair = compare(floors, ours)
    assert (pair.floor.cpu_us, pair.ours.cpu_us) == (2, 8)
    assert (pair.ratio, pair.wall_ratio, pair.ratio_median) == (4, 4, 3.5)
    assert pair.rounds == 2


def test_the_requirements_of_the_base_install_leave_the_extras_out() -> None:
    names = set(closure(["pydantic>=2", 'hypothesis>=1; extra == "dev"']))
    assert {"pydantic", "pydantic-core", "typing-extensions"} <= names
    assert "hypothesis" not in names


def test_a_missed_target_is_shown() -> None:
    missed = plain("waiters", "async", 100, 12.5, "ms", target=10.0)
    assert missed.met is False
    (line,) = table.lines(missed)
    assert line.split()[-1] == "NO"
    assert len(table.heading()) >= len("name mode n")


def test_an_unknown_name_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--quick", "noone"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "no benchmark 'noone'" in said
    assert "noop-sqlite" in said


def test_the_table_is_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(quick: bool) -> Iterator[Row]:
        assert quick
        yield plain("one", "sync", 1, 3.0, "ms", note="what it means")

    monkeypatch.setitem(command.BENCHMARKS, "one", one)
    assert command.main(["--quick", "one"]) == 0
    heading, row, note = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["name", "mode", "n"]
    assert row.split() == ["one", "sync", "1", "3", "ms"]
    assert note.strip() == "what it means"
    assert command.main(["--quick", "--markdown", "one"]) == 0
    heading, rule, row = capsys.readouterr().out.splitlines()
    assert heading.startswith("| name | mode | n |")
    assert heading.count("|") == rule.count("|") == row.count("|")
    assert "| 3 | ms |" in row
