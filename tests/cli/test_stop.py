"""Stopping `endstop exec` by Ctrl-C, twice, and by SIGTERM: nothing is left, the truth is told."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PATIENCE_S, TOOLS, gone, marked, reply, start, until


def finish(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = program.communicate(timeout=PATIENCE_S)
    return program.returncode, out, err


def test_ctrl_c_stops_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    wait = ("waits", {"mark": str(tmp_path / "mark")})
    quick = ("leaves_mark", {"mark": str(tmp_path / "quick")})
    asked = reply(tmp_path / "reply.json", wait, quick, wait)
    program = start("exec", asked, "--tools", TOOLS, "--json")
    marked(tmp_path / "mark")
    marked(tmp_path / "quick")
    program.send_signal(signal.SIGINT)
    code, out, err = finish(program)
    assert code == 130
    assert err == ""
    document = json.loads(out)
    assert document["exit"] == 130
    first, second, third = document["calls"]
    assert (first["outcome"], first["stopped_by"]) == ("cancelled", "asked")
    assert first["effect"] == "unknown"
    assert second["outcome"] == "succeeded"
    assert (third["outcome"], third["effect"], third["stopped_by"]) == ("cancelled", "none", None)
    messages = document["messages"]
    assert [message["tool_call_id"] for message in messages] == ["call_0", "call_1", "call_2"]
    assert messages[2]["content"] == "Tool call cancelled by interrupt."
    assert "started and then cancelled" in messages[0]["content"]


def test_the_stop_is_visible_in_plain_lines(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    program = start("exec", asked, "--tools", TOOLS)
    marked(tmp_path / "mark")
    program.send_signal(signal.SIGINT)
    code, out, err = finish(program)
    assert code == 130
    assert "endstop: Ctrl-C: stopping 1 call; Ctrl-C again kills now" in err
    assert "#1 waits: cancelled" in err
    assert "stopped by Ctrl-C · 1 cancelled · effect unknown for 1" in err
    assert len(json.loads(out)) == 1


@pytest.mark.parametrize("tool", ["stubborn", "blocks_the_loop"])
def test_a_tool_that_hears_nothing_is_abandoned_and_said_to_be(tmp_path: Path, tool: str) -> None:
    asked = reply(tmp_path / "reply.json", (tool, {"mark": str(tmp_path / "mark")}))
    program = start("exec", asked, "--tools", TOOLS, "--json", ENDSTOP_GRACE_S="0.3")
    marked(tmp_path / "mark")
    program.send_signal(signal.SIGINT)
    code, out, _ = finish(program)
    assert code == 130
    (call,) = json.loads(out)["calls"]
    assert (call["outcome"], call["stopped_by"]) == ("cancelled", "abandoned")
    assert (call["effect"], call["alive"]) == ("unknown", True)


def test_a_second_ctrl_c_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("stubborn", {"mark": str(tmp_path / "mark")}))
    program = start("exec", asked, "--tools", TOOLS, ENDSTOP_GRACE_S="3600")
    marked(tmp_path / "mark")
    assert program.stderr is not None
    program.send_signal(signal.SIGINT)
    seen = [program.stderr.readline()]
    while "stopping 1 call" not in seen[-1]:
        seen.append(program.stderr.readline())
    program.send_signal(signal.SIGINT)
    code, out, err = finish(program)
    assert code == 130
    assert "Ctrl-C again: killing what still runs, without grace" in err
    assert "could not be stopped and may still be running" in err
    assert "may still be running" in json.loads(out)[0]["content"]


def test_a_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("deaf_process", {"mark": str(tmp_path / "mark")}))
    program = start("exec", asked, "--tools", TOOLS, "--json")
    body, child = marked(tmp_path / "mark"), marked(tmp_path / "mark.child")
    program.send_signal(signal.SIGINT)
    code, out, _ = finish(program)
    assert code == 130
    (call,) = json.loads(out)["calls"]
    assert (call["outcome"], call["stopped_by"]) == ("cancelled", "killed")
    assert call["survivors"] == []
    assert gone(body)
    assert gone(child)


def test_sigterm_is_a_shutdown(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    program = start("exec", asked, "--tools", TOOLS, "--json")
    marked(tmp_path / "mark")
    program.send_signal(signal.SIGTERM)
    code, out, _ = finish(program)
    assert code == 143
    assert json.loads(out)["calls"][0]["reason"] == "shutdown"


def test_ctrl_c_works_while_nobody_reads_what_is_shown(tmp_path: Path) -> None:
    """A reader that has stopped reading must not decide whether a call can be stopped (law 18)."""
    calls = [("fails", {"why": "x" * 5000}) for _ in range(600)]
    asked = reply(
        tmp_path / "reply.json",
        ("deaf_process", {"mark": str(tmp_path / "mark")}),
        *calls,
    )
    program = start("exec", asked, "--tools", TOOLS, ENDSTOP_HEARTBEAT_S="0.01")
    body, child = marked(tmp_path / "mark"), marked(tmp_path / "mark.child")
    program.send_signal(signal.SIGINT)
    until("the process to be killed", lambda: gone(body) and gone(child))
    assert program.poll() is None, "the pipe was meant to be full"
    code, out, _ = finish(program)
    assert code == 130
    assert len(json.loads(out)) == 601


def test_a_reader_that_goes_away_changes_nothing(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", *[("get_weather", {"city": "Graz"})] * 20)
    program = start("exec", asked, "--tools", TOOLS)
    assert program.stderr is not None
    program.stderr.readline()
    program.stderr.close()
    program.stderr = None
    code, out, _ = finish(program)
    assert code == 0
    assert len(json.loads(out)) == 20


def test_impatient_presses_do_not_tear_the_answer(tmp_path: Path) -> None:
    """What is pressed while the answer is written waits for it; a third press does not."""
    wide = ("get_weather", {"city": "x" * 100_000})
    asked = reply(tmp_path / "reply.json", *[wide] * 10)
    program = start("exec", asked, "--tools", TOOLS)
    assert program.stderr is not None
    while "10 succeeded" not in program.stderr.readline():
        continue
    # Its answer does not fit into the pipe that nobody has begun to read.
    program.send_signal(signal.SIGINT)
    program.send_signal(signal.SIGINT)
    code, out, _ = finish(program)
    assert code == 0
    assert len(json.loads(out)) == 10


def test_ctrl_c_before_anything_has_started_says_so(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    program = start("exec", asked, "--tools", TOOLS, "--tools", slow)
    marked(mark)
    program.send_signal(signal.SIGINT)
    code, out, err = finish(program)
    assert (code, out) == (130, "")
    assert err == "endstop: stopped by Ctrl-C before any call was started\n"


def test_a_run_without_any_limit_can_be_stopped(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    options = ("--timeout", "0", "--deadline", "inf")
    program = start("exec", asked, "--tools", TOOLS, "--json", *options)
    marked(tmp_path / "mark")
    program.send_signal(signal.SIGINT)
    code, out, _ = finish(program)
    assert code == 130
    assert json.loads(out)["calls"][0]["stopped_by"] == "asked"
