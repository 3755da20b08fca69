"""A question outlives the program that asked it, with its words and what is left of its time."""

from __future__ import annotations

import threading

from endstop import Approve, Ask, HookCall, Pending, tool
from endstop.core import events as e
from tests.driving import OK, Street, call, endings
from tests.recovery.crashing import Resumed, crashed, recorded

ran: list[int] = []


@tool(resources=())
def pay(amount: int) -> int:
    """Pay an amount."""
    ran.append(amount)
    return amount


def policy(seen: HookCall) -> Ask:
    """Everything needs a human."""
    return Ask(f"pay {seen.arguments['amount']}?", expires_s=60.0)


def left_behind(street: Street, kind: str) -> list[e.Event]:
    """What a program recorded that was gone while two calls waited."""
    ran.clear()
    house = street.open(kind, [pay], before=[policy])
    run = house.run("r")
    going = run.begin([call("pay", amount=1), call("pay", amount=2)])
    house.watch.wait(e.ApprovalAsked, count=2)
    events = recorded(house)
    run.cancel()
    going.result()
    return events


def test_BH38_pending_with_prompt_and_answered_once_after_a_restart(
    street: Street, kind: str
) -> None:
    journal = crashed(left_behind(street, kind))
    house = street.open(kind, [pay], before=[policy], journal=journal)
    resumed = Resumed(house)
    pending = house.rt.pending()
    assert [(p.call_id, p.prompt) for p in pending] == [
        ("r/0.0", "pay 1?"),
        ("r/0.1", "pay 2?"),
    ]
    left_s = pending[0].expires_in_s
    assert left_s is not None
    assert left_s < 60.0, "the time for an answer began anew"
    assert house.rt.approve("r/0.1")
    assert not pending[1].approve(), "it was answered under its old id and once more"
    assert pending[0].approve()
    (results,) = resumed.finish()
    assert endings(results) == [OK, OK]
    assert sorted(ran) == [1, 2]


def test_BH38_a_handler_is_asked_again_after_a_restart(street: Street, kind: str) -> None:
    journal = crashed(left_behind(street, kind))
    seen: list[str] = []
    lock = threading.Lock()

    def handler(pending: Pending) -> Approve:
        with lock:
            seen.append(pending.prompt)
        return Approve()

    house = street.open(kind, [pay], before=[policy], journal=journal, approve=handler)
    (results,) = Resumed(house).finish()
    assert endings(results) == [OK, OK]
    assert sorted(seen) == ["pay 1?", "pay 2?"]
