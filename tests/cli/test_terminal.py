"""`endstop exec` on a terminal: the live table, the question to the human, Ctrl-C from the keys."""

from __future__ import annotations

from pathlib import Path

from tests.cli.program import TOOLS, Terminal, marked, reply


def test_the_live_view_and_ctrl_c(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("waits", {"mark": str(tmp_path / "mark")}),
        ("get_weather", {"city": "Graz"}),
    )
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS)
    terminal.expect("half way there")
    terminal.expect("succeeded")
    terminal.expect("Ctrl-C stops the run")
    terminal.type("\x03")
    terminal.expect("Ctrl-C: stopping 1 call")
    terminal.expect("stopped by Ctrl-C · 1 succeeded, 1 cancelled")
    assert terminal.end() == 130
    assert [message["tool_call_id"] for message in terminal.answer()] == ["call_0", "call_1"]


def test_a_narrow_terminal_leaves_nothing_out(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("stubborn", {"mark": str(tmp_path / "mark")}),
        ("nothing", {}),
    )
    options = ("--tools", TOOLS, "--timeout", "0.5")
    terminal = Terminal(tmp_path / "out", "exec", asked, *options, columns=60)
    terminal.expect("could not be stopped and may still be running")
    terminal.expect("never started; there is no tool named 'nothing'")
    assert terminal.end() == 1


def test_a_human_approves_while_other_calls_go_on(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("pay", {"to": "ann", "amount": 3}),
        ("get_weather", {"city": "Graz"}),
    )
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS)
    terminal.expect("may this call run?")
    terminal.expect("costs 2 EUR")
    terminal.expect("succeeded")
    # A letter alone is no consent.
    terminal.type("a")
    terminal.expect("Enter to approve")
    assert not terminal.echoes()
    terminal.type("\r")
    terminal.expect("what happened")
    assert terminal.echoes(), "the terminal was not given back"
    terminal.expect("2 succeeded · spent 2 EUR")
    assert terminal.end() == 0
    assert terminal.answer()[0]["content"] == "paid 3 to ann"


def test_a_human_edits_rejects_and_answers(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("pay", {"to": "ann", "amount": 3}),
        ("pay", {"to": "bob", "amount": 4}),
        ("pay", {"to": "cem", "amount": 5}),
    )
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS)
    terminal.expect("2 more waiting")
    terminal.expect("to: ann")
    terminal.type("e")
    terminal.expect("the arguments as JSON")
    terminal.type("\x15[1]\r")
    terminal.expect("object")
    terminal.type('\x15{"to": "ann", "amount": 30}\x1b[D\x7f1\r')
    terminal.expect("to: bob")
    terminal.type("r")
    terminal.expect("reason for the model")
    terminal.type("not to bob\r")
    terminal.expect("to: cem")
    terminal.type("w")
    terminal.expect("the result that the model shall read")
    terminal.type("paid in cash\r")
    terminal.expect("what happened")
    assert terminal.end() == 1
    edited, rejected, written = [message["content"] for message in terminal.answer()]
    assert edited == "paid 31 to ann"
    assert "a human denied it" in rejected
    assert "not to bob" in rejected
    assert "paid in cash" in written


def test_a_question_is_withdrawn_by_a_stop(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("pay", {"to": "ann", "amount": 3}),
        ("stubborn", {"mark": str(tmp_path / "mark")}),
    )
    terminal = Terminal(tmp_path / "out", "exec", asked, "--tools", TOOLS)
    terminal.expect("may this call run?")
    terminal.type("a")
    terminal.expect("Enter to approve")
    marked(tmp_path / "mark")
    terminal.type("\x03")
    terminal.expect("Ctrl-C: stopping")
    # Too late: the call is void, and Enter is no answer to anything.
    terminal.type("\r")
    terminal.expect("stopped by Ctrl-C · 2 cancelled")
    assert terminal.end() == 130
    assert terminal.answer()[0]["content"] == "Tool call cancelled by interrupt."


def test_what_was_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("pay", {"to": "ann", "amount": 3}))
    options = ("--tools", TOOLS, "--approval-timeout", "1.5")
    terminal = Terminal(tmp_path / "out", "exec", asked, *options)
    terminal.type("a\ra\r")
    terminal.expect("may this call run?")
    terminal.expect("1 rejected")
    assert terminal.end() == 1


def test_an_agent_speaks_asks_and_answers(tmp_path: Path) -> None:
    """What it says is shown while it says it, its calls are approved by keys, and given back."""
    agents = str(Path(__file__).with_name("sample_agents.py"))
    options = ("--agent", "paying")
    folder = {"SAMPLE_FOLDER": str(tmp_path)}
    terminal = Terminal(tmp_path / "out", "run", agents, "go", *options, **folder)
    terminal.expect("agent paying, scripted")
    terminal.expect("may this call run?")
    terminal.type("a")
    terminal.expect("Enter to approve")
    terminal.type("\r")
    terminal.expect("done: the model is done · 2 turns · 1 succeeded")
    assert terminal.end() == 0
    assert (tmp_path / "out").read_text() == "thank you\n"
    assert (tmp_path / "marks").read_text() == "pay 5\n"


def test_ctrl_c_while_an_agent_thinks(tmp_path: Path) -> None:
    agents = str(Path(__file__).with_name("sample_agents.py"))
    options = ("--agent", "thinking")
    folder = {"SAMPLE_FOLDER": str(tmp_path)}
    terminal = Terminal(tmp_path / "out", "run", agents, "go", *options, **folder)
    terminal.expect("turn 1 · scripted")
    terminal.expect("a very long thought")
    terminal.type("\x03")
    terminal.expect("stopped by Ctrl-C · cancelled: the run was cancelled · 0 turns")
    assert terminal.end() == 130
    assert (tmp_path / "out").read_text() == ""
