"""Remembered approvals: what they let through, what not, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from endstop import Approve, CallerError, Remember, tool
from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.terms import ApprovalTerms, RuleTerms, Verdict
from tests.driving import OK, Guest, House, Street, call, endings
from tests.recovery.crashing import Resumed, crashed, recorded
from tests.stories import Story, asked, begin


@tool(resources=(), approval="always")
def pay(to: str, amount: Any) -> str:
    """Pay somebody."""
    return f"{amount} to {to}"


@tool(resources=(), approval="always")
def spend(to: str, amount: Any) -> str:
    """The same under another name."""
    return pay.fn(to, amount)


def open_house(street: Street, kind: str, **options: Any) -> House:
    return street.open(kind, [pay, spend], **options)


def approve_one(house: House, run: Guest, remember: Remember) -> None:
    """Pay the baker 3, and let a human say what is remembered of it."""
    going = run.begin([call("pay", to="baker", amount=3)])
    asked = house.watch.wait(e.ApprovalAsked)
    assert house.rt.approve(asked.call, by="anna", remember=remember)
    assert endings(going.result()) == [OK]


def waits(house: House, run: Guest, name: str, **arguments: Any) -> bool:
    """Whether a call needs an answer; it is then refused."""
    before = len(house.watch.told(e.ApprovalAsked))
    going = run.begin([call(name, **arguments)])
    asked = house.watch.wait(e.ApprovalAsked, count=before + 1)
    if any(p.call_id == asked.call for p in house.rt.pending()):
        assert house.rt.reject(asked.call)
        going.result()
        return True
    assert endings(going.result()) == [OK]
    answered = house.watch.wait(e.ApprovalAnswered, asked.call)
    assert answered.rule == "r/0.0"
    return False


def test_a_rule_lets_the_same_call_pass_and_is_on_the_record(street: Street, kind: str) -> None:
    house = open_house(street, kind)
    run = house.run("r")
    approve_one(house, run, Remember())
    (rule,) = house.rt.rules()
    assert (rule.rule_id, rule.run_id, rule.tool, rule.by) == ("r/0.0", "r", "pay", "anna")
    assert (rule.same, rule.expires_in_s) == ({"to": "baker", "amount": 3}, None)
    assert not waits(house, run, "pay", to="baker", amount=3)
    answered = house.watch.told(e.ApprovalAnswered)[-1]
    assert (answered.rule, answered.by) == ("r/0.0", "anna")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pay", {"to": "baker", "amount": 4}),
        ("pay", {"to": "baker", "amount": 3.0}),
        ("pay", {"to": "baker", "amount": True}),
        ("pay", {"to": "stranger", "amount": 3}),
        ("spend", {"to": "baker", "amount": 3}),
    ],
)
def test_BH40_whatever_differs_is_asked_about(
    street: Street, kind: str, name: str, arguments: dict[str, Any]
) -> None:
    house = open_house(street, kind)
    run = house.run("r")
    approve_one(house, run, Remember())
    assert waits(house, run, name, **arguments)


def test_only_the_named_arguments_count(street: Street, kind: str) -> None:
    house = open_house(street, kind)
    run = house.run("r")
    approve_one(house, run, Remember(same=["to"]))
    assert not waits(house, run, "pay", to="baker", amount=1_000)
    assert waits(house, run, "pay", to="stranger", amount=3)


def test_a_rule_ends_with_its_run_and_is_no_other_run_s(street: Street, kind: str) -> None:
    house = open_house(street, kind)
    run, other = house.run("r"), house.run("other")
    approve_one(house, run, Remember())
    assert waits(house, other, "pay", to="baker", amount=3)
    run.close()
    house.watch.wait(e.RunEnded)
    assert house.rt.rules() == []
    assert not house.rt.revoke("r/0.0")


def test_a_revoked_rule_answers_nothing(street: Street, kind: str) -> None:
    house = open_house(street, kind)
    run = house.run("r")
    approve_one(house, run, Remember())
    assert house.rt.revoke("r/0.0", by="anna")
    assert not house.rt.revoke("r/0.0")
    assert house.rt.rules() == []
    assert waits(house, run, "pay", to="baker", amount=3)


def test_a_handler_s_yes_may_be_remembered(street: Street, kind: str) -> None:
    asked: list[str] = []

    def handler(pending: Any) -> Approve:
        asked.append(pending.call_id)
        return Approve(remember=Remember())

    house = open_house(street, kind, approve=handler)
    run = house.run("r")
    for _ in range(3):
        assert endings(run.execute([call("pay", to="baker", amount=3)])) == [OK]
    assert asked == ["r/0.0"]


@pytest.mark.parametrize(
    ("remember", "words"),
    [
        (Remember(same="to"), "list of names"),
        (Remember(same=["whom"]), "no argument 'whom'"),
        (Remember(for_s=0), "for_s"),
        (Remember(for_s=float("nan")), "for_s"),
    ],
)
def test_odd_rules_are_refused_and_the_call_waits(
    street: Street, kind: str, remember: Remember, words: str
) -> None:
    house = open_house(street, kind)
    going = house.run("r").begin([call("pay", to="baker", amount=3)])
    house.watch.wait(e.ApprovalAsked)
    with pytest.raises(CallerError, match=words):
        house.rt.approve("r/0.0", remember=remember)
    assert house.rt.approve("r/0.0")
    assert endings(going.result()) == [OK]


def test_BH38_a_rule_holds_again_after_a_restart(street: Street, kind: str) -> None:
    first = open_house(street, kind)
    run = first.run("r")
    approve_one(first, run, Remember(for_s=60.0))
    journal = crashed(recorded(first))
    house = open_house(street, kind, journal=journal)
    resumed = Resumed(house)
    (rule,) = house.rt.rules()
    assert rule.rule_id == "r/0.0"
    assert rule.expires_in_s is not None
    assert rule.expires_in_s < 60.0
    again = Guest(house, resumed.run)
    assert not waits(house, again, "pay", to="baker", amount=3)


# -- the core alone


def prepared(name: str, amount: int = 1) -> i.Prepared:
    terms = ApprovalTerms(digest="d")
    return i.Prepared(call=name, arguments={"amount": amount}, claims=(), approval=terms)


def test_a_rule_expires() -> None:
    story = Story()
    story.say(*begin(*(asked(ready=False) for _ in range(3))))
    story.say(prepared("r/0.0"))
    terms = RuleTerms(same={"amount": 1}, for_s=5.0)
    story.say(i.Answered(call="r/0.0", digest="d", verdict=Verdict.APPROVE, remember=terms))
    story.at(4.9)
    story.say(prepared("r/0.1"))
    assert story.call("r/0.1").approval is None
    story.at(5.0)
    story.say(prepared("r/0.2"))
    assert story.call("r/0.2").approval == "d"


def test_a_rule_holds_in_the_runs_below_and_not_in_detached_ones() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)))
    story.say(prepared("r/0.0"))
    terms = RuleTerms(same={"amount": 1})
    story.say(i.Answered(call="r/0.0", digest="d", verdict=Verdict.APPROVE, remember=terms))
    story.say(i.Claimed(call="r/0.0"))
    for name, detached in (("below", False), ("apart", True)):
        story.say(i.OpenRun(run=name, parent_call="r/0.0", detached=detached))
        story.say(i.SubmitBatch(run=name, calls=(asked(ready=False),)))
        story.say(prepared(f"{name}/0.0"))
    assert story.call("below/0.0").approval is None
    assert story.call("apart/0.0").approval == "d"


def test_a_void_answer_leaves_no_rule() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)))
    story.say(prepared("r/0.0"), i.Cancel(target="r/0.0"))
    terms = RuleTerms(same={})
    story.say(i.Answered(call="r/0.0", digest="d", verdict=Verdict.APPROVE, remember=terms))
    assert story.state.rules == {}
