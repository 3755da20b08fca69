"""`endstop exec` on replies in every format: what it prints, where, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import SAMPLES, TOOLS, endstop, reply

FORMATS = {
    "openai-chat": "chat_two_calls.json",
    "openai-responses": "responses_two_calls.json",
    "anthropic-messages": "anthropic_two_calls.json",
}


def ids(format: str, messages: list[dict[str, Any]]) -> list[str]:
    match format:
        case "openai-chat":
            return [message["tool_call_id"] for message in messages]
        case "openai-responses":
            return [message["call_id"] for message in messages]
        case _:
            return [block["tool_use_id"] for block in messages[0]["content"]]


ASKED = {
    "openai-chat": ["call_a1", "call_a2"],
    "openai-responses": ["call_r1", "call_r2"],
    "anthropic-messages": ["toolu_1", "toolu_2"],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("source", ["file", "standard input", "named format"])
def test_a_reply_is_answered_in_its_own_format(format: str, source: str) -> None:
    file = SAMPLES / FORMATS[format]
    if source == "standard input":
        done = endstop("exec", "-", "--tools", TOOLS, stdin=file.read_text(encoding="utf-8"))
    elif source == "named format":
        done = endstop("exec", file, "--tools", TOOLS, "--format", format)
    else:
        done = endstop("exec", file, "--tools", TOOLS)
    assert done.returncode == 0, done.stderr
    assert ids(format, json.loads(done.stdout)) == ASKED[format]
    assert f"2 calls, {format}" in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("2 succeeded")
    assert "\x1b" not in done.stderr + done.stdout


def test_what_the_model_reads_is_what_the_tools_returned() -> None:
    done = endstop("exec", SAMPLES / FORMATS["anthropic-messages"], "--tools", TOOLS)
    (message,) = json.loads(done.stdout)
    texts = [block["content"] for block in message["content"]]
    assert texts == ["sunny in Graz", "08:12 from Graz to Wien"]


def test_json_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("get_weather", {"city": "Graz"}),
        ("open_ticket", {"title": "door"}),
        ("fails", {"why": "no such\x1b[31m thing"}),
        ("get_weather", {"town": "Graz"}),
        ("square", {"number": 12}),
    )
    done = endstop("exec", asked, "--tools", TOOLS, "--json")
    assert done.returncode == 1
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert list(document) == ["run", "format", "messages", "calls", "exit"]
    assert document["exit"] == 1
    calls = document["calls"]
    assert [call["model_id"] for call in calls] == [f"call_{n}" for n in range(5)]
    told = [(call["outcome"], call["reason"], call["effect"]) for call in calls]
    assert told == [
        ("succeeded", "ok", "done"),
        ("succeeded", "ok", "done"),
        ("failed", "tool_error", "unknown"),
        ("rejected", "invalid_arguments", "none"),
        ("succeeded", "ok", "done"),
    ]
    assert calls[4]["value"] == 144
    assert calls[1]["spent"] == [{"amount": "0.04", "currency": "USD"}]
    assert calls[1]["spent_is_declared"] is True
    assert calls[0]["spent"] == []
    assert "no such" in calls[2]["error"]
    assert [message["tool_call_id"] for message in document["messages"]] == [
        f"call_{n}" for n in range(5)
    ]


def test_standard_output_belongs_to_the_answer(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("noisy", {"text": "hello"}))
    done = endstop("exec", asked, "--tools", TOOLS)
    (message,) = json.loads(done.stdout)
    assert message["content"] == "hello"
    for said in ("printed hello", "echoed hello", "written hello"):
        assert said in done.stderr


def test_plain_lines_tell_of_phases_and_show_nothing_raw(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("get_weather", {"city": "Graz"}),
        ("fails", {"why": "red\x1b[31m, \u202eturned"}),
    )
    done = endstop("exec", asked, "--tools", TOOLS)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert any(line.endswith("#1 get_weather: running") for line in lines)
    assert any("#1 get_weather: succeeded" in line for line in lines)
    assert any("#2 fails: failed (" in line for line in lines)
    assert "\x1b" not in done.stderr
    assert "\u202e" not in done.stderr
    assert "1 succeeded, 1 failed" in done.stderr


def test_the_table_says_what_was_spent(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("open_ticket", {"title": "door"}))
    done = endstop("exec", asked, "--tools", TOOLS)
    assert "0.04 USD (declared)" in done.stderr
    assert "1 succeeded · spent 0.04 USD" in done.stderr


def test_a_quiet_call_gives_a_sign_of_life(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(tmp_path / "mark")}))
    options = ("--tools", TOOLS, "--timeout", "1.6")
    done = endstop("exec", asked, *options, ENDSTOP_HEARTBEAT_S="0.5")
    beats = [line for line in done.stderr.splitlines() if "waits: still running" in line]
    assert 1 <= len(beats) <= 4
    assert "50%, half way there" in beats[-1]
    assert "timed out" in done.stderr
    assert done.returncode == 1


def test_calls_that_wait_say_for_what(tmp_path: Path) -> None:
    wait = ("waits", {"mark": str(tmp_path / "mark")})
    asked = reply(tmp_path / "reply.json", wait, wait)
    done = endstop("exec", asked, "--tools", TOOLS, "--deadline", "1.5")
    assert "#2 waits: queued (waits for tool:waits)" in done.stderr
    assert done.returncode == 1


def test_parallel_runs_one_after_the_other(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", *[("square", {"number": n}) for n in range(3)])
    done = endstop("exec", asked, "--tools", TOOLS, "--parallel", "1", "--json")
    assert [call["value"] for call in json.loads(done.stdout)["calls"]] == [0, 1, 4]


def test_the_shell_tool_is_offered_on_request(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("shell", {"command": "echo out; exit 3"}))
    done = endstop("exec", asked, "--shell", "--json")
    assert done.returncode == 0, done.stderr
    (call,) = json.loads(done.stdout)["calls"]
    assert call["value"]["exit_code"] == 3
    assert call["value"]["output"] == "out\n"


def test_a_reply_without_calls_needs_no_answer(tmp_path: Path) -> None:
    file = tmp_path / "reply.json"
    file.write_text(json.dumps({"role": "assistant", "content": "Nothing to do."}))
    done = endstop("exec", file, "--tools", TOOLS)
    assert done.returncode == 0
    assert "asks for no tool call" in done.stderr
    document = json.loads(endstop("exec", file, "--tools", TOOLS, "--json").stdout)
    assert (document["messages"], document["calls"], document["exit"]) == ([], [], 0)


def test_a_cut_off_reply_runs_nothing() -> None:
    done = endstop("exec", SAMPLES / "chat_cut_off.json", "--tools", TOOLS, "--json")
    assert done.returncode == 1
    calls = json.loads(done.stdout)["calls"]
    assert calls
    assert {call["effect"] for call in calls} == {"none"}


def test_without_a_terminal_an_approval_expires(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("pay", {"to": "ann", "amount": 3}))
    done = endstop("exec", asked, "--tools", TOOLS)
    assert done.returncode == 1
    assert "no terminal to ask on" in done.stderr
    assert "approval_expired" in done.stderr
    assert "paid" not in done.stdout


def test_yes_approves_and_is_recorded(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("pay", {"to": "ann", "amount": 3}))
    book = tmp_path / "runs.db"
    done = endstop("exec", asked, "--tools", TOOLS, "--yes", "--journal", book)
    assert done.returncode == 0, done.stderr
    assert "paid 3 to ann" in done.stdout
    assert "approval answered: approve by --yes" in endstop("journal", book, "last").stdout


def test_an_approval_timeout_is_waited_for(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("pay", {"to": "ann", "amount": 3}))
    done = endstop("exec", asked, "--tools", TOOLS, "--approval-timeout", "0.7")
    assert done.returncode == 1
    assert "awaiting approval" in done.stderr
    (settled,) = [line for line in done.stderr.splitlines() if "pay: rejected" in line]
    assert float(settled.split()[0]) >= 0.7
