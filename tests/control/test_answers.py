"""Approvals answered from another terminal: once, by the call's own id, also after a restart."""

from __future__ import annotations

import hashlib
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from endstop import BlockingRuntime
from endstop.core import events as e
from endstop.core.terms import Outcome, Verdict
from tests.cli import sample_tools
from tests.control.programs import Driver, driving


def pay(number: int) -> tuple[str, dict[str, object]]:
    return ("pay", {"to": f"p{number}", "amount": number})


def answered(driver: Driver, call: str) -> list[e.ApprovalAnswered]:
    name = f"{driver.run}/{call}"
    return [
        one.event
        for one in driver.events()
        if isinstance(one.event, e.ApprovalAnswered) and one.event.call == name
    ]


def test_each_answer_reaches_exactly_its_call(tmp_path: Path) -> None:
    """BH41: answered in another order than asked, from other processes."""
    with driving(tmp_path, *(pay(number) for number in range(5))) as driver:
        for number in range(5):
            driver.until(e.ApprovalAsked, f"0.{number}")
        listed = json.loads(driver.ask("approvals", "--json").stdout)["approvals"]
        assert [one["arguments"]["amount"] for one in listed] == [0, 1, 2, 3, 4]
        shown = driver.ask("approvals").stdout
        assert f"{driver.run}/0.3  pay, costs 2 EUR\n  to: p3\n  amount: 3\n" in shown

        short = driver.run[:7]
        assert driver.ask("approve", f"{short}/0.1").returncode == 0
        assert driver.ask("reject", f"{short}/0.0", "-m", "not this one").returncode == 0
        edit = ("--edit", '{"to": "p9", "amount": 9}')
        assert driver.ask("approve", f"{short}/0.3", *edit).returncode == 0
        assert driver.ask("respond", f"{short}/0.2", "paid by hand").returncode == 0

        refused = driver.ask("approve", f"{short}/0.4", "--edit", '{"to": 1}')
        assert refused.returncode == 2
        assert "The arguments of `pay` are invalid" in refused.stderr
        unreadable = driver.ask("approve", f"{short}/0.4", "--edit", "[1]")
        assert unreadable.returncode == 2
        listed = json.loads(driver.ask("approvals", "--json").stdout)["approvals"]
        assert [one["call_id"] for one in listed] == [f"{driver.run}/0.4"], "it is still open"

        again = driver.ask("reject", f"{short}/0.1")
        assert again.returncode == 1
        assert "was approved by" in again.stdout
        driver.until(e.CallSettled, "0.3")
        assert driver.ask("stop", driver.run).returncode == 0
        late = driver.ask("approve", f"{short}/0.4")
        assert late.returncode == 1
        assert "is over: cancelled (cancelled by user); nothing was changed" in late.stdout

        _, document, _ = driver.over()
        told = [(one["outcome"], one["value"]) for one in document["calls"]]
        assert told[1:4] == [
            ("succeeded", "paid 1 to p1"),
            ("succeeded", "paid by hand"),
            ("succeeded", "paid 9 to p9"),
        ]
        assert [outcome for outcome, _ in (told[0], told[4])] == ["rejected", "cancelled"]


def test_a_yes_that_is_remembered_answers_what_fits(tmp_path: Path) -> None:
    """Law 13 one-approval: the rule is the human's, made of the call that was shown."""
    ann = {"to": "ann", "amount": 1}
    calls = [("pay", ann), ("pay", ann), ("pay", {**ann, "amount": 2}), pay(3)]
    with driving(tmp_path, *calls) as driver:
        for number in range(4):
            driver.until(e.ApprovalAsked, f"0.{number}")
        call = f"{driver.run}/0.0"
        for wrong in (["--for", 9], ["--remember", "--any", "--same", "to"]):
            assert driver.ask("approve", call, *wrong).returncode == 2
        refused = driver.ask("approve", call, "--remember", "--same", "whom")
        assert refused.returncode == 2
        assert "there is no argument 'whom'; there are: to, amount" in refused.stderr
        assert driver.ask("approve", call, "--remember", "--for", 0).returncode == 2
        done = driver.ask("approve", call, "--remember", "--same", "to", "--for", 600)
        assert (done.returncode, done.stdout) == (0, f"{call} is approved, and remembered\n")
        driver.until(e.CallSettled, "0.0")
        (made,) = [one.event for one in driver.events() if isinstance(one.event, e.RuleMade)]
        assert (made.rule, made.same, made.for_s) == (call, {"to": "ann"}, 600)
        assert made.by, "it is not recorded whose rule it is"
        assert driver.ask("stop", driver.run).returncode == 0
        driver.over()


def test_of_two_answers_at_once_one_wins(tmp_path: Path) -> None:
    """Law 13 one-approval: single use, whoever is faster."""
    with driving(tmp_path, pay(1)) as driver, ThreadPoolExecutor(2) as pool:
        driver.until(e.ApprovalAsked, "0.0")

        def ask(verb: str) -> subprocess.CompletedProcess[str]:
            return driver.ask(verb, f"{driver.run}/0.0")

        done = list(pool.map(ask, ["approve", "reject"]))
        assert sorted(one.returncode for one in done) == [0, 1]
        won = Verdict.APPROVE if done[0].returncode == 0 else Verdict.REJECT
        assert [one.verdict for one in answered(driver, "0.0")] == [won]
        driver.over()


def test_an_approval_outlives_its_driver_and_is_carried_out_once(tmp_path: Path) -> None:
    """BH38, BH39: approved twice, before and after the restart; it runs once."""
    with driving(tmp_path, pay(1), pay(2)) as driver:
        driver.until(e.ApprovalAsked, "0.1")
        driver.kill()
        call = f"{driver.run}/0.0"
        listed = driver.ask("approvals").stdout
        assert "nobody drives its run now" in listed
        first = driver.ask("approve", call)
        assert first.returncode == 0
        assert "once its run is resumed" in first.stdout
        second = driver.ask("reject", call)
        assert second.returncode == 1
        assert "was answered by" in second.stdout
        assert "answered by" in driver.ask("approvals").stdout
        assert answered(driver, "0.0") == [], "it is not consumed before somebody can act on it"

        with BlockingRuntime([sample_tools.pay], journal=str(driver.journal)) as runtime:
            run = runtime.resume(driver.run)
            settled = driver.until(e.CallSettled, "0.0").event
            assert isinstance(settled, e.CallSettled)
            assert (settled.outcome, settled.value) == (Outcome.SUCCEEDED, "paid 1 to p1")
            third = driver.ask("approve", call)
            assert third.returncode == 1
            assert "was approved by" in third.stdout
            assert driver.ask("reject", f"{driver.run}/0.1", "-m", "no").returncode == 0
            (batch,) = run.finish()
        assert [result.outcome for result in batch] == [Outcome.SUCCEEDED, Outcome.REJECTED]
        started = [one for one in driver.events() if isinstance(one.event, e.CallStarted)]
        assert len(started) == 1


def test_a_wedged_driver_does_not_take_an_old_answer_when_it_goes_on(tmp_path: Path) -> None:
    with driving(tmp_path, pay(1)) as driver:
        driver.until(e.ApprovalAsked, "0.0")
        driver.freeze()
        done = driver.ask("approve", f"{driver.run}/0.0")
        assert done.returncode == 2
        assert "did not answer within 2 s; the answer is withdrawn" in done.stderr
        driver.thaw()
        assert driver.ask("stop", driver.run).returncode == 0
        assert answered(driver, "0.0") == []
        driver.over()


def test_what_asks_nothing_is_not_answered(tmp_path: Path) -> None:
    with driving(tmp_path, ("read_file", {"path": "a"}), pay(1)) as driver:
        driver.until(e.ApprovalAsked, "0.1")
        done = driver.ask("approve", f"{driver.run}/0.0")
        assert done.returncode == 2
        assert "does not wait for approval" in done.stderr
        done = driver.ask("approve", f"{driver.run}/0.9")
        assert done.returncode == 2
        assert "is no call of run" in done.stderr


def test_a_running_body_is_answered_from_another_terminal(tmp_path: Path) -> None:
    with driving(tmp_path, ("greet", {}), ("log_in", {})) as driver:
        question = driver.until(e.QuestionAsked, "0.0").event
        assert isinstance(question, e.QuestionAsked)
        driver.until(e.QuestionAsked, "0.1")
        listed = json.loads(driver.ask("approvals", "--json").stdout)["questions"]
        assert [(one["text"], one["secret"]) for one in listed] == [
            ("Whom?", False),
            ("Password?", True),
        ]
        shown = driver.ask("approvals").stdout
        assert "greet asks\n  Whom?\n  one of: ann, bob\n" in shown
        assert "the answer is a secret" in shown

        refused = driver.ask("respond", f"{driver.run}/0.0", "eve")
        assert refused.returncode == 2
        assert "can be answered with one of: 'ann', 'bob'" in refused.stderr
        assert driver.ask("respond", question.question, "ann").returncode == 0
        late = driver.ask("respond", question.question, "bob")
        assert late.returncode == 1

        open_secret = driver.ask("respond", f"{driver.run}/0.1", "hunter2")
        assert open_secret.returncode == 2
        assert "leave TEXT out, and type it" in open_secret.stderr
        secret = "correct horse battery staple"
        done = driver.ask("respond", f"{driver.run}/0.1", stdin=f"{secret}\n")
        assert done.returncode == 0, done.stderr

        code, document, said = driver.over()
        assert code == 0
        values = [one["value"] for one in document["calls"]]
        assert values == ["hello ann", hashlib.sha256(secret.encode()).hexdigest()]
        assert secret not in said
        for file in tmp_path.glob("runs.db*"):
            assert secret.encode() not in file.read_bytes(), file.name
