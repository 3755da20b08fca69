"""`endstop resume`, `runs` and `budget`: what another program left, and what it cost."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from endstop import BlockingRuntime, Limits, ToolCall
from endstop.core import events as e
from endstop.core.terms import Contract, Effect, Outcome, Reason
from endstop.store.sqlite import SqliteJournal
from endstop.tools.money import money
from tests.cli import sample_tools
from tests.cli.program import TOOLS, endstop, marked
from tests.control.programs import driving
from tests.store.helpers import record


def test_a_run_is_resumed_once_and_what_was_over_stays(tmp_path: Path) -> None:
    """BH70, law 16: after kill -9 the run goes on, and nothing of it runs twice."""
    calls = [
        ("open_ticket", {"title": "one"}),
        ("waits", {"mark": str(tmp_path / "mark")}),
        ("pay", {"to": "ann", "amount": 1}),
        ("pay", {"to": "bob", "amount": 2}),
    ]
    with driving(tmp_path, *calls) as driver:
        driver.until(e.CallSettled, "0.0")
        marked(tmp_path / "mark")
        driver.until(e.CallStarted, "0.1")
        driver.until(e.ApprovalAsked, "0.3")
        refused = driver.ask("resume", driver.run, "--tools", TOOLS)
        assert refused.returncode == 2
        assert "is driven by a program that lives" in refused.stderr
        driver.kill()

        (listed,) = json.loads(driver.ask("runs", "--unfinished", "--json").stdout)["runs"]
        assert (listed["run"], listed["state"]) == (driver.run, "interrupted")
        assert len(listed["waiting_for_approval"]) == 2
        assert "2 waiting for approval" in driver.ask("runs").stdout

        assert driver.ask("reject", f"{driver.run}/0.3", "-m", "not now").returncode == 0
        done = driver.ask("resume", "last", "--tools", TOOLS, "--yes", "--json")
        assert done.returncode == 1, done.stderr
        document = json.loads(done.stdout)
        told = [(one["outcome"], one["reason"]) for one in document["calls"]]
        assert told == [
            ("succeeded", "ok"),
            ("lost", "driver_lost"),
            ("succeeded", "ok"),
            ("rejected", "denied_by_human"),
        ], "an answer that was given before is not undone by --yes"
        texts = [one["text"] for one in document["observations"]]
        assert texts[0] == "ticket 'one' opened"
        started = [one.event for one in driver.events() if isinstance(one.event, e.CallStarted)]
        assert len({one.call for one in started}) == len(started)

        before = driver.events()
        again = driver.ask("resume", driver.run, "--tools", TOOLS)
        assert again.returncode == 1
        assert "4 calls, 4 over" in again.stderr
        assert driver.events() == before
        assert driver.ask("runs", "--unfinished").stdout == "no run is unfinished\n"


def test_of_two_who_resume_one_drives(tmp_path: Path) -> None:
    """Law 16: two processes on one journal never both drive one run."""
    calls = [("pay", {"to": f"p{number}", "amount": number}) for number in range(4)]
    with driving(tmp_path, *calls) as driver, ThreadPoolExecutor(3) as pool:
        driver.until(e.ApprovalAsked, "0.3")
        driver.kill()

        def resume(_: int) -> subprocess.CompletedProcess[str]:
            return driver.ask("resume", driver.run, "--tools", TOOLS, "--yes", "--json")

        done = list(pool.map(resume, range(3)))
        # Whoever came while another drove was refused; whoever came later found it over.
        assert {one.returncode for one in done} <= {0, 2}, done
        assert any(one.returncode == 0 for one in done)
        refused = [one.stderr for one in done if one.returncode == 2]
        assert all("is driven by a program that lives" in words for words in refused), refused
        started = [
            one.event.call for one in driver.events() if isinstance(one.event, e.CallStarted)
        ]
        assert sorted(started) == [f"{driver.run}/0.{number}" for number in range(4)]
        resumed = [one for one in driver.events() if isinstance(one.event, e.RunResumed)]
        assert len(resumed) == 1


def test_the_books_are_in_the_journal(tmp_path: Path) -> None:
    """Law 20 paid-once: reserved, spent and saved, with the runs below."""
    journal = str(tmp_path / "runs.db")
    limits = Limits(money=(money("0.10", "USD"),), calls=5, tool_calls=(("open_ticket", 3),))
    ticket = ToolCall(model_id="", tool="open_ticket", arguments={"title": "x"})
    with (
        BlockingRuntime([sample_tools.open_ticket, sample_tools.pay], journal=journal) as runtime,
        runtime.run("r", limits=limits) as run,
    ):
        outcomes = [str(one.outcome) for one in run.execute([ticket, ticket, ticket])]
        assert outcomes == ["succeeded", "succeeded", "rejected"]
    shown = endstop("budget", "r", "--journal", journal)
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "open_ticket 0 USD 0.08 USD 0.04 USD" in lines, shown.stdout
    assert "all, in USD 0.10 USD 0 USD 0.08 USD 0.04 USD 0.02 USD" in lines
    assert "calls started: 2 of 5" in lines
    assert "open_ticket: 2 of 3" in lines
    data = json.loads(endstop("budget", "r", "--journal", journal, "--json").stdout)
    assert data["money"][0]["left"] == "0.02"


def test_the_books_hold_what_runs_below_and_what_is_reserved(tmp_path: Path) -> None:
    """Law 20: children draw on the same budget; what runs now holds what it was granted."""
    path = tmp_path / "runs.db"
    journal, cost = SqliteJournal(path), money("3", "EUR")

    def call(run: str, index: int) -> list[e.Event]:
        name = f"{run}/0.{index}"
        accepted = e.CallAccepted(
            run=run,
            call=name,
            batch=f"{run}/0",
            index=index,
            model_id="",
            tool=f"tool{index}",
            arguments={},
            contract=Contract(),
            cost=cost,
        )
        granted = e.CallGranted(run=run, call=name, reserved=cost)
        return [accepted, granted, e.CallStarted(run=run, call=name)]

    spent = e.CallSpent(run="c", call="c/0.1", money=money("1.50", "EUR"))
    ended = e.CallSettled(
        run="c",
        call="c/0.1",
        outcome=Outcome.SUCCEEDED,
        reason=Reason.OK,
        effect=Effect.DONE,
        spent=(spent.money,),
    )
    limits = Limits(money=(money("10", "EUR"),))
    batch = e.BatchOpened(run="r", batch="r/0", size=1)
    record(journal, "r", 0, e.RunOpened(run="r", limits=limits), batch, *call("r", 0))
    opened = e.RunOpened(run="c", parent_call="r/0.0", detached=True)
    batch = e.BatchOpened(run="c", batch="c/0", size=1)
    record(journal, "c", 0, opened, batch, *call("c", 1), spent, ended)
    record(journal, "r2", 0, e.RunOpened(run="r2"))
    journal.close()

    done = endstop("budget", "r", "--journal", path, "--json")
    data = json.loads(done.stdout)
    assert data["runs"] == ["r", "c"]
    (euros,) = data["money"]
    sums = {name: euros[name] for name in ("limit", "reserved", "spent", "saved", "left")}
    assert sums == {
        "limit": "10",
        "reserved": "3",
        "spent": "1.50",
        "saved": "1.50",
        "left": "5.50",
    }
    assert euros["tools"]["tool0"] == {"reserved": "3", "spent": "0", "saved": "0"}
    assert "with 1 run below it" in endstop("budget", "r", "--journal", path).stdout


def test_the_journal_of_the_configuration_is_used(tmp_path: Path) -> None:
    with driving(tmp_path, ("read_file", {"path": "a"})) as driver:
        driver.over()
    (tmp_path / "endstop.toml").write_text('journal = "runs.db"\n', encoding="utf-8")
    done = endstop("runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert driver.run in done.stdout
    assert endstop("approvals", cwd=tmp_path).stdout == "no call waits for a human\n"
    assert endstop("budget", "last", cwd=tmp_path).stdout.startswith(f"run {driver.run}\n")
