"""The process worker: claims, ends, stops, payloads, reuse (laws 1, 3, 6, 9 and 19)."""

from __future__ import annotations

import contextvars
import os
import signal
import subprocess
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
from endstop.tools.tool import Tool, tool_from_schema
from endstop.work import tree
from tests.process import bodies
from tests.process.conftest import Family
from tests.process.desk import Bench


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


def test_a_cooperative_stop_returns_what_the_body_returns(bench: Bench) -> None:
    call = bench.start(bodies.listener, grace_s=30.0)
    bench.desk.progress(call, "ready")
    bench.worker.ask(call)
    end = bench.desk.end(call)
    assert (end.how, end.value) == (How.RETURNED, "stopped nicely")


def test_an_async_body_is_cancelled_once_and_cleans_up(bench: Bench) -> None:
    call = bench.start(bodies.async_sleeper, grace_s=30.0)
    bench.desk.progress(call, "ready")
    bench.worker.ask(call)
    bench.worker.ask(call)
    assert bench.desk.end(call, within_s=5.0).how is How.STOPPED
    bench.desk.progress(call, "cleaned", within_s=0)


def test_a_blocked_body_is_unwound_within_the_grace(bench: Bench) -> None:
    call = bench.start(bodies.sleeper, grace_s=2.0)
    bench.desk.progress(call, "ready")
    began = time.monotonic()
    bench.worker.ask(call)
    end = bench.desk.end(call)
    assert end.how is How.STOPPED
    bench.desk.progress(call, "cleaned", within_s=0)
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("body", [bodies.slow_cleaner, bodies.slow_async_cleaner])
def test_cleaning_up_may_take_most_of_the_grace(bench: Bench, body: Tool) -> None:
    call = bench.start(body, grace_s=4.0)
    bench.desk.progress(call, "ready")
    bench.worker.ask(call)
    end = bench.desk.end(call)
    # It noticed the stop, so that nobody signalled it: its own return counts.
    assert (end.how, end.value) == (How.RETURNED, "cleaned up")


def test_a_child_of_a_stopped_body_may_clean_up_too(bench: Bench, tmp_path: Path) -> None:
    call = bench.start(bodies.sleeper_with_child, folder=str(tmp_path), grace_s=5.0)
    bench.desk.progress(call, "ready")
    bench.worker.ask(call)
    end = bench.desk.end(call)
    assert end.how is How.STOPPED
    assert (tmp_path / "cleaned").exists()


def test_a_kill_does_not_wait_for_what_is_left_of_the_grace(bench: Bench, family: Family) -> None:
    call = bench.start(
        bodies.listener_with_family, kind="term_ignorer", folder=str(family.folder), grace_s=60.0
    )
    bench.desk.progress(call, "ready")
    bench.worker.ask(call)
    bench.desk.no_end_for(call, 0.3)
    began = time.monotonic()
    bench.worker.kill(call)
    end = bench.desk.end(call)
    assert time.monotonic() - began < 2.0
    assert (end.how, end.value) == (How.RETURNED, "stopped nicely")
    assert family.alive() == []


def test_a_body_that_writes_nonsense_to_the_channel_is_lost(bench: Bench) -> None:
    for kind in ("frame", "bytes"):
        end = bench.run(bodies.write_nonsense, kind=kind)
        assert end.how is How.LOST
    assert bench.run(bodies.add, a=1, b=1).value == 2


def test_progress_that_is_interrupted_leaves_the_channel_whole(bench: Bench) -> None:
    for _ in range(5):
        call = bench.start(bodies.chatter, grace_s=0.5)
        bench.desk.progress(call, "100")
        bench.worker.ask(call)
        end = bench.desk.end(call)
        assert end.how is How.STOPPED
        assert end.error == f"Stopped: call {call} was told to end"


def test_output_so_far_comes_with_a_kill(bench: Bench) -> None:
    call = bench.start(bodies.stubborn, text="so far")
    bench.desk.progress(call, "ready")
    bench.worker.kill(call)
    end = bench.desk.end(call)
    assert end.how is How.STOPPED
    assert end.output == {"stdout": "so far\n"}


def test_stops_for_calls_that_are_not_here_change_nothing(lone_bench: Bench) -> None:
    bench = lone_bench
    bench.worker.ask("nobody")
    bench.worker.kill("nobody")
    end = bench.run(bodies.add, a=1, b=1)
    bench.worker.ask(end.call)
    bench.worker.kill(end.call)
    first = bench.run(bodies.pid).value
    assert first == bench.run(bodies.pid).value
    assert len(bench.desk.of(end.call, BodyEnded)) == 1


def slow_tool(tmp_path: Path) -> Tool:
    """A tool whose import never comes to an end."""
    slow = tmp_path / "slow_tool.py"
    slow.write_text("open(__file__ + '.began', 'w').close()\nimport time\ntime.sleep(60)\n")
    tool = tool_from_schema("slow", {"type": "object", "properties": {}}, _slow)
    object.__setattr__(tool, "address", f"{slow}:slow")
    return tool


def test_a_kill_while_the_tool_is_loading_ends_it(bench: Bench, tmp_path: Path) -> None:
    call = bench.start(slow_tool(tmp_path))
    deadline = time.monotonic() + 20
    while not (tmp_path / "slow_tool.py.began").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    bench.worker.kill(call)
    assert "stopped before" in bench.desk.failure(call).message
    assert not bench.desk.of(call, Claimed)


def test_an_import_that_hangs_does_not_keep_its_host(tmp_path: Path) -> None:
    bench = Bench(slots=1)
    try:
        call = bench.start(slow_tool(tmp_path), start_s=0.5)
        assert "within 0.5 s" in bench.desk.failure(call).message
        assert bench.run(bodies.add, a=1, b=1).value == 2
    finally:
        assert bench.close()


def _slow() -> None:
    raise AssertionError("never called here")


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


def test_no_descriptor_leaks_in_50_calls(lone_bench: Bench) -> None:
    bench = lone_bench
    for _ in range(5):
        bench.run(bodies.add, a=1, b=1)
    here, there = len(os.listdir("/proc/self/fd")), bench.run(bodies.count_descriptors).value
    for _ in range(50):
        bench.run(bodies.add, a=1, b=1)
    assert bench.run(bodies.count_descriptors).value == there
    assert len(os.listdir("/proc/self/fd")) == here


def test_no_descriptor_or_zombie_leaks_in_kills() -> None:
    before = len(os.listdir("/proc/self/fd"))
    bench = Bench(slots=2)
    for _ in range(5):
        call = bench.start(bodies.stubborn)
        bench.desk.progress(call, "ready")
        bench.worker.kill(call)
        bench.desk.end(call)
    assert bench.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not [one for one in tree.table().values() if one.parent == os.getpid() and one.dead]


def test_a_tool_file_that_changed_is_loaded_anew(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    source = (
        "from endstop import tool\n\n"
        "@tool(isolation='process')\ndef version() -> int:\n    return {}\n"
    )
    path.write_text(source.format(1))
    tool = tool_from_schema("version", {"type": "object", "properties": {}}, _slow)
    object.__setattr__(tool, "address", f"{path}:version")
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
    tool = tool_from_schema("lost", {"type": "object", "properties": {}}, _slow)
    object.__setattr__(tool, "address", address)
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


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("plain", "ValueError: told so"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "CancelledError"),
        ("unpicklable", "Unpicklable"),
        ("mute", "MuteError"),
        ("huge", "ValueError: xxx"),
        ("surrogate", "ValueError: lone"),
        ("base", "BaseException: bare"),
    ],
)
def test_BH73_whatever_a_body_raises_ends_one_call(bench: Bench, kind: str, words: str) -> None:
    end = bench.run(bodies.fail, kind=kind)
    assert end.how is How.RAISED
    assert end.error is not None
    assert end.error.startswith(words)
    assert len(end.error) < 10_000
    end.error.encode()
    assert "bodies.py" in end.error
    assert end.output == {"stdout": "printed before\n"}
    assert bench.run(bodies.add, a=1, b=1).value == 2


@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancelled"])
def test_whatever_an_async_body_raises_ends_one_call(bench: Bench, kind: str) -> None:
    assert bench.run(bodies.fail_later, kind=kind).how is How.RAISED
    assert bench.run(bodies.add, a=1, b=1).value == 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cycle", "result.a[1]: contains itself"),
        ("deep", "nested"),
        ("object", "result.thing: is of type object"),
    ],
)
def test_a_result_without_a_form_is_named_by_its_path(bench: Bench, kind: str, words: str) -> None:
    end = bench.run(bodies.give, kind=kind)
    assert end.how is How.UNSERIALISABLE
    assert end.error is not None
    assert words in end.error
    assert bench.run(bodies.add, a=1, b=1).value == 2


def test_a_result_above_the_limit_of_the_wire_says_so() -> None:
    bench = Bench(slots=1, frame_bytes=1 << 20)
    try:
        end = bench.run(bodies.give, kind="huge")
        assert end.how is How.UNSERIALISABLE
        assert end.error is not None
        assert "5000" in end.error
        assert "1048576" in end.error
        call = bench.start(bodies.fail, kind="x" * (1 << 21))
        assert "1048576" in bench.desk.failure(call).message
        assert bench.run(bodies.add, a=1, b=1).value == 2
    finally:
        assert bench.close()


def test_results_that_can_be_repaired_are(bench: Bench) -> None:
    assert bench.run(bodies.give, kind="nan").value == [None, None, 1.5]
    assert bench.run(bodies.give, kind="surrogate").value == "a\ufffdb"
    assert len(bench.run(bodies.give, kind="huge").value) == 5_000_000


def test_a_host_that_keeps_a_thread_of_a_body_is_not_used_again(bench: Bench) -> None:
    first = bench.run(bodies.leave_thread)
    assert first.how is How.RETURNED
    assert bench.run(bodies.pid).value != first.value


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


def test_BH31_a_number_that_means_another_process_is_not_signalled() -> None:
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        real = tree.identify(stranger.pid)
        assert real is not None
        stale = real._replace(start=real.start - 1)
        assert not tree.send(stale, signal.SIGKILL)
        # As a root: what is below, in the session of or above that number is nobody's.
        scope = tree.Scope(stale, "no-such-marker")
        assert tree.descendants(stale) == []
        assert tree.sweep(scope, 1.0) == tree.Swept((), ())
        # As a member: a true identity that does not belong to the host.
        me = tree.identify(os.getpid())
        assert me is not None
        elsewhere = subprocess.Popen(["sleep", "60"], start_new_session=True)
        try:
            root = tree.identify(elsewhere.pid)
            assert root is not None
            assert not tree.send(real, signal.SIGKILL, tree.Scope(root, "no-such-marker"))
        finally:
            elsewhere.kill()
            elsewhere.wait()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_BH31_a_host_whose_identity_was_swapped_is_killed_and_the_stranger_is_not(
    bench: Bench, family: Family
) -> None:
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        call = bench.start(bodies.family, kind="setsid", folder=str(family.folder))
        bench.desk.progress(call, "ready")
        host = bench.worker._calls.pool.by_call[call]
        truth = host.who
        real = tree.identify(stranger.pid)
        assert real is not None
        host.who = real._replace(start=real.start - 1)
        bench.worker.kill(call)
        end = bench.desk.end(call)
        assert end.how is How.STOPPED
        # Nothing of the stranger, and by its marker everything of the host.
        assert stranger.poll() is None
        assert family.alive() == []
        assert not tree.alive(truth)
    finally:
        stranger.kill()
        stranger.wait()


_PARENT = """
import sys, time
sys.path.insert(0, {root!r})
from tests.process.desk import Bench
from tests.process import bodies
bench = Bench(slots=3)
bench.desk.progress(bench.start(bodies.family, kind="daemon", folder={folder!r}), "ready")
bench.desk.progress(bench.start(bodies.{other}), "ready")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("other", ["listener", "hold_the_lock"])
def test_no_host_outlives_a_parent_that_was_killed(
    root: Path, family: Family, test_remains: object, other: str
) -> None:
    script = _PARENT.format(root=str(root), folder=str(family.folder), other=other)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while test_remains():  # type: ignore[operator]
        assert time.monotonic() < deadline, [tree.name(w) for w in test_remains()]  # type: ignore[operator]
        time.sleep(0.01)
    assert family.alive() == []


def test_a_forked_child_of_the_parent_does_not_keep_its_hosts(
    root: Path, family: Family, test_remains: object
) -> None:
    script = _PARENT.format(root=str(root), folder=str(family.folder), other="listener")
    script = script.replace(
        'print("ready", flush=True)',
        "import os, warnings\nwarnings.simplefilter('ignore')\nchild = os.fork()\n"
        "if child:\n    print(child, flush=True)",
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while [who.pid for who in test_remains()] != [child]:  # type: ignore[operator]
        assert time.monotonic() < deadline, [tree.name(w) for w in test_remains()]  # type: ignore[operator]
        time.sleep(0.01)


def test_a_program_ends_at_once_beside_a_wedged_body(root: Path, family: Family) -> None:
    script = _PARENT.format(root=str(root), folder=str(family.folder), other="stubborn")
    script = script.replace("time.sleep(60)", "sys.exit(5)")
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == 5
    assert time.monotonic() - began < 20
