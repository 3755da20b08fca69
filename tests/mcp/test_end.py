"""The end of a server: closed, crashed, never begun, and whoever used it killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from endstop import Effect, Outcome
from endstop.adapters.mcp import McpError
from tests.mcp.desk import (
    HERE,
    RAW,
    McpServer,
    McpTerms,
    alive,
    family,
    one,
    raw,
    received,
    wait_for,
)


@pytest.mark.serial
def test_closing_kills_the_whole_tree(tmp_path: Path) -> None:
    with raw(tmp_path, "deaf") as server:
        assert one(server, "family").value == "started"
        processes = family(tmp_path)
        assert set(processes) == {"child", "session", "daemon"}
        assert all(alive(pid) for pid in processes.values())
        at = time.monotonic()
    assert time.monotonic() - at < 8.0, "law 6 bounded-stop"
    left = [kind for kind, pid in processes.items() if alive(pid)]
    assert not left, f"law 11 whole-tree: {left} still live"


@pytest.mark.serial
def test_a_server_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys, time
        from endstop.adapters.mcp import McpServer
        from endstop import BlockingRuntime, ToolCall
        env = {{"MARKS": {str(tmp_path / "marks")!r}}}
        server = McpServer.stdio(sys.executable, "-S", {RAW!r}, env=env).__enter__()
        with BlockingRuntime(server.tools_now()) as runtime:
            runtime.execute([ToolCall(model_id="a", tool="family", arguments={{}})])
            print("ready", flush=True)
            time.sleep(600)
        """
    )
    user = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=HERE, text=True
    )
    assert user.stdout is not None
    with user.stdout:
        assert user.stdout.readline() == "ready\n"
        processes = family(tmp_path)
        assert len(processes) == 3
        user.send_signal(signal.SIGKILL)
        user.wait()
    gone = lambda: not any(alive(pid) for pid in processes.values())  # noqa: E731
    wait_for(gone, "law 11 whole-tree: the server and all of its own are gone")


def test_a_crash_in_mid_call_is_told_and_the_next_call_has_a_new_server(tmp_path: Path) -> None:
    with raw(tmp_path) as server:
        result = one(server, "crash")
        assert (result.outcome, result.effect) == (Outcome.FAILED, Effect.UNKNOWN), "law 5"
        assert "exit status 9" in (result.error or "")
        assert "the reason of the crash" in (result.error or "")
        assert one(server, "echo", again=True).value == '{"again": true}'
    assert len(received(tmp_path, "initialize")) == 2


def test_a_closed_output_is_a_lost_server(tmp_path: Path) -> None:
    with raw(tmp_path) as server:
        result = one(server, "close_output")
        assert result.outcome is Outcome.FAILED
        assert "standard output" in (result.error or "")
        assert one(server, "echo").value == "{}"


def test_a_server_that_cannot_be_started_again_is_tried_a_few_times(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = (
        f'echo x >> {starts}; if [ "$(wc -l < {starts})" -gt 1 ]; then exit 5; fi; '
        f"exec {sys.executable} -S {RAW}"
    )
    env = {"MARKS": str(tmp_path / "marks")}
    terms = McpTerms(pause_s=0.01, tries=3)
    with McpServer.stdio("sh", "-c", script, env=env, terms=terms) as server:
        assert one(server, "crash").outcome is Outcome.FAILED
        result = one(server, "echo")
        assert result.outcome is Outcome.FAILED
        assert "exit status 5" in (result.error or "")
    assert len(starts.read_text().splitlines()) == 1 + 3


def test_a_handshake_has_a_deadline(tmp_path: Path) -> None:
    at = time.monotonic()
    with pytest.raises(McpError, match=r"handshake within 0\.5 s"):
        raw(tmp_path, "never", terms=McpTerms(start_s=0.5)).__enter__()
    assert time.monotonic() - at < 5.0


def test_opening_can_be_given_up(tmp_path: Path) -> None:
    async def scene() -> float:
        opening = asyncio.ensure_future(raw(tmp_path, "never").__aenter__())
        await asyncio.to_thread(wait_for, lambda: received(tmp_path, "initialize"), "it began")
        opening.cancel()
        at = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return time.monotonic() - at

    assert asyncio.run(scene()) < 5.0, "law 7 every-wait-listens"


def test_what_never_was_a_server_says_what_it_said(tmp_path: Path) -> None:
    server = raw(tmp_path, "exits", env={"TOKEN": "very-secret-token"})
    with pytest.raises(McpError) as caught:
        server.__enter__()
    words = str(caught.value)
    assert "exit status 4" in words
    assert "usage: raw_server" in words
    assert "no token *** given" in words
    assert "very-secret-token" not in words
    assert RAW not in words, "no path of ours is told"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("no-such-program-anywhere",), "no such file"),
        ((str(HERE),), "permission denied"),
        (("sh", "-c", "exit 0"), "exit status 0"),
        (("cat",), "server"),
        (("yes",), "does not speak MCP"),
    ],
)
def test_programs_that_are_no_servers(command: tuple[str, ...], words: str) -> None:
    with pytest.raises(McpError, match=words):
        McpServer.stdio(*command, terms=McpTerms(start_s=0.8)).__enter__()


def test_an_unsupported_protocol_is_told(tmp_path: Path) -> None:
    with pytest.raises(McpError, match="1999"):
        raw(tmp_path, "wrong_version").__enter__()


def test_nothing_is_left_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with raw(tmp_path) as server:
        one(server, "echo")
    before = wait_for(descriptors, "there are some")
    for _ in range(5):
        with raw(tmp_path) as server:
            one(server, "echo")
    wait_for(lambda: descriptors() <= before, "no descriptor is leaked")


@pytest.mark.serial
def test_pipes_that_are_held_by_others_hide_no_end(tmp_path: Path) -> None:
    with raw(tmp_path) as server:
        assert one(server, "family").value == "started"
        at = time.monotonic()
        result = one(server, "crash")
        assert time.monotonic() - at < 10.0, "its children hold its pipes"
        assert result.outcome is Outcome.FAILED
        assert "exit status 9" in (result.error or "")
        left = [kind for kind, pid in family(tmp_path).items() if alive(pid)]
        assert not left, f"law 11 whole-tree: {left} still live"
