"""Cases that need a second program: what the first one had recorded is what counts."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from endstop import Context, Limits, Money, StaleWriter, tool
from endstop.core import events as e
from endstop.errors import JournalError
from endstop.store.memory import MemoryJournal
from tests.driving import Street, call, endings, quick
from tests.recovery.crashing import Resumed, crashed, cut_after, recorded

OK = ("succeeded", "ok", "done")


def usd(amount: str) -> Money:
    return Money(amount=Decimal(amount), currency="USD")


@pytest.mark.parametrize("until", [e.CallSettled, e.BatchClosed], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("raises", ["hook", "sink", "both"])
def test_BH60_a_result_that_hooks_and_sinks_choke_on_is_not_bought_again(
    street: Street, kind: str, raises: str, until: type
) -> None:
    ran: list[str] = []

    @tool(effect="once", resources=())
    def pay() -> str:
        ran.append("paid")
        return "receipt 7"

    def after(result: Any) -> None:
        if raises != "sink":
            raise RuntimeError("the metrics server is away")

    def sink(event: object) -> None:
        if raises != "hook":
            raise OSError("the sink is full")

    first = street.open(kind, [pay], after=[after], observers=[sink])
    (result,) = first.run("r").execute([call("pay")])
    assert endings([result]) == [OK]
    cut = cut_after(recorded(first), until, "r/0.0")
    # The program is gone now; the caller that got the result is, too.
    second = street.open(kind, [pay], journal=crashed(cut), after=[after], observers=[sink])
    (batch,) = Resumed(second).finish()
    assert endings(batch) == [OK]
    assert batch[0].value == "receipt 7"
    assert ran == ["paid"]


class FailsOnce(MemoryJournal):
    """A journal that does not take the first ending."""

    failed = False

    def append(self, run: str, expected_seq: int, events: Any, durability: Any) -> Any:
        """See `MemoryJournal`."""
        if not self.failed and any(isinstance(one, e.CallSettled) for one in events):
            self.failed = True
            raise JournalError("the disk is full")
        return super().append(run, expected_seq, events, durability)


def test_BH60_a_result_that_could_not_be_recorded_is_not_shown_and_not_bought_again(
    street: Street, kind: str
) -> None:
    ran: list[str] = []

    @tool(effect="once", resources=())
    def pay() -> str:
        ran.append("paid")
        return "receipt 7"

    journal = FailsOnce()
    first = street.open(kind, [pay], journal=journal)
    first.lawful = False
    with pytest.raises(JournalError, match="the disk is full"):
        first.run("r").execute([call("pay")])
    assert not first.watch.told(e.CallSettled), "nobody saw what was not recorded"
    first.close()
    second = street.open(kind, [pay], journal=journal)
    (batch,) = Resumed(second).finish()
    assert endings(batch) == [("lost", "driver_lost", "unknown")]
    assert ran == ["paid"]


@pytest.mark.parametrize("effect", ["effectful", "idempotent"])
@pytest.mark.parametrize("spends", [1, 2])
def test_BH80_what_was_spent_before_a_crash_is_in_the_books_once(
    street: Street, kind: str, effect: str, spends: int
) -> None:
    """5 was recorded, then perhaps 7; then the program is gone. The heir has it in its books."""
    door = street.door()
    told = threading.Event()
    ran: list[int] = []

    @tool(resources=(), effect=effect)
    def work(ctx: Context) -> str:
        ran.append(1)
        if len(ran) > 1:
            ctx.spend("2", "USD")
            return "at last"
        for amount in ("5", "7")[:spends]:
            ctx.spend(amount, "USD")
        told.set()
        door.wait()
        return "nobody hears of it"

    first = street.open(kind, [work], config=quick())
    going = first.run("r", limits=Limits(money=(usd("100"),))).begin([call("work")])
    assert told.wait(20)
    cut = recorded(first)
    door.open()
    going.result()
    before = Decimal(5 if spends == 1 else 12)
    second = street.open(kind, [work], journal=crashed(cut))
    resumed = Resumed(second)
    (batch,) = resumed.finish()
    (result,) = batch
    if effect == "effectful":
        assert (str(result.outcome), len(ran)) == ("lost", 1)
        total = before
    else:
        assert (result.value, len(ran)) == ("at last", 2)
        total = before + 2
    assert result.spent == (usd(str(total)),), "the books of the answer"
    budget = second.state.runs["r"].budget
    assert budget.spent == {"USD": total}
    assert not any(budget.reserved.values())
    spent = [one.money.amount for one in recorded(second) if isinstance(one, e.CallSpent)]
    assert sum(spent) == total, "each of it is recorded once"
    rest = Decimal(100) - total
    assert budget.refuses("work", usd(str(rest))) is None
    assert budget.refuses("work", usd(str(rest + Decimal("0.01")))) is not None


def test_BH80_the_late_spend_of_a_driver_that_was_replaced_is_in_no_books(
    street: Street, kind: str, tmp_path: Path
) -> None:
    """It cannot be recorded any more: the heir's record says unknown, and is not changed."""
    door = street.door()
    told = threading.Event()

    @tool(resources=())
    def work(ctx: Context) -> None:
        ctx.spend("5", "USD")
        told.set()
        door.wait()
        ctx.spend("9", "USD")

    path = f"sqlite:{tmp_path / 'runs.db'}"
    first = street.open(kind, [work], journal=path, config=quick())
    first.lawful = False
    going = first.run("r").begin([call("work")])
    assert told.wait(20)
    first.rt.engine.journal.flush()
    second = street.open(kind, [work], journal=path)
    assert second.rt.engine.journal.adopt("r", force=True)
    second.rt.engine.journal.release("r")
    (batch,) = Resumed(second).finish()
    assert batch[0].spent == (usd("5"),)
    door.open()
    with pytest.raises(StaleWriter):
        going.future.result(20)
    spent = [one.money.amount for one in recorded(second) if isinstance(one, e.CallSpent)]
    assert spent == [Decimal(5)]
