"""Public reports about approvals: lost, misdirected, used twice, or for something else."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from endstop import Context, HookCall, Reason, Rewrite, tool
from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.recovery import Unfinished
from endstop.core.terms import ApprovalTerms
from tests.cases import bodies
from tests.driving import OK, UNSTARTED, House, Street, call, endings, until
from tests.stories import Story, asked, begin

DENIED = ("rejected", "denied_by_human", "none")


def gate_of(street: Street, kind: str, ran: list[str], **options: Any) -> House:
    """A runtime with one gated tool and one that is not."""

    @tool(resources=(), approval="always")
    def gated(name: str) -> str:
        ran.append(name)
        return name

    @tool(resources=())
    def free(name: str) -> str:
        ran.append(name)
        return name

    return street.open(kind, [gated, free], **options)


def test_BH37_pending_denied_and_withdrawn_are_three_things(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    run = house.run("r")
    going = run.begin([call("gated", name=n) for n in ("a", "b")])
    house.watch.wait(e.ApprovalAsked, count=2)
    # The end of whoever waited for a slice of time changes nothing: it stays, under its id.
    assert [p.call_id for p in house.rt.pending()] == ["r/0.0", "r/0.1"]
    assert house.rt.reject("r/0.0", "no", by="anna")
    run.cancel()
    assert endings(going.result(6.0)) == [DENIED, UNSTARTED]
    answered = house.watch.told(e.ApprovalAnswered)
    assert [(x.call, str(x.verdict), x.by) for x in answered] == [("r/0.0", "reject", "anna")]


def test_BH37_expiry_is_its_own_reason() -> None:
    story = Story()
    story.say(*begin(asked(ready=False)))
    terms = ApprovalTerms(digest="d", expires_s=5.0)
    story.say(i.Prepared(call="r/0.0", arguments={}, claims=(), approval=terms))
    story.at(4.9)
    assert story.call("r/0.0").approval == "d"
    story.at(5.1)
    ending = story.ending("r/0.0")
    assert (str(ending.outcome), ending.reason) == ("rejected", Reason.APPROVAL_EXPIRED)
    assert not story.told(e.ApprovalAnswered), "silence was recorded as a human's no"
    assert story.say(i.Answered(call="r/0.0", digest="d", verdict="approve")) == []


def test_BH39_an_approval_is_usable_or_the_call_says_that_it_failed_to_start(
    street: Street, kind: str
) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    worker = house.rt.engine.workers[house.rt.tools["gated"].declared.isolation]
    start = worker.start

    def broken(job: Any) -> None:
        house.rt.engine.tell(i.StartFailed(call=job.call, message="no worker could be had"))

    worker.start = broken
    going = house.run("r").begin([call("gated", name="a")])
    house.watch.wait(e.ApprovalAsked)
    assert house.rt.approve("r/0.0")
    (result,) = going.result(6.0)
    worker.start = start
    assert endings([result]) == [("rejected", "start_failed", "none")]
    assert "no worker could be had" in result.text
    # The answer was that call's own: the next one asks again.
    going = house.run("s").begin([call("gated", name="a")])
    house.watch.wait(e.ApprovalAsked, "s/0.0")
    assert ran == []
    assert not house.rt.approve("r/0.0"), "an answer was taken twice"
    assert house.rt.approve("s/0.0")
    assert endings(going.result()) == [OK]


def test_BH39_an_answer_in_the_instant_of_giving_up(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    for number in range(60):
        run = house.run(f"r{number}")
        going = run.begin([call("gated", name=run.id)])
        house.watch.wait(e.ApprovalAsked, f"r{number}/0.0")
        meet = threading.Barrier(2)
        took: list[bool] = []

        def answer(name: str = f"r{number}/0.0", meet: Any = meet, took: Any = took) -> None:
            meet.wait(5)
            took.append(house.rt.approve(name))

        thread = threading.Thread(target=answer)
        thread.start()
        meet.wait(5)
        run.cancel()
        thread.join(5)
        (result,) = going.result(5.0)
        if not took[0]:
            assert endings([result]) == [UNSTARTED]
        assert (run.id in ran) == result.ok
        assert house.rt.pending() == []
    nxt = house.run("next").begin([call("gated", name="next")])
    house.watch.wait(e.ApprovalAsked, "next/0.0")
    assert "next" not in ran, "an old answer authorised another call"
    house.rt.reject("next/0.0")
    assert endings(nxt.result()) == [DENIED]


@pytest.mark.parametrize("by", ["return", "in-place"])
def test_BH40_a_hook_s_arguments_are_what_is_asked_about(
    street: Street, kind: str, by: str
) -> None:
    got: list[int] = []

    def hook(seen: HookCall) -> Any:
        if by == "return":
            return Rewrite({"n": 1000})
        seen.arguments["n"] = 1000
        return None

    @tool(resources=(), approval="always")
    def pay(n: int) -> int:
        got.append(n)
        return n

    house = street.open(kind, [pay], before=[hook])
    going = house.run("r").begin([call("pay", n=1)])
    house.watch.wait(e.ApprovalAsked)
    (pending,) = house.rt.pending()
    assert house.rt.approve("r/0.0")
    assert endings(going.result()) == [OK]
    assert got == [pending.arguments["n"]], "what ran is not what was approved"
    assert got == [1000 if by == "return" else 1]


@pytest.mark.parametrize("where", ["thread", "process"])
def test_BH40_the_caller_s_own_object_changes_nothing_after_the_approval(
    street: Street, kind: str, where: str
) -> None:
    got: list[Any] = []

    @tool(name="count", resources=(), approval="always")
    def count(n: dict[str, Any]) -> Any:
        got.append(n)
        return n

    house = street.open(kind, [count if where == "thread" else bodies.count])
    inner = {"amount": 1}
    mine = call("count", n=inner)
    going = house.run("r").begin([mine])
    house.watch.wait(e.ApprovalAsked)
    (pending,) = house.rt.pending()
    shown = dict(pending.arguments["n"])
    inner["amount"] = 1000
    assert mine.arguments is not None
    mine.arguments["n"] = {"amount": 1_000_000}
    pending.arguments["n"] = {"amount": 9}
    assert house.rt.approve("r/0.0")
    (result,) = going.result(15.0)
    assert shown == {"amount": 1}
    assert result.value == {"amount": 1}, "what ran is not what was approved"


def test_BH40_an_edit_runs_what_the_human_wrote(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    going = house.run("r").begin([call("gated", name="rm -rf /")])
    house.watch.wait(e.ApprovalAsked)
    assert house.rt.edit("r/0.0", {"name": "ls"})
    (result,) = going.result()
    assert ran == ["ls"]
    assert result.arguments == {"name": "ls"}


def test_BH40_one_resume_does_not_open_the_gate_for_others(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    goings = [house.run(name).begin([call("gated", name=name)]) for name in ("a", "b")]
    house.watch.wait(e.ApprovalAsked, count=2)
    assert house.rt.approve("a/0.0")
    assert endings(goings[0].result()) == [OK]
    assert ran == ["a"]
    assert [p.call_id for p in house.rt.pending()] == ["b/0.0"]
    assert house.rt.approve("b/0.0")
    goings[1].result()


def test_BH41_each_answer_reaches_its_own_call(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    going = house.run("r").begin([call("gated", name=n) for n in ("one", "two", "three")])
    house.watch.wait(e.ApprovalAsked, count=3)
    assert house.rt.approve("r/0.1")
    until(lambda: ran == ["two"])
    assert [p.call_id for p in house.rt.pending()] == ["r/0.0", "r/0.2"]
    assert house.rt.reject("r/0.0")
    assert [p.call_id for p in house.rt.pending()] == ["r/0.2"]
    assert house.rt.approve("r/0.2")
    results = going.result()
    assert endings(results) == [DENIED, OK, OK]
    assert ran == ["two", "three"]


def test_BH41_answers_all_at_once(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    names = [f"n{n}" for n in range(8)]
    going = house.run("r").begin([call("gated", name=n) for n in names])
    house.watch.wait(e.ApprovalAsked, count=8)
    took: list[bool] = []

    def answer(index: int) -> None:
        # Two people answer each call at the same time: one of them is heard.
        verb = house.rt.approve if index % 2 else house.rt.reject
        took.append(verb(f"r/0.{index}"))

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(8) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert endings(going.result()) == [OK if n % 2 else DENIED for n in range(8)]
    assert sum(took) == 8
    assert sorted(ran) == [n for index, n in enumerate(names) if index % 2]


def test_BH42_a_mixed_batch_runs_what_was_approved(street: Street, kind: str) -> None:
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    calls = [
        call("gated", "1", name="a"),
        call("gated", "2", name="b"),
        call("free", "3", name="s"),
        call("gated", "4", name="c"),
    ]
    going = house.run("r").begin(calls)
    house.watch.wait(e.ApprovalAsked, count=3)
    house.watch.wait(e.CallSettled, 2)
    for index, verb in ((0, house.rt.approve), (1, house.rt.approve), (3, house.rt.reject)):
        assert verb(f"r/0.{index}")
    results = going.result()
    assert endings(results) == [OK, OK, OK, DENIED]
    assert [r.model_id for r in results] == ["1", "2", "3", "4"]
    assert sorted(ran) == ["a", "b", "s"]


def test_BH38_a_pending_approval_is_left_pending_by_a_crash(street: Street, kind: str) -> None:
    """The record that a restart finds holds the question, and settles nothing that is unbegun."""
    ran: list[str] = []
    house = gate_of(street, kind, ran)
    going = house.run("r").begin([call("gated", name="a")])
    house.watch.wait(e.ApprovalAsked)
    left = Unfinished("r")
    recorded = [x.event for x in house.rt.engine.journal.read("r")]
    left.read(recorded)
    (question,) = [x for x in recorded if isinstance(x, e.ApprovalAsked)]
    assert question.arguments == {"name": "a"}
    assert question.digest == house.rt.pending()[0].digest
    assert not [x for x in left.closing() if isinstance(x, e.CallSettled)]
    house.rt.reject("r/0.0")
    going.result()


def test_BH37_silence_is_never_consent(street: Street, kind: str) -> None:
    """Nothing runs while nobody answers; a shutdown is no answer either."""

    @tool(resources=(), approval="always")
    def gated(ctx: Context) -> str:
        return ctx.call_id

    house = street.open(kind, [gated])
    run = house.run("r")
    going = run.begin([call("gated")])
    house.watch.wait(e.ApprovalAsked)
    assert not house.watch.told(e.CallGranted)
    house.rt.close() if kind == "blocking" else house.await_there(house.rt.close())
    assert endings(going.result(6.0)) == [("cancelled", "shutdown", "none")]
