"""Law 11 whole-tree: one test per kind of descendant, by every way to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from endstop.core.terms import How
from tests.process import bodies
from tests.process.conftest import Family
from tests.process.desk import Bench

KINDS = [
    "child",
    "grandchild",
    "setsid",
    "daemon",
    "term_ignorer",
    "pipe_holder",
    "rabbit",
    "storm",
    "stopped",
    "scrubbed",
    "scrubbed_child",
    "scrubbed_daemon",
]
BOUND_S = 5.0


@pytest.mark.parametrize("way", ["ask_then_kill", "kill", "close"])
@pytest.mark.parametrize("kind", KINDS)
def test_BH29_nothing_of_the_tree_is_left(
    bench: Bench, family: Family, test_remains: Callable[[], list[object]], kind: str, way: str
) -> None:
    call = bench.start(bodies.family, kind=kind, folder=str(family.folder), grace_s=0.5)
    bench.desk.progress(call, "ready")
    began = time.monotonic()
    if way == "ask_then_kill":
        bench.worker.ask(call)
        bench.desk.no_end_for(call, 0.3)
    if way == "close":
        bench.worker.close()
    else:
        bench.worker.kill(call)
    end = bench.desk.end(call)
    took = time.monotonic() - began
    assert end.how is How.STOPPED
    assert end.survivors == ()
    assert family.alive() == []
    assert took < BOUND_S
    assert bench.close()
    assert test_remains() == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_call_leaves_behind_is_stopped_and_named(
    bench: Bench, family: Family, kind: str
) -> None:
    end = bench.run(bodies.leave_behind, kind=kind, folder=str(family.folder))
    assert end.how is How.RETURNED
    assert end.value == "returned"
    assert end.survivors == ()
    assert family.alive() == []
    bench.desk.progress(end.call, "stopped what the call left running")
    # A host that was proved clean goes on.
    assert bench.run(bodies.add, a=1, b=2).value == 3


@pytest.mark.parametrize("kind", ["child", "setsid", "daemon", "grandchild"])
def test_a_tool_that_kills_its_own_host_leaves_nothing(
    bench: Bench, family: Family, test_remains: Callable[[], list[object]], kind: str
) -> None:
    end = bench.run(bodies.kill_host, kind=kind, folder=str(family.folder))
    assert end.how is How.LOST
    assert end.error is not None
    assert "host died" in end.error
    assert end.survivors == ()
    assert family.alive() == []
    assert bench.close()
    assert test_remains() == []


def test_a_child_without_the_marker_is_found_by_its_session(bench: Bench, family: Family) -> None:
    end = bench.run(bodies.kill_host, kind="scrubbed_child", folder=str(family.folder))
    assert end.how is How.LOST
    assert end.survivors == ()
    assert family.alive() == []


def test_what_left_host_session_and_environment_holds_nothing_up(
    bench: Bench, family: Family
) -> None:
    # Its host was killed by force, so that no chain of parents is left to find it by either.
    end = bench.run(bodies.kill_host, kind="scrubbed", folder=str(family.folder))
    assert end.how is How.LOST
    assert len(family.alive()) <= 1
    assert bench.run(bodies.add, a=1, b=2).value == 3


@pytest.mark.parametrize(
    ("kind", "why"), [("exit", "status 7"), ("killed", "SIGKILL"), ("crash", "SIGSEGV")]
)
def test_a_process_that_dies_by_itself_is_lost(
    bench: Bench, family: Family, kind: str, why: str
) -> None:
    end = bench.run(bodies.die, kind=kind, folder=str(family.folder))
    assert end.how is How.LOST
    assert end.error is not None
    assert why in end.error
    assert end.output == {"stdout": "last words\n"}
    assert end.survivors == ()
    assert family.alive() == []
    assert bench.run(bodies.add, a=1, b=2).value == 3


def test_a_body_that_closes_the_channel_is_lost(bench: Bench) -> None:
    end = bench.run(bodies.die, kind="channel")
    assert end.how is How.LOST
    assert bench.run(bodies.add, a=1, b=2).value == 3


def test_a_child_that_comes_back_from_the_body_says_nothing(bench: Bench) -> None:
    end = bench.run(bodies.fork_and_return)
    assert end.value == "returned"
    assert bench.run(bodies.add, a=1, b=2).value == 3
    assert len(bench.desk.of(end.call)) <= 3


def test_a_body_that_holds_the_interpreter_lock_is_killed(bench: Bench) -> None:
    call = bench.start(bodies.hold_the_lock)
    bench.desk.progress(call, "ready")
    began = time.monotonic()
    bench.worker.kill(call)
    assert bench.desk.end(call).how is How.STOPPED
    assert time.monotonic() - began < 2.0


def test_kill_and_proof_are_quick(bench: Bench, family: Family) -> None:
    took = []
    for _ in range(5):
        call = bench.start(bodies.family, kind="daemon", folder=str(family.folder))
        bench.desk.progress(call, "ready")
        began = time.monotonic()
        bench.worker.kill(call)
        assert bench.desk.end(call).survivors == ()
        took.append(time.monotonic() - began)
    print("kill and proof, ms:", [round(t * 1000, 1) for t in took])
    assert max(took) < 2.0
