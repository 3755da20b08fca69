"""The demo's proof of its second act: what was claimed, compared with ledger, files and journals.

The claims are the runtime's answers; the facts are read from what the paid service wrote itself,
from the files and the process table, and from the journals, opened again after everything ended.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from endstop.core import events as e
from endstop.demo import child, world
from endstop.demo.proof import events_of
from endstop.demo.second import ALBUM, BOOK, HARBOUR, LIMIT, PIER, TOUR, Act
from endstop.demo.service import Charge, paint
from endstop.demo.table import Check
from endstop.run.results import CallResult

_ZERO = Decimal(0)


def of_the_act(act: Act) -> list[Check]:
    """What the world says of the second act; asked when its runtimes are closed."""
    return [
        _limit(act),
        _one_grace(act),
        _sibling(act),
        _killed(act),
        _heir(act),
        _unknown(act),
    ]


def _sum(charges: list[Charge]) -> Decimal:
    return sum((one.amount for one in charges), _ZERO)


def _spent(results: list[CallResult]) -> Decimal:
    return sum((money.amount for one in results for money in one.spent), _ZERO)


def _keys(charges: list[Charge]) -> str:
    return ", ".join(one.key for one in charges) or "none"


def _booked(events: list[e.Event]) -> Decimal:
    """What the journal's books say: what was reported, or the price where nothing was."""
    prices = {one.call: one.cost for one in events if isinstance(one, e.CallAccepted)}
    spent: dict[str, Decimal] = {}
    for one in events:
        if isinstance(one, e.CallSpent):
            spent[one.call] = spent.get(one.call, _ZERO) + one.money.amount
    for one in events:
        if isinstance(one, e.CallSettled) and one.effect != "none":
            price = prices[one.call]
            spent.setdefault(one.call, _ZERO if price is None else price.amount)
    return sum(spent.values(), _ZERO)


def _started(events: list[e.Event]) -> list[str]:
    return [event.call for event in events if isinstance(event, e.CallStarted)]


def _file(act: Act, path: str) -> str | None:
    return world.read_text(act.directory / path)


def _limit(act: Act) -> Check:
    results = list(act.album or ())
    done = [one for one in results if one.outcome == "succeeded"]
    refused = [one for one in results if one.reason == "over_budget"]
    charges = act.charges(ALBUM)
    charged = _sum(charges)
    left = LIMIT.amount - charged
    begun = set(_started(events_of(act.directory / BOOK, ALBUM)))
    never = [one for one in refused if one.call_id not in begun and not _delivered(act, one)]
    told = [one for one in refused if f" {left} {LIMIT.currency} " in one.text]
    return Check(
        name="budget",
        claim=f"Of {LIMIT.amount} {LIMIT.currency} {_spent(done)} were spent; {len(refused)} call "
        "went over it, never started, and read what was left",
        holds=bool(refused)
        and len(done) + len(refused) == len(results)
        and never == told == refused
        and charged == _spent(results) <= LIMIT.amount
        and sorted(one.key for one in charges) == sorted(one.call_id for one in done),
        seen=f"the ledger says {charged} {LIMIT.currency}, keys {_keys(charges)}; {left} are left",
    )


def _delivered(act: Act, one: CallResult) -> bool:
    return _file(act, (one.arguments or {})["path"]) is not None


def _one_grace(act: Act) -> Check:
    events = events_of(act.directory / BOOK, TOUR)
    endings = {one.call: one for one in events if isinstance(one, e.CallSettled)}
    accepted = [one.call for one in events if isinstance(one, e.CallAccepted)]
    stopped = [call for call, one in endings.items() if one.outcome == "cancelled"]
    late = _file(act, HARBOUR) is not None
    return Check(
        name="one_grace",
        claim=f"The stop of a run ended {len(stopped)} calls, a sub-agent and its call, in one "
        "grace",
        holds=0 < act.stop_s <= act.bound_s
        and len(stopped) == 2
        and sorted(endings) == sorted(accepted)
        and act.taken_back == 1
        and act.verdict == "stopped"
        and not late,
        seen=f"{act.stop_s:.2f} s; the service was asked to take back {act.taken_back} order; the "
        f"picture {'came nevertheless' if late else 'never came'}; {len(endings)} endings for "
        f"{len(accepted)} calls",
    )


def _sibling(act: Act) -> Check:
    found = _file(act, PIER)
    right = found == paint("the pier") and act.kept == f"{PIER} ({len(found)} bytes)"
    return Check(
        name="sibling",
        claim="Its sibling, which had finished, keeps its result, and no handle is left open",
        holds=right and not act.dropped and not act.open_handles and not act.open_calls,
        seen=f"{PIER} {'is as the handle says' if right else 'is not what the handle says'}; "
        f"dropped: {', '.join(act.dropped) or 'none'}; open: {act.open_handles} handles, "
        f"{act.open_calls} calls",
    )


def _killed(act: Act) -> Check:
    there = act.killed is not None and world.alive(act.killed)
    wanted = len(child.ORDERS)
    return Check(
        name="killed",
        claim="A program was killed in the middle of paid work, by kill -9",
        holds=act.killed is not None
        and not there
        and act.exit_code == -9
        and len(act.before_the_kill) >= wanted,
        seen=f"{act.killed or 'no process'} {'is still alive' if there else 'is gone'}, exit code "
        f"{act.exit_code}; {len(act.before_the_kill)} of {wanted} orders were charged by then",
    )


def _heir(act: Act) -> Check:
    """What was over did not run again; what may run again did, under the same key: one charge."""
    events = events_of(act.directory / child.CRASH, child.RUN)
    done = [one for one in act.resumed if one.outcome == "succeeded"]
    starts = _started(events)
    again = sorted({call for call in starts if starts.count(call) > 1})
    endings = sorted(one.call for one in events if isinstance(one, e.CallSettled))
    charges = act.charges(child.RUN)
    wrong = [one.call_id for one in done if not _is_painted(act, one)]
    return Check(
        name="heir",
        claim=f"Its heir ran {len(again)} of {len(act.resumed)} orders again, under the same key, "
        "and nothing was paid twice",
        holds=len(done) == 2
        and len(again) == 1
        and again == act.service.repeated
        and not wrong
        and endings == sorted(one.call_id for one in act.resumed)
        and sorted(one.key for one in charges) == endings
        and charges == act.before_the_kill
        and _sum(charges) == _booked(events),
        seen=f"the ledger says {_sum(charges)} USD, keys {_keys(charges)}, the journal "
        f"{_booked(events)} USD; asked again: {', '.join(act.service.repeated) or 'none'}",
    )


def _is_painted(act: Act, one: CallResult) -> bool:
    asked: dict[str, Any] = one.arguments or {}
    return _file(act, asked["path"]) == paint(asked["prompt"])


def _unknown(act: Act) -> Check:
    lost = [one for one in act.resumed if one.outcome == "lost"]
    keys = [one.key for one in act.charges(child.RUN)]
    charged = [one for one in lost if one.call_id in keys]
    delivered = [one for one in lost if _delivered(act, one)]
    said = [one for one in lost if one.effect == "unknown" and "is unknown" in one.text]
    return Check(
        name="unknown",
        claim=f"What cannot be known is said to be unknown: {len(lost)} order, not made again",
        holds=bool(lost)
        and said == charged == lost
        and not delivered
        and all(keys.count(one.call_id) == 1 for one in lost),
        seen=f"the ledger knows {len(charged)} of them, the disk {len(delivered)}; "
        f"the journal could not",
    )
