"""What bodies ask, on the terminal of `endstop exec` and where there is none."""

from __future__ import annotations

from pathlib import Path

from tests.cli.program import TOOLS, Terminal, endstop, reply


def test_a_human_answers_at_the_terminal(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("asks", {}))
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS)
    terminal.expect("Which one?")
    terminal.expect("one of: this, that")
    terminal.type("neither\r")
    terminal.expect("can be answered with one of")
    terminal.type("that\r")
    terminal.expect("The password, please")
    terminal.type("hunter2\r")
    terminal.expect("what happened")
    assert terminal.echoes(), "the terminal was not given back"
    terminal.expect("1 succeeded")
    assert terminal.end() == 0
    assert terminal.answer()[0]["content"] == "that, 7 letters"


def test_yes_answers_no_question_of_a_body(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("pay", {"to": "ann", "amount": 3}), ("asks", {}))
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS, "--yes")
    terminal.expect("Which one?")
    terminal.type("this\r")
    terminal.expect("The password, please")
    terminal.type("\r")
    terminal.expect("2 succeeded")
    assert terminal.end() == 0
    assert terminal.answer()[1]["content"] == "this, 0 letters"


def test_a_stop_withdraws_what_a_body_asks(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("asks", {}))
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS)
    terminal.expect("Which one?")
    terminal.type("this\x03")
    terminal.expect("stopped by Ctrl-C · 1 cancelled")
    assert terminal.end() == 130


def test_a_password_prompt_of_a_command(tmp_path: Path) -> None:
    command = "read -s -p 'Password for the door: ' word; echo; echo \"${#word} letters\""
    asked = reply(tmp_path / "reply.json", ("shell", {"command": command, "pty": True}))
    terminal = Terminal(tmp_path / "out", "exec", asked, "--shell")
    terminal.expect("Password for the door:")
    terminal.expect("which is not shown")
    terminal.type("hunter2\r")
    terminal.expect("1 succeeded")
    assert b"hunter2" not in terminal.shown
    assert terminal.end() == 0
    content = terminal.answer()[0]["content"]
    assert "7 letters" in content
    assert "hunter2" not in content


def test_without_a_terminal_nobody_is_waited_for(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("asks", {}))
    done = endstop("exec", asked, "--tools", TOOLS, "--journal", "memory")
    assert done.returncode == 1
    assert "asks a human, and there is no terminal to ask on" in done.stderr
