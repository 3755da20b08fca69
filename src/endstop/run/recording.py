"""What is recorded of the events, how durably, and which of them nobody may act on before that.

Effectful calls are recorded as granted before their body begins; endings, notes and what a human is
asked before anybody sees them (laws 13 one-approval and 15 record-first); read-only and idempotent
calls do not wait. Decides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from endstop.core import events as e
from endstop.core.state import State
from endstop.core.terms import EffectClass
from endstop.run.plans import Plan
from endstop.store.protocol import Durability

_GRANT = {
    EffectClass.READ_ONLY: Durability.BUFFERED,
    EffectClass.IDEMPOTENT: Durability.BUFFERED,
    EffectClass.EFFECTFUL: Durability.PROCESS,
    EffectClass.ONCE: Durability.MACHINE,
}
TRANSIENT = frozenset(e.TRANSIENT)
"""The kinds of events that no journal keeps."""

_ENDED: dict[type, Callable[[Any], str]] = {
    e.CallSettled: attrgetter("call"),
    e.BatchClosed: attrgetter("batch"),
    e.RunEnded: attrgetter("run"),
}
_WAITS = frozenset(
    {
        e.CallGranted,
        e.CallSettled,
        e.BatchClosed,
        e.RunEnded,
        e.RunInterrupted,
        e.Noted,
        # Whoever answers may be elsewhere, and must find what is asked.
        e.ApprovalAsked,
        e.QuestionAsked,
    }
)


def by_run(events: list[e.Event]) -> Iterator[tuple[str, list[e.Event], list[e.Event]]]:
    """Events in groups of one run each: the run, its events, and those of them to be kept."""
    groups: dict[str, list[e.Event]] = {}
    for event in events:
        groups.setdefault(event.run, []).append(event)
    for run, group in groups.items():
        yield run, group, [event for event in group if type(event) not in TRANSIENT]


def durability(events: Iterable[e.Event], state: State) -> Durability:
    """What the most demanding of these events must survive."""
    most = Durability.BUFFERED
    for event in events:
        if isinstance(event, e.CallGranted):
            most = max(most, _GRANT[state.calls[event.call].contract.effect])
        elif type(event) in _WAITS:
            most = max(most, Durability.PROCESS)
    return most


def must_wait(event: e.Event, plans: Mapping[str, Plan]) -> bool:
    """Whether nobody may act on an event before it is recorded."""
    if type(event) is e.CallGranted:
        return _GRANT[plans[event.call].contract.effect] > Durability.BUFFERED
    return type(event) in _WAITS


def ended_by(events: Iterable[e.Event]) -> list[str]:
    """The calls, batches and runs that end with these events."""
    return [name(event) for event in events if (name := _ENDED.get(type(event))) is not None]
