"""How a call ends: which outcome, reason and effect an ending has (law 5 honest-effect).

Pure: from what is recorded of a call to the events that end or stop it. What our own stop causes is
never the body's result: an error or an exit code that comes after we asked is classified by the
recorded stop, not by what it looks like.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.inputs import BodyEnded
from endstop.core.record import maker
from endstop.core.state import BatchState, CallState, RunState, effect_of_stop
from endstop.core.terms import (
    CANCEL_REASONS,
    Commit,
    Effect,
    Flag,
    How,
    Mode,
    Outcome,
    Phase,
    Reason,
    StoppedBy,
)

FAILURES = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST})
"""The outcomes that stop the siblings in a batch that asked for it; a refusal is not a failure."""

HURRY_S = 0.1
"""The grace of a body that cannot be killed when it is to be stopped at once."""


# Python 3.11 finds an enum member at several times the cost of a global, and these are on the path
# of every call.
_RETURNED, _SUCCEEDED, _OK, _DONE = How.RETURNED, Outcome.SUCCEEDED, Reason.OK, Effect.DONE
_settled = maker(e.CallSettled)


def unstarted(call: CallState, reason: Reason, message: str | None = None) -> e.CallSettled:
    """The ending of a call whose body never began: effect none, always."""
    assert not call.started, "only a body that never began has no effect for certain"
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=unstarted_outcome(reason),
        reason=reason,
        effect=Effect.NONE,
        error=message,
    )


def unstarted_outcome(reason: Reason) -> Outcome:
    """The outcome of a call whose body never began for this reason."""
    if reason in CANCEL_REASONS:
        return Outcome.CANCELLED
    return Outcome.LOST if reason is Reason.DRIVER_LOST else Outcome.REJECTED


def body_end(call: CallState, ended: BodyEnded, now: float) -> e.CallSettled:
    """The ending of a call whose body is over, however it ended."""
    assert call.started, "only a started body ends"
    assert call.meter is not None
    outcome, reason, effect = _classify(call, ended.how)
    stopped = outcome is not _SUCCEEDED and reason is call.stop_reason
    return _settled(
        run=call.run.id,
        call=call.id,
        outcome=outcome,
        reason=reason,
        effect=effect,
        value=ended.value if ended.how is _RETURNED else None,
        error=ended.error,
        output=ended.output,
        stopped_by=call.rung if stopped else None,
        flags=() if stopped else _flags(call),
        survivors=ended.survivors,
        spent=call.spent,
        ran_s=call.meter.ran_s(now),
    )


def _classify(call: CallState, how: How) -> tuple[Outcome, Reason, Effect]:
    if how is _RETURNED:
        return _SUCCEEDED, _OK, _DONE
    if how is How.UNSERIALISABLE:
        return Outcome.FAILED, Reason.RESULT_UNSERIALISABLE, Effect.DONE
    # A stop that still waited for the commit block has not touched the body: its error is its own.
    if call.stop_reason is not None and call.rung is not None:
        return stopped_outcome(call.stop_reason), call.stop_reason, effect_of_stop(call)
    if how is How.LOST:
        return Outcome.LOST, Reason.WORKER_LOST, effect_of_stop(call)
    return Outcome.FAILED, Reason.TOOL_ERROR, effect_of_stop(call)


def stopped_outcome(reason: Reason) -> Outcome:
    """The outcome of a started body that ended because of a stop for this reason."""
    if reason in CANCEL_REASONS:
        return Outcome.CANCELLED
    return Outcome.LOST if reason is Reason.DRIVER_LOST else Outcome.TIMED_OUT


def _flags(call: CallState) -> tuple[Flag, ...]:
    if call.stop_reason is None:
        return ()
    return (Flag.CANCEL_REQUESTED if call.stop_reason in CANCEL_REASONS else Flag.OVERRAN,)


def abandoned(call: CallState, now: float) -> e.CallSettled:
    """The ending of a call whose worker could not be stopped: reported, listed, not forgotten."""
    assert call.stop_reason is not None, "a stop comes first"
    assert call.meter is not None
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=stopped_outcome(call.stop_reason),
        reason=call.stop_reason,
        effect=effect_of_stop(call),
        stopped_by=StoppedBy.ABANDONED,
        spent=call.spent,
        ran_s=call.meter.ran_s(now),
        alive=True,
    )


def answered_by_human(call: CallState, message: str) -> e.CallSettled:
    """The ending of a call that a human answered in place of the tool: nothing was run."""
    assert not call.started, "an answer comes before the start"
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.ANSWERED_BY_HUMAN,
        effect=Effect.NONE,
        value=message,
    )


def ask(call: CallState, grace_s: float | None = None) -> e.AskSent:
    """The first rung, with the grace that the body is given."""
    if grace_s is None:
        grace_s = call.contract.grace_s
    return e.AskSent(run=call.run.id, call=call.id, grace_s=grace_s)


def stop_call(call: CallState, reason: Reason, mode: Mode, now: float) -> list[e.Event]:
    """What a stop does to one call, by the phase that it is in (law 6 bounded-stop)."""
    match call.phase:
        case Phase.SETTLED:
            return []
        case Phase.RUNNING if mode is Mode.DRAIN:
            return []
        case Phase.RUNNING:
            asked = e.StopRequested(run=call.run.id, call=call.id, reason=reason)
            return [asked, *_first_rung(call, mode), *stop_children(call, mode, now)]
        case Phase.STOPPING if mode is Mode.KILL:
            return [*_hurry(call, now), *stop_children(call, mode, now)]
        case Phase.STOPPING:
            return []
        case _:
            return [unstarted(call, reason)]


def _first_rung(call: CallState, mode: Mode) -> list[e.Event]:
    if mode is Mode.KILL:
        if call.contract.killable:
            return [e.KillSent(run=call.run.id, call=call.id)]
        return [ask(call, min(HURRY_S, call.contract.grace_s))]
    return [] if call.commit is Commit.INSIDE else [ask(call)]


def _hurry(call: CallState, now: float) -> list[e.Event]:
    if call.rung is None:
        # The stop still waited for the commit block: nobody has told the body yet.
        return _first_rung(call, Mode.KILL)
    return [] if call.rung is StoppedBy.KILLED else last_rungs(call, now)


def last_rungs(call: CallState, now: float) -> list[e.Event]:
    """What follows when the grace is over: kill what can be killed, abandon what cannot."""
    if call.contract.killable and call.rung is not StoppedBy.KILLED:
        return [e.KillSent(run=call.run.id, call=call.id)]
    return [abandoned(call, now)]


def stop_children(call: CallState, mode: Mode, now: float) -> list[e.Event]:
    """Cancel the attached runs below a call, all in the same instant (law 17 children-settle)."""
    found: list[e.Event] = []
    for run in call.children or ():
        found += cancel_run(run, Reason.PARENT_CANCELLED, mode, now)
    return found


def cancel_run(run: RunState, reason: Reason, mode: Mode, now: float) -> list[e.Event]:
    """Accept a cancel of a run; nothing if it is over or was cancelled as strongly before."""
    if run.ended or (run.mode is not None and _strength(run.mode) >= _strength(mode)):
        return []
    first = run.cancelled or reason
    found: list[e.Event] = [e.RunCancelled(run=run.id, reason=first, mode=mode)]
    for call in run.calls():
        found += stop_call(call, first, mode, now)
    return found


def cancel_batch(
    batch: BatchState, reason: Reason, mode: Mode, now: float, but: CallState | None = None
) -> list[e.Event]:
    """Accept a cancel of a batch; nothing if it is over or was cancelled as strongly before.

    `but` is a call that is settled in the same instant already.
    """
    if batch.closed or (batch.mode is not None and _strength(batch.mode) >= _strength(mode)):
        return []
    first = batch.cancelled or reason
    found: list[e.Event] = [
        e.BatchCancelled(run=batch.run.id, batch=batch.id, reason=first, mode=mode)
    ]
    for call in batch.calls:
        if call is not but:
            found += stop_call(call, first, mode, now)
    return found


def with_siblings(call: CallState, found: list[e.Event], now: float) -> list[e.Event]:
    """The events of a call, and in a batch that asked for it, what its failure does to the others.

    However the call failed: an error, a deadline and an abandoned worker alike (law 14
    isolated-siblings).
    """
    if call.batch.stop_on_failure and any(
        isinstance(event, e.CallSettled) and event.call == call.id and event.outcome in FAILURES
        for event in found
    ):
        reason = Reason.SIBLING_FAILED
        found += cancel_batch(call.batch, reason, Mode.INTERRUPT, now, but=call)
    return found


def _strength(mode: Mode) -> int:
    return (Mode.DRAIN, Mode.INTERRUPT, Mode.KILL).index(mode)
