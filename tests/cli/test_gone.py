"""What `endstop exec` does when the terminal closes, the disk is full or the input never ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import (
    PATIENCE_S,
    PROGRAM,
    TOOLS,
    Terminal,
    endstop,
    environment,
    gone,
    marked,
    reply,
    start,
    until,
)


def test_a_terminal_that_is_closed_is_a_shutdown_with_an_answer(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    out, journal = tmp_path / "out.json", tmp_path / "runs.db"
    terminal = Terminal(out, "exec", asked, "--tools", TOOLS, "--json", "--journal", journal)
    marked(tmp_path / "mark")
    os.close(terminal._master)
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    (call,) = terminal.answer()["calls"]
    assert (call["outcome"], call["reason"], call["stopped_by"]) == (
        "cancelled",
        "shutdown",
        "asked",
    )
    shown = endstop("journal", journal, "last", "--json")
    assert '"shutdown"' in shown.stdout


def test_a_hangup_while_a_table_is_shown_stops_the_run(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    out = tmp_path / "out.json"
    terminal = Terminal(out, "exec", asked, "--tools", TOOLS)
    marked(tmp_path / "mark")
    os.close(terminal._master)
    until("the program is gone", lambda: gone(terminal.pid))
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    (message,) = json.loads(out.read_text(encoding="utf-8"))
    assert "started and then cancelled" in message["content"]


def test_a_run_under_nohup_outlives_a_hangup(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program = start("exec", asked, "--tools", TOOLS, "--json")
    finally:
        signal.signal(signal.SIGHUP, before)
    marked(tmp_path / "mark")
    program.send_signal(signal.SIGHUP)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 130
    assert json.loads(out)["calls"][0]["reason"] == "cancelled_by_user"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_answer_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    asked = reply(tmp_path / "reply.json", ("leaves_mark", {"mark": str(mark)}))
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*PROGRAM, "exec", str(asked), "--tools", str(TOOLS)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            env=environment(),
            check=False,
        )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "endstop: the answer cannot be written: no space left on device" in done.stderr
    assert "1 succeeded" in done.stderr
    marked(mark)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /dev/zero to no end")
def test_a_reply_without_an_end_is_refused() -> None:
    done = endstop("exec", "/dev/zero", "--tools", TOOLS)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "endstop: /dev/zero: it is longer than 67108864 bytes" in done.stderr
