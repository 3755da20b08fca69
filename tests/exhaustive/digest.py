"""What a state amounts to: equal digests behave equally from here on. Only reads.

Instants are taken relative to now, so that two paths which differ only in when they happened meet.
"""

from __future__ import annotations

from typing import Any

from endstop.core.deadlines import Meter
from endstop.core.resources import ResourceTable
from endstop.core.state import BatchState, CallState, RunState, State


def digest(state: State, now: float) -> tuple[Any, ...]:
    """Everything in a state that can matter later."""
    return (
        tuple(_call(c, now) for c in state.calls.values()),
        tuple(_run(r, now) for r in state.runs.values()),
        _table(state.resources),
        tuple((s.taken, s.abandoned, *s.line) for s in state.slots.values()),
        tuple(b.id for b in state.check_batches),
        tuple(r.id for r in state.check_runs),
        len(state.timers),
        tuple((call, *mine) for call, mine in state.questions.items()),
        tuple(
            (name, rule.tool, str(rule.same), None if until is None else max(0.0, until - now))
            for mine in state.rules.values()
            for name, (rule, until) in mine.items()
        ),
    )


def _since(instant: float | None, now: float) -> float | None:
    return None if instant is None else round(instant - now, 6)


def _meter(meter: Meter | None, now: float) -> tuple[Any, ...] | None:
    return None if meter is None else (round(meter.ran_s(now), 6), meter._pauses)


def _idles(call: CallState) -> bool:
    """Whether the last progress matters: a pause forgets it."""
    meter = call.meter
    return call.contract.idle_s is not None and meter is not None and not meter.paused


def _call(call: CallState, now: float) -> tuple[Any, ...]:
    ending = call.settled
    waits = call.phase == "queued"
    return (
        call.phase,
        int(call.stage),
        _since(call.phase_at, now) if waits else None,
        _since(call.due, now),
        _meter(call.meter, now) if ending is None else None,
        _since(call.progress_at, now) if _idles(call) else None,
        (call.hook, call.approval, str(call.claims), call.cost),
        (call.commit, call.stop_reason, call.rung, call.humans),
        (call.started, call.alive, call.slot, call.lane, call.parked),
        (call.reserved, call.spent, call.assumed, call.retried, call.left, call.earlier),
        None if call.children is None else tuple(r.id for r in call.children),
        None
        if ending is None
        else (ending.outcome, ending.reason, ending.effect, ending.stopped_by, ending.flags),
    )


def _batch(batch: BatchState, now: float) -> tuple[Any, ...]:
    return (
        batch.cancelled,
        batch.mode,
        batch.closed,
        _since(batch.due, now),
        None if batch.closed or batch.deadline_s is None else _meter(batch.meter, now),
        batch.meter._pauses,
        None if batch.order is None else _table(batch.order),
        (batch.horizon, batch.settled_below, batch.entered_below, batch.next_exclusive),
        (batch.unprepared, batch.unsettled, batch.lanes),
        tuple(batch.line),
    )


def _run(run: RunState, now: float) -> tuple[Any, ...]:
    book = run.budget
    return (
        (run.cancelled, run.mode, run.closing, run.declared, run.ended, run.open_batches),
        (run.suspending, run.let_go, *(run.unsure or ())),
        (book.calls, _amounts(book.tool_calls), _amounts(book.reserved), _amounts(book.spent)),
        tuple(_batch(b, now) for b in run.batches),
    )


def _amounts(column: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, amount) for name, amount in column.items() if amount))


def _table(table: ResourceTable) -> tuple[Any, ...]:
    return (
        tuple(sorted((key, entry.blocked) for key, entry in table._entries.items())),
        tuple(
            (name, tuple(sorted(node.front.items())), tuple(node.line.items()))
            for name, node in sorted(table._nodes.items())
        ),
    )
