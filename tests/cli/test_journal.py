"""`endstop journal`: what happened, told honestly, also of a program that was killed."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

from tests.cli.program import TOOLS, endstop, gone, marked, reply, start, until


def test_a_run_is_listed_and_told(tmp_path: Path) -> None:
    asked = reply(
        tmp_path / "reply.json",
        ("get_weather", {"city": "Graz"}),
        ("open_ticket", {"title": "door"}),
        ("fails", {"why": "broken"}),
    )
    book = tmp_path / "runs.db"
    run = json.loads(endstop("exec", asked, "--tools", TOOLS, "--journal", book, "--json").stdout)
    listed = endstop("journal", book)
    assert listed.returncode == 0, listed.stderr
    assert run["run"] in listed.stdout
    assert "2 succeeded, 1 failed" in listed.stdout
    assert "0.04 USD" in listed.stdout
    told = endstop("journal", book, run["run"][:6])
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    order = ["run opened", "batch", "accepted: title=door, costs 0.04 USD", "started", "run ended"]
    places = [next(n for n, line in enumerate(lines) if word in line) for word in order]
    assert places == sorted(places)
    assert "failed (tool error), effect unknown" in told.stdout


def test_the_journal_as_json(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    book = tmp_path / "runs.db"
    run = json.loads(endstop("exec", asked, "--tools", TOOLS, "--journal", book, "--json").stdout)
    (listed,) = json.loads(endstop("journal", book, "--json").stdout)["runs"]
    assert (listed["run"], listed["state"]) == (run["run"], "ended")
    assert listed["calls"] == {"succeeded": 1}
    told = json.loads(endstop("journal", book, "last", "--json").stdout)
    assert [event["seq"] for event in told["events"]] == list(range(1, len(told["events"]) + 1))
    assert told["events"][0]["event"] == "run_opened"
    assert told["events"][-1]["event"] == "run_ended"
    assert told["calls"][0]["outcome"] == "succeeded"


def test_a_killed_program_leaves_an_honest_journal(tmp_path: Path) -> None:
    mark, book = tmp_path / "mark", tmp_path / "runs.db"
    wait = ("waits", {"mark": str(mark)})
    pay = ("pay", {"to": "ann", "amount": 3})
    asked = reply(tmp_path / "reply.json", wait, pay, ("get_weather", {"city": "Graz"}), wait)
    options = ("--tools", TOOLS, "--journal", book)
    program = start("exec", asked, *options, "--approval-timeout", "3600")
    marked(mark)

    def settled() -> bool:
        if not book.exists():
            return False
        (run,) = json.loads(endstop("journal", book, "--json").stdout)["runs"]
        return run["calls"] == {"succeeded": 1}

    until("the weather to be told", settled)
    live = endstop("journal", book)
    assert f"running, driven by pid {program.pid}" in live.stdout
    assert "running now" in endstop("journal", book, "last").stdout
    # Looking has changed nothing: the driver still owns its run, and is killed in the middle.
    program.send_signal(signal.SIGKILL)
    program.communicate()

    listed = endstop("journal", book).stdout
    assert "interrupted: its driver is gone" in listed
    told = endstop("journal", book, "last").stdout
    assert "started, no ending recorded: outcome unknown" in told
    assert told.count("not started: safe to resume") == 2
    calls = json.loads(endstop("journal", book, "last", "--json").stdout)["calls"]
    assert [call["outcome"] for call in calls] == [None, None, "succeeded", None]

    # The next program on this journal settles what may have begun, and says so.
    again = reply(tmp_path / "again.json", ("get_weather", {"city": "Wien"}))
    done = endstop("exec", again, *options)
    assert done.returncode == 0, done.stderr
    assert "1 call settled as lost, effect unknown for 1" in done.stderr
    runs = json.loads(endstop("journal", book, "--json").stdout)["runs"]
    assert [run["state"] for run in runs] == ["interrupted", "ended"]
    assert runs[0]["calls"] == {"lost": 1, "succeeded": 1}
    told = endstop("journal", book, runs[0]["run"]).stdout
    assert "lost (driver lost), effect unknown" in told
    assert told.count("not started: safe to resume") == 2

    # A third one finds nothing new to settle.
    third = endstop("exec", again, *options)
    assert "settled as lost" not in third.stderr
    events = json.loads(endstop("journal", book, runs[0]["run"], "--json").stdout)["events"]
    assert [event["event"] for event in events].count("run_interrupted") == 1


def test_a_killed_process_tool_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    asked = reply(tmp_path / "reply.json", ("deaf_process", {"mark": str(mark)}))
    program = start("exec", asked, "--tools", TOOLS)
    body, child = marked(mark), marked(tmp_path / "mark.child")
    program.send_signal(signal.SIGKILL)
    program.communicate()
    until("the tool's processes to be gone", lambda: gone(body) and gone(child))


def test_looking_changes_no_byte(tmp_path: Path) -> None:
    asked = reply(tmp_path / "reply.json", ("get_weather", {"city": "Graz"}))
    book = tmp_path / "runs.db"
    endstop("exec", asked, "--tools", TOOLS, "--journal", book)
    before = book.read_bytes()
    endstop("journal", book)
    endstop("journal", book, "last")
    assert book.read_bytes() == before


def test_a_run_that_another_program_takes_over_is_not_claimed(tmp_path: Path) -> None:
    mark, book = tmp_path / "mark", tmp_path / "runs.db"
    asked = reply(tmp_path / "reply.json", ("waits", {"mark": str(mark)}))
    program = start("exec", asked, "--tools", TOOLS, "--journal", book, "--json")
    marked(mark)
    with sqlite3.connect(book, isolation_level=None) as connection:
        # As a driver that came in between would: the next number of the run is taken.
        (run,) = connection.execute("SELECT run FROM runs").fetchone()
        connection.execute(
            "INSERT INTO events (run, seq, at_s, kind, call, body) "
            "SELECT run, max(seq) + 1, at_s, 'run_closing', NULL, '{}' FROM events WHERE run = ?",
            (run,),
        )
    connection.close()
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 3
    document = json.loads(out)
    assert document["exit"] == 3
    assert document["calls"] == []
    assert "another driver wrote to it first" in document["error"]
    assert "another driver wrote to it first" in err
    assert "Traceback" not in err
