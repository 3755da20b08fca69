"""Reconcilers: a lost call is asked for before anything of it runs again (law 10)."""

from __future__ import annotations

from typing import Any

import pytest

from endstop import Context, Effect, LostCall, Outcome, Reason, Reconciled, tool
from endstop.core import events as e
from endstop.store.memory import MemoryJournal
from endstop.tools.tool import Tool
from tests.driving import Street, call, quick
from tests.recovery.crashing import Resumed, crashed, cut_after, recorded


class Paid:
    """A paid tool with a reconciler that answers as it is told."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[LostCall] = []
        self.keys: list[str] = []

        def reconcile(lost: LostCall) -> Any:
            self.asked.append(lost)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer() if callable(self.answer) else self.answer

        def pay(ctx: Context, n: int) -> str:
            self.keys.append(ctx.effect_key)
            return f"paid {n}"

        self.tool: Tool = tool(effect="once", reconcile=reconcile)(pay)


def cut_while_running(street: Street, kind: str) -> list[e.Event]:
    house = street.open(kind, [Paid().tool])
    house.run("r").execute([call("pay", n=1)])
    return cut_after(recorded(house), e.CallStarted, "r/0.0")


def resume(
    street: Street, kind: str, answer: Any, **options: Any
) -> tuple[Paid, Any, MemoryJournal]:
    journal = crashed(cut_while_running(street, kind))
    paid = Paid(answer)
    house = street.open(kind, [paid.tool], journal=journal, **options)
    ((result,),) = Resumed(house).finish()
    return paid, result, journal


def reconciled(journal: MemoryJournal) -> list[bool | None]:
    return [one.event.done for one in journal.read("r") if isinstance(one.event, e.CallReconciled)]


def test_law_10_what_was_done_is_not_done_again(street: Street, kind: str) -> None:
    paid, result, journal = resume(street, kind, Reconciled(True, {"receipt": 7}))
    assert (result.outcome, result.effect, result.value) == (
        Outcome.SUCCEEDED,
        Effect.DONE,
        {"receipt": 7},
    )
    assert paid.keys == []
    assert reconciled(journal) == [True]
    (lost,) = paid.asked
    assert (lost.call_id, lost.effect_key, lost.tool) == ("r/0.0", "r/0.0", "pay")
    assert lost.arguments == {"n": 1}


def test_law_10_what_was_not_done_runs_under_the_same_key(street: Street, kind: str) -> None:
    paid, result, journal = resume(street, kind, Reconciled(False))
    assert (result.value, result.retried) == ("paid 1", 1)
    assert paid.keys == ["r/0.0"]
    assert reconciled(journal) == [False]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Reconciled(None), None),
        (RuntimeError("the bank is closed"), "RuntimeError: the bank is closed"),
        ("yes", "its reconciler answered 'yes'"),
        (Reconciled("yes"), "its reconciler answered"),  # type: ignore[arg-type]
    ],
)
def test_law_10_what_cannot_be_told_stays_unknown(
    street: Street, kind: str, answer: Any, says: str | None
) -> None:
    paid, result, journal = resume(street, kind, answer)
    assert (result.outcome, result.reason, result.effect) == (
        Outcome.LOST,
        Reason.DRIVER_LOST,
        Effect.UNKNOWN,
    )
    assert paid.keys == []
    (event,) = [one.event for one in journal.read("r") if isinstance(one.event, e.CallReconciled)]
    assert event.done is None
    assert event.error is None if says is None else says in (event.error or "")


def test_law_6_a_reconciler_that_hangs_is_not_waited_for(street: Street, kind: str) -> None:
    door = street.door()
    config = quick(**{"timeouts.hooks": 0.1})
    paid, result, _ = resume(street, kind, door.wait, config=config)
    assert (result.outcome, result.effect) == (Outcome.LOST, Effect.UNKNOWN)
    assert paid.keys == []


def test_an_async_reconciler(street: Street, kind: str) -> None:
    async def answer() -> Reconciled:
        return Reconciled(True, "looked up")

    _, result, _ = resume(street, kind, answer)
    assert result.value == "looked up"


def test_a_call_that_never_began_is_not_asked_for(street: Street, kind: str) -> None:
    house = street.open(kind, [Paid().tool])
    house.run("r").execute([call("pay", n=1)])
    cut = cut_after(recorded(house), e.CallQueued, "r/0.0")
    paid = Paid(Reconciled(None))
    second = street.open(kind, [paid.tool], journal=crashed(cut))
    ((result,),) = Resumed(second).finish()
    assert (result.ok, len(paid.keys), paid.asked) == (True, 1, [])
