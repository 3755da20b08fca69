"""The process worker: claims, ends, reuse, loading, listing (laws 1, 3, 9 and 19)."""

from __future__ import annotations

import contextvars
import os
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from endstop.core.inputs import (
    BodyEnded,
    Claimed,
    CommitEntered,
    CommitLeft,
    HumanBegan,
    HumanEnded,
    Progressed,
    Spent,
    StartFailed,
)
from endstop.core.terms import How, Money
from endstop.errors import CallerError
from endstop.tools.tool import tool_from_schema
from endstop.work import tree
from tests.process import bodies
from tests.process.conftest import Family
from tests.process.desk import Bench, tool_at


def test_a_body_runs_and_returns(bench: Bench) -> None:
    assert bench.run(bodies.add, a=1, b=2) == BodyEnded(call="c1", how=How.RETURNED, value=3)
    assert bench.run(bodies.add_later, a=3, b=4).value == 7


def test_a_refused_claim_runs_nothing(bench: Bench, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = bench.start(bodies.write, path=str(mark), refuse=True)
    bench.desk.claimed(call)
    # The host is free again and what runs in it now came after the refusal.
    assert bench.run(bodies.add, a=1, b=1).value == 2
    assert not mark.exists()
    assert [type(told) for told in bench.desk.of(call)] == [Claimed]


def test_every_body_is_claimed_once_and_before_all_else(bench: Bench) -> None:
    end = bench.run(bodies.ask_things)
    told = bench.desk.of(end.call)
    assert isinstance(told[0], Claimed)
    assert sum(isinstance(one, Claimed) for one in told) == 1


def test_what_a_body_tells_crosses(bench: Bench) -> None:
    end = bench.run(bodies.ask_things)
    call = end.call
    assert end.value == [call, f"key-{call}", "human", "committed"]
    assert bench.desk.of(call)[1:-1] == [
        Progressed(call=call, message="half", fraction=0.5),
        HumanBegan(call=call, why="password"),
        HumanEnded(call=call),
        CommitEntered(call=call),
        CommitLeft(call=call, done=True),
        Spent(call=call, money=Money(amount=Decimal("0.04"), currency="USD")),
    ]


@pytest.mark.parametrize("body", [bodies.ask_things, bodies.commit_later])
def test_a_commit_point_that_is_refused_is_not_passed(bench: Bench, body: object) -> None:
    bench.desk.no_commit.add("c7")
    bench.start(body, call="c7")  # type: ignore[arg-type]
    end = bench.desk.end("c7")
    assert end.how is How.RAISED
    assert end.error is not None
    assert end.error.startswith("Stopped")
    assert not bench.desk.of("c7", CommitLeft)


def test_context_variables_are_carried() -> None:
    bench = Bench(slots=1, carry=("tests.process.bodies:WHO",))
    try:
        context = contextvars.copy_context()
        context.run(bodies.WHO.set, "alice")
        assert bench.desk.end(bench.start(bodies.who, context=context)).value == "alice"
        assert bench.run(bodies.who).value == "nobody"
    finally:
        assert bench.close()


@pytest.mark.parametrize("name", ["nowhere:X", "tests.process.bodies:add", "os"])
def test_a_carried_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(CallerError, match="carry"):
        Bench(carry=(name,))


def test_a_call_finds_the_process_as_it_should_be(tmp_path: Path) -> None:
    bench = Bench(slots=1)
    try:
        first = bench.run(bodies.change_world)
        assert bench.run(bodies.change_world).value == first.value
        # The handler that the last call removed is there again.
        call = bench.start(bodies.sleeper, grace_s=1.0)
        bench.desk.progress(call, "ready")
        bench.worker.ask(call)
        assert bench.desk.end(call).how is How.STOPPED
    finally:
        assert bench.close()


def test_200_calls_use_one_process(lone_bench: Bench) -> None:
    assert len({lone_bench.run(bodies.pid).value for _ in range(200)}) == 1


def test_a_spare_host_is_kept_within_the_slots(bench: Bench) -> None:
    calls = [bench.start(bodies.listener) for _ in range(2)]
    for call in calls:
        bench.desk.progress(call, "ready")
    assert len({bench.worker.look(call).pid for call in calls}) == 2  # type: ignore[union-attr]
    waiting = bench.start(bodies.add, a=1, b=1)
    bench.desk.no_end_for(waiting, 0.2)
    bench.worker.ask(calls[0])
    assert bench.desk.end(waiting).value == 2
    for call in calls:
        bench.worker.ask(call)
        bench.desk.end(call)


def test_an_idle_host_is_retired(test_remains: object) -> None:
    bench = Bench(slots=2, idle_s=0.1)
    try:
        first = bench.run(bodies.pid).value
        who = tree.identify(first)
        if who is not None:
            assert tree.wait_dead([who], time.monotonic() + 10)
        assert bench.run(bodies.pid).value != first
    finally:
        assert bench.close()


def test_a_tool_file_that_changed_is_loaded_anew(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    source = (
        "from endstop import tool\n\n"
        "@tool(isolation='process')\ndef version() -> int:\n    return {}\n"
    )
    path.write_text(source.format(1))
    tool = tool_at("version", f"{path}:version")
    assert bench.run(tool).value == 1
    path.write_text(source.format(2))
    # Unlike before in any case, also where the clock of the file system is coarse.
    os.utime(path, ns=(1, 1))
    assert bench.run(tool).value == 2


def test_a_tool_made_of_a_given_schema_runs(bench: Bench) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    tool = tool_from_schema("plus", schema, bodies.add.fn)
    assert bench.run(tool, a=5, b=6).value == 11


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nowhere.at_all:f", "No module named"),
        ("tests.process.bodies:missing", "no attribute 'missing'"),
        ("tests.process.bodies:WHO", "not a tool"),
        ("/no/such/file.py:f", "No such file"),
    ],
)
def test_a_tool_that_cannot_be_loaded_fails_to_start(
    bench: Bench, address: str, words: str
) -> None:
    tool = tool_at("lost", address)
    call = bench.start(tool)
    assert words in bench.desk.failure(call).message
    assert not bench.desk.of(call, Claimed)
    assert bench.run(bodies.add, a=1, b=1).value == 2


def test_a_host_that_cannot_be_started_fails_the_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    call = bench.start(bodies.add, a=1, b=1)
    assert "/no/such/python" in bench.desk.failure(call).message
    monkeypatch.undo()
    assert bench.run(bodies.add, a=1, b=1).value == 2


def test_a_host_that_keeps_a_thread_of_a_body_is_not_used_again(lone_bench: Bench) -> None:
    first = lone_bench.run(bodies.leave_thread)
    assert first.how is How.RETURNED
    assert lone_bench.run(bodies.pid).value != first.value


def test_what_one_call_printed_is_not_the_output_of_the_next(lone_bench: Bench) -> None:
    for _ in range(2):
        assert lone_bench.run(bodies.fail, kind="plain").output == {"stdout": "printed before\n"}


def test_look_names_what_a_body_has_started(bench: Bench, family: Family) -> None:
    call = bench.start(bodies.family, kind="setsid", folder=str(family.folder))
    bench.desk.progress(call, "ready")
    sight = bench.worker.look(call)
    assert sight is not None
    assert sight.pid is not None
    assert {f"pid {who.pid} " in " ".join(sight.stack) for who in family.members()} == {True}
    bench.worker.kill(call)
    bench.desk.end(call)
    assert bench.worker.look(call) is None


def test_a_closed_worker_takes_no_work(bench: Bench) -> None:
    assert bench.run(bodies.add, a=1, b=1).value == 2
    bench.worker.close()
    call = bench.start(bodies.add, a=1, b=1)
    assert bench.worker.join(10)
    assert isinstance(bench.desk.failure(call), StartFailed)
    late = bench.start(bodies.add, a=1, b=1)
    assert "closed" in bench.desk.failure(late).message
    bench.worker.close()
