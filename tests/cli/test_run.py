"""`endstop run` as a program: an agent is run, stopped, answered, killed and gone on with."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import PATIENCE_S, endstop, start, until

AGENTS = str(Path(__file__).with_name("sample_agents.py"))


def run(*arguments: object, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return endstop("run", AGENTS, *arguments, SAMPLE_FOLDER=str(folder), **more)


def begin(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    return start("run", AGENTS, *arguments, SAMPLE_FOLDER=str(folder))


def marks(folder: Path) -> list[str]:
    file = folder / "marks"
    return file.read_text().splitlines() if file.exists() else []


def marked(folder: Path, word: str) -> None:
    until(f"{word!r} is marked", lambda: word in marks(folder))


def runs(journal: Path) -> list[dict[str, Any]]:
    done = endstop("runs", "--journal", journal, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return list(found["runs"] if isinstance(found, dict) else found)


def finish(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = program.communicate(timeout=PATIENCE_S)
    return program.returncode, out, err


def test_the_answer_goes_to_standard_output_and_nothing_else_does(tmp_path: Path) -> None:
    done = run("add them", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # What a model says is no command to a terminal.
    assert done.stdout == "it is\n [31mthree\n"
    assert "turn 1: let me add" in done.stderr
    said, begun = done.stderr.find("let me add"), done.stderr.find("#1 add")
    assert 0 <= said < begun, "in the order in which it happened"
    assert "#1 add: succeeded" in done.stderr
    assert "done: the model is done · 2 turns · 3 tokens · 1 succeeded, 1 rejected" in done.stderr
    assert "spent 0.02 USD" in done.stderr
    assert marks(tmp_path) == ["add 1 2"]


def test_one_document_tells_it_all(tmp_path: Path) -> None:
    done = (
        run("-", "--json", folder=tmp_path)
        if False
        else endstop("run", AGENTS, "-", "--json", stdin="add them", SAMPLE_FOLDER=str(tmp_path))
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["agent"], found["ended"], found["outcome"]) == ("adding", "done", "succeeded")
    assert (found["turns"], found["exit"]) == (2, 0)
    assert [one["outcome"] for one in found["calls"]] == ["succeeded", "rejected"]
    assert found["messages"][0] == {"role": "user", "content": "add them"}
    assert [m["role"] for m in found["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("agent", ["waiting", "thinking"])
def test_ctrl_c_stops_the_model_as_well_as_its_calls(tmp_path: Path, agent: str) -> None:
    program = begin("go", "--agent", agent, "--json", folder=tmp_path)
    marked(tmp_path, "wait" if agent == "waiting" else "asked")
    program.send_signal(signal.SIGINT)
    code, out, err = finish(program)
    assert (code, err) == (130, "")
    found = json.loads(out)
    assert (found["ended"], found["outcome"]) == ("cancelled", "cancelled")
    assert found["turns"] == (2 if agent == "waiting" else 0)
    if agent == "waiting":
        first, second = found["calls"]
        assert (first["outcome"], second["outcome"]) == ("succeeded", "cancelled")
        assert [m["role"] for m in found["messages"]][-2:] == ["assistant", "tool"]


def test_bounded_stop_a_model_that_blocks_its_loop_is_left_behind(tmp_path: Path) -> None:
    """Law 6: Ctrl-C ends the program, whatever code somebody's own model runs."""
    program = begin("go", "--agent", "blocking", "--journal", tmp_path / "a.db", folder=tmp_path)
    marked(tmp_path, "asked")
    program.send_signal(signal.SIGINT)
    code, out, err = finish(program)
    assert (code, out) == (130, "")
    assert "the model blocks its event loop and is left behind" in err
    assert "cancelled: the run was cancelled" in err
    assert runs(tmp_path / "a.db")[0]["outcome"] == "cancelled"


def test_stop_from_another_program(tmp_path: Path) -> None:
    """It ends the run, also in the middle of the model's reply; nothing was pressed here."""
    journal = tmp_path / "a.db"
    program = begin("go", "--agent", "thinking", "--journal", journal, folder=tmp_path)
    marked(tmp_path, "asked")
    stopped = endstop("stop", "last", "--journal", journal)
    assert stopped.returncode == 0, stopped.stderr
    code, out, err = finish(program)
    assert (code, out) == (1, "")
    assert "cancelled: the run was cancelled" in err
    assert marks(tmp_path) == ["asked"]


def test_approve_from_another_program(tmp_path: Path) -> None:
    journal = tmp_path / "a.db"
    program = begin(
        "go", "--agent", "paying", "--journal", journal, "--approval-timeout", 60, folder=tmp_path
    )

    def pending() -> list[Any]:
        done = endstop("approvals", "--journal", journal, "--json")
        return list(json.loads(done.stdout)["approvals"]) if done.returncode == 0 else []

    until("a call waits for approval", lambda: journal.exists() and bool(pending()))
    done = endstop("approve", pending()[0]["call_id"], "--journal", journal)
    assert done.returncode == 0, done.stderr
    code, out, err = finish(program)
    assert (code, out) == (0, "thank you\n"), err
    assert marks(tmp_path) == ["pay 5"]


def test_say_from_another_program(tmp_path: Path) -> None:
    """It skips what has not begun, is heard next, and is no cancel; what is over hears nothing."""
    journal = tmp_path / "a.db"
    options = ("--agent", "paying", "--journal", journal, "--approval-timeout", 60, "--json")
    program = begin("go", *options, folder=tmp_path)
    until(
        "there is a run",
        lambda: journal.exists() and "pay" in endstop("approvals", "-j", journal).stdout,
    )
    said = endstop("say", "last", "rather not", "--journal", journal)
    assert said.returncode == 0, said.stderr
    assert "hears it" in said.stdout
    code, out, err = finish(program)
    assert code == 0, err
    found = json.loads(out)
    texts = [m["content"] for m in found["messages"] if m["role"] in ("user", "tool")]
    skipped = "Tool call not started: a newer request took its place."
    assert texts == ["go", skipped, "rather not"]
    assert marks(tmp_path) == []
    late = endstop("say", "last", "more", "--journal", journal)
    assert (late.returncode, late.stderr) == (1, "")
    assert "is over; nothing was said" in late.stdout


def test_yes_approves_and_no_terminal_does_not(tmp_path: Path) -> None:
    """Law 13 one-approval: silence is no consent."""
    done = run("go", "--agent", "paying", folder=tmp_path)
    assert marks(tmp_path) == []
    assert "there is no terminal to ask on" in done.stderr
    assert run("go", "--agent", "paying", "--yes", folder=tmp_path).returncode == 0
    assert marks(tmp_path) == ["pay 5"]


def test_survives_restart_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    """kill -9 in the middle of a batch: what was over is not done again, the rest is honest."""
    journal = tmp_path / "a.db"
    program = begin("go", "--agent", "waiting", "--journal", journal, folder=tmp_path)
    marked(tmp_path, "wait")
    program.kill()
    finish(program)
    waits = endstop("say", "last", "are you there?", "--later", "--journal", journal)
    assert (waits.returncode, "once somebody goes on with it" in waits.stdout) == (0, True)
    refused = endstop("resume", "last", "--tools", AGENTS, "--journal", journal)
    assert refused.returncode == 2
    assert f"endstop run {AGENTS} --resume " in refused.stderr
    done = run(
        "--resume", "last", "--agent", "waiting", "--journal", journal, "--json", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ended"], found["text"]) == ("done", "gone on with")
    assert [one["outcome"] for one in found["calls"]] == ["succeeded", "lost"]
    assert marks(tmp_path) == ["add 1 1", "wait"]
    users = [m["content"] for m in found["messages"] if m["role"] == "user"]
    assert users == ["go", "are you there?"]
    tools = [m["content"] for m in found["messages"] if m["role"] == "tool"]
    assert tools[0] == "2"
    assert tools[1].startswith("Tool call lost")
    wrong = run("--resume", "last", "--agent", "adding", "--journal", journal, folder=tmp_path)
    assert wrong.returncode == 2
    assert "is of the agent 'waiting'" in wrong.stderr
    # The agent is known by the run.
    again = run("--resume", "last", "--journal", journal, "--json", folder=tmp_path)
    assert json.loads(again.stdout)["messages"] == found["messages"]
    assert len(runs(journal)) == 1


def test_the_journal_tells_the_conversation(tmp_path: Path) -> None:
    journal = tmp_path / "a.db"
    assert run("add them", "--max-turns", 1, "-j", journal, folder=tmp_path).returncode == 1
    told = endstop("journal", journal, "last").stdout
    for words in [
        "the user says: add them",
        "the model replies with 2 calls, for 0.02 USD: let me add",
        "the agent ends: the limit of 1 turn is used up",
        "run ended: failed",
    ]:
        assert words in told
    books = json.loads(endstop("budget", "last", "-j", journal, "--json").stdout)
    assert books["money"][0]["tools"]["(outside of calls)"]["spent"] == "0.02"


def test_limits_and_failures_are_said_and_exit_with_1(tmp_path: Path) -> None:
    done = run("go", "--max-turns", 1, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "limit: the limit of 1 turn is used up" in done.stderr
    done = run("go", "--agent", "failing", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "failed: No key was given: set SAMPLE_KEY to one" in done.stderr


def test_mistakes_are_one_line_and_run_nothing(tmp_path: Path) -> None:
    tools = str(Path(__file__).with_name("sample_tools.py"))
    for arguments, words in [
        ((AGENTS,), "there is no prompt"),
        ((AGENTS, "go", "--agent", "nobody"), "has no agent named 'nobody'; there are: adding"),
        ((tools, "go"), "has no agent; declare one as"),
        ((AGENTS, "go", "--max-money", "cheap"), "money: expected an amount"),
        ((AGENTS, " "), "is empty"),
        ((AGENTS, "--resume", "last"), "no journal is named"),
        ((str(tmp_path / "none.py"), "go"), "there is no file"),
    ]:
        done = endstop("run", *arguments, SAMPLE_FOLDER=str(tmp_path))
        assert done.returncode == 2, (arguments, done.stderr)
        assert words in done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
    assert marks(tmp_path) == []
