"""Who may be signalled, and what outlives whom (laws 2 and 11)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from endstop.core.terms import How
from endstop.work import tree
from tests.process import bodies
from tests.process.conftest import Family
from tests.process.desk import Bench


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


def test_BH31_a_number_that_means_another_process_is_not_signalled() -> None:
    command = ["/bin/sh", "-c", "sleep 60 & echo up; wait"]
    stranger = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    assert stranger.stdout is not None
    try:
        assert stranger.stdout.readline() == b"up\n"
        real = tree.identify(stranger.pid)
        assert real is not None
        stale = real._replace(start=real.start - 1)
        assert not tree.send(stale, signal.SIGKILL)
        # As a root: what is below, in the session of or above that number is nobody's.
        scope = tree.Scope(stale, "no-such-marker")
        assert tree.descendants(real) != []
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
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()
        stranger.stdout.close()


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


def test_a_tool_file_that_starts_a_runtime_when_it_is_loaded_runs_nothing_twice(
    tmp_path: Path,
) -> None:
    """law 1 one-door: a worker that loads the file must not become a second program."""
    program = tmp_path / "unguarded.py"
    program.write_text(
        "from endstop import BlockingRuntime, ToolCall, tool\n"
        "@tool(isolation='process')\n"
        "def inside() -> str:\n"
        "    return 'ran'\n"
        "@tool\n"
        "def outside() -> str:\n"
        f"    open({str(tmp_path / 'runs')!r}, 'a').write('x')\n"
        "    return 'ran'\n"
        "with BlockingRuntime([inside, outside]) as runtime:\n"
        "    calls = [ToolCall(model_id=n, tool=n, arguments={}) for n in ('outside', 'inside')]\n"
        "    for result in runtime.execute(calls, parallel=1):\n"
        "        print(result.outcome, result.reason, result.text)\n"
    )
    ran = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert (tmp_path / "runs").read_text() == "x"
    assert "succeeded ok ran" in ran.stdout
    assert "rejected start_failed" in ran.stdout
    assert '`if __name__ == "__main__":`' in ran.stdout
