"""Remembered approvals, listed and revoked from another terminal (law 13 one-approval)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from endstop import BlockingRuntime, HookCall, Remember, RunSuspended, ToolCall, tool
from endstop.core import events as e
from endstop.store.sqlite import SqliteJournal
from tests.cli.program import endstop
from tests.control.programs import driving
from tests.driving import quick, until


def test_a_rule_is_listed_and_revoked_while_its_run_goes_on(tmp_path: Path) -> None:
    pay: tuple[str, dict[str, Any]] = ("pay", {"to": "ann", "amount": 1})
    with driving(tmp_path, pay, pay) as driver:
        driver.until(e.ApprovalAsked, "0.1")
        assert driver.ask("rules").stdout == "no approval is remembered\n"
        call = f"{driver.run}/0.0"
        assert driver.ask("revoke", call).returncode == 2, "nothing is remembered yet"
        terms = ("--remember", "--same", "to", "--for", 600)
        assert driver.ask("approve", call, *terms).returncode == 0
        driver.until(e.RuleMade)
        shown = driver.ask("rules").stdout
        assert f"{call}  pay needs no approval\n  where to: ann\n" in shown
        (listed,) = json.loads(driver.ask("rules", "--json").stdout)["rules"]
        assert (listed["rule_id"], listed["tool"], listed["same"]) == (call, "pay", {"to": "ann"})
        assert 0 < listed["expires_in_s"] <= 600
        done = driver.ask("revoke", f"{driver.run[:7]}/0.0")
        assert (done.returncode, done.stdout) == (0, f"{call} is revoked\n")
        (gone,) = [one.event for one in driver.events() if isinstance(one.event, e.RuleRevoked)]
        assert gone.rule == call
        assert gone.by, "it is not recorded who revoked it"
        assert driver.ask("rules").stdout == "no approval is remembered\n"
        again = driver.ask("revoke", call)
        assert again.returncode == 1
        assert "was revoked by" in again.stdout
        assert driver.ask("revoke", f"{driver.run}/0.1").returncode == 2
        assert driver.ask("stop", driver.run).returncode == 0
        driver.over()


def test_a_rule_that_was_revoked_while_nobody_drove_its_run_lets_nothing_through(
    tmp_path: Path,
) -> None:
    """The second call was being prepared: it would pass by the rule, if that came too late."""
    ran: list[int] = []
    blocked, preparing = threading.Event(), threading.Event()

    @tool(approval="always", resources=[])
    def pay(amount: int) -> int:
        """Pays."""
        ran.append(amount)
        return amount

    def hook(call: HookCall) -> None:
        if call.call_id == "r/1.0" and not blocked.is_set():
            preparing.set()
            blocked.wait(20)

    calls = [ToolCall(model_id="1", tool="pay", arguments={"amount": 1})]
    path = tmp_path / "runs.db"
    with BlockingRuntime([pay], journal=f"sqlite:{path}", before=[hook], config=quick()) as rt:
        run = rt.run("r")
        first = threading.Thread(target=lambda: run.execute(calls))
        first.start()
        until(lambda: bool(rt.pending()))
        assert rt.approve("r/0.0", remember=Remember())
        first.join(20)
        second = threading.Thread(target=lambda: _suspended(run, calls))
        second.start()
        assert preparing.wait(20)
        assert rt.suspend("r")
        second.join(20)
        blocked.set()
        done = endstop("revoke", "r/0.0", "--journal", path)
        assert done.returncode == 0, done.stderr
        assert "is revoked once its run is resumed: nobody drives r now" in done.stdout
        assert "revoked once the run is resumed" in endstop("rules", "--journal", path).stdout
        assert endstop("revoke", "r/0.0", "--journal", path).returncode == 1
        resumed = rt.resume("r")
        until(lambda: bool(rt.pending()))
        assert rt.rules() == []
        assert ran == [1]
        rt.reject("r/1.0")
        assert [one.outcome for batch in resumed.finish() for one in batch] == [
            "succeeded",
            "rejected",
        ]
    journal = SqliteJournal(path, readonly=True)
    kinds = [type(one.event) for one in journal.read("r")]
    journal.close()
    assert kinds.index(e.RuleRevoked) > kinds.index(e.RunResumed)
    assert kinds.count(e.ApprovalAsked) == 2


def _suspended(run: Any, calls: list[ToolCall]) -> None:
    try:
        run.execute(calls)
    except RunSuspended:
        return
    raise AssertionError("the run was let go")
