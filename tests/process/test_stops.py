"""Stopping one body: asked, unwound, killed, and what its grace is for (laws 2, 3, 6 and 11)."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from endstop.core.inputs import (
    BodyEnded,
    Claimed,
)
from endstop.core.terms import How
from endstop.errors import Stopped
from endstop.tools.tool import Tool
from endstop.work.runner import Channel, Runner
from endstop.work.wire import Unpacker
from tests.process import bodies
from tests.process.conftest import Family
from tests.process.desk import Bench, tool_at


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


def test_progress_that_is_interrupted_leaves_the_channel_whole(bench: Bench) -> None:
    for _ in range(5):
        call = bench.start(bodies.chatter, grace_s=0.5)
        bench.desk.progress(call, "100")
        bench.worker.ask(call)
        end = bench.desk.end(call)
        assert end.how is How.STOPPED
        assert end.error == f"Stopped: call {call} was told to end"


def test_what_a_signalled_body_returns_is_not_its_result(bench: Bench) -> None:
    call = bench.start(bodies.swallower, grace_s=1.0)
    bench.desk.progress(call, "ready")
    bench.worker.ask(call)
    end = bench.desk.end(call)
    assert (end.how, end.value, end.output) == (How.STOPPED, None, "swallowed")


def test_an_interruption_waits_for_the_end_of_a_frame() -> None:
    here, there = socket.socketpair()
    channel = Channel(here, 1 << 24)
    interrupted = Runner(channel)

    def unwind() -> None:
        raise Stopped("unwound")

    interrupted.body = SimpleNamespace(terminate=unwind)
    before = signal.signal(signal.SIGUSR1, interrupted.terminate)
    frames: list[dict[str, Any]] = []

    def interrupt_and_read() -> None:
        while not channel.writing:
            time.sleep(0.001)
        # The frame is larger than what a socket holds: the writer is in the middle of it.
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
        unpacker = Unpacker(1 << 24)
        while not frames:
            frames.extend(unpacker.feed(there.recv(1 << 20)))

    reader = threading.Thread(target=interrupt_and_read)
    reader.start()
    try:
        with pytest.raises(Stopped):
            channel.send({"t": "tell", "text": "x" * 5_000_000})
        reader.join(20)
        assert [len(frame["text"]) for frame in frames] == [5_000_000]
    finally:
        signal.signal(signal.SIGUSR1, before)
        here.close()
        reader.join(20)
        there.close()


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
    return tool_at("slow", f"{slow}:slow")


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
