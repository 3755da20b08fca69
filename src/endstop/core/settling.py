"""How a call ends: which outcome, reason and effect an ending has (law 5 honest-effect).

Pure: from what is recorded of a call to the events that end or stop it. What our own stop causes is
never the body's result: an error or an exit code that comes after we asked is classified by the
recorded stop, not by what it looks like.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.inputs import BodyEnded, Reconciled
from endstop.core.record import maker
from endstop.core.state import BatchState, CallState, RunState, effect_of_stop, worst
from endstop.core.terms import (
    CANCEL_REASONS,
    Commit,
    Contract,
    Effect,
    EffectClass,
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
_AGAIN = frozenset({EffectClass.READ_ONLY, EffectClass.IDEMPOTENT})


def may_run_again(contract: Contract) -> bool:
    """Whether a second attempt of such a call does no harm, whatever the first did (law 10)."""
    return contract.effect in _AGAIN


def unstarted(call: CallState, reason: Reason, message: str | None = None) -> e.CallSettled:
    """The ending of a call whose body never began: effect none, always.

    Where an earlier attempt did begin, it is about that one: what it left is not undone.
    """
    assert not call.started, "only a body that never began has no effect for certain"
    if call.retried is not None or call.left is not Effect.NONE:
        return _not_again(call, reason, message)
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=unstarted_outcome(reason),
        reason=reason,
        effect=Effect.NONE,
        error=message,
    )


def _not_again(call: CallState, reason: Reason, message: str | None) -> e.CallSettled:
    """The ending of a call that was to run again and did not: never called "not started"."""
    before = call.retried
    outcome, error = unstarted_outcome(reason), message
    if reason is Reason.BATCH_DEADLINE:
        outcome = Outcome.TIMED_OUT
    elif outcome is Outcome.REJECTED:
        reason = before.reason if before is not None else Reason.DRIVER_LOST
        outcome = Outcome.FAILED if reason is Reason.TOOL_ERROR else Outcome.LOST
        said = before.error if before is not None else None
        words = f"it was not run again: {message or 'it could not be started'}"
        error = f"{said}; {words}" if said else words
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=outcome,
        reason=reason,
        effect=call.left,
        error=error,
        spent=call.spent,
        ran_s=before.used_s if before is not None else 0.0,
        retried=attempts(call),
    )


def attempts(call: CallState) -> int:
    """How many attempts of a call are over."""
    return 0 if call.retried is None else call.retried.attempt


def lost(call: CallState, now: float) -> e.CallSettled:
    """The ending of a call that had begun when its driver was lost, and may not run again."""
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=Outcome.LOST,
        reason=Reason.DRIVER_LOST,
        effect=left_by(call),
        spent=call.spent,
        ran_s=call.meter.ran_s(now) if call.meter is not None else 0.0,
        retried=attempts(call),
    )


def found_done(call: CallState, told: Reconciled, now: float) -> e.CallSettled:
    """The ending of a lost call of which its tool says that it was done after all."""
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.OK,
        effect=Effect.DONE,
        value=told.value,
        spent=call.spent,
        ran_s=call.meter.ran_s(now) if call.meter is not None else 0.0,
        retried=attempts(call),
    )


def retry(call: CallState, ended: BodyEnded, now: float) -> e.CallRetried | None:
    """The next attempt instead of an ending, where the tool wants one and it can do no harm.

    Law 10 no-blind-retry: of a tool that is read-only or idempotent, or where the body failed
    before it had any effect; never after a stop, never when the one deadline is used up.
    """
    contract = call.contract
    if attempts(call) >= contract.retries or ended.how not in (How.RAISED, How.LOST):
        return None
    assert call.meter is not None, "only a started body ends"
    used_s = call.meter.ran_s(now)
    effect = left_by(call)
    harmless = may_run_again(contract) or (ended.how is How.RAISED and effect is Effect.NONE)
    stopped = call.stop_reason or call.run.cancelled or call.batch.cancelled
    spent = contract.deadline_s is not None and used_s >= contract.deadline_s
    if not harmless or stopped or spent or ended.survivors or effect is Effect.DONE:
        return None
    reason = Reason.TOOL_ERROR if ended.how is How.RAISED else Reason.WORKER_LOST
    attempt = attempts(call) + 1
    return e.CallRetried(
        run=call.run.id,
        call=call.id,
        attempt=attempt,
        reason=reason,
        effect=effect,
        delay_s=contract.backoff.delay_s(attempt),
        used_s=used_s,
        error=ended.error,
    )


def left_by(call: CallState) -> Effect:
    """What all attempts of a call that did not return may have left in the world."""
    return worst(call.left, effect_of_stop(call))


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
        retried=attempts(call),
    )


def _classify(call: CallState, how: How) -> tuple[Outcome, Reason, Effect]:
    if how is _RETURNED:
        return _SUCCEEDED, _OK, _DONE
    if how is How.UNSERIALISABLE:
        return Outcome.FAILED, Reason.RESULT_UNSERIALISABLE, Effect.DONE
    # A stop that still waited for the commit block has not touched the body: its error is its own.
    if call.stop_reason is not None and call.rung is not None:
        return stopped_outcome(call.stop_reason), call.stop_reason, left_by(call)
    if how is How.LOST:
        return Outcome.LOST, Reason.WORKER_LOST, left_by(call)
    return Outcome.FAILED, Reason.TOOL_ERROR, left_by(call)


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
        effect=left_by(call),
        stopped_by=StoppedBy.ABANDONED,
        spent=call.spent,
        ran_s=call.meter.ran_s(now),
        alive=True,
        retried=attempts(call),
    )


def answered_by_human(call: CallState, message: str) -> e.CallSettled:
    """The ending of a call that a human answered in place of the tool: nothing was run."""
    assert not call.started, "an answer comes before the start"
    return e.CallSettled(
        run=call.run.id,
        call=call.id,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.ANSWERED_BY_HUMAN,
        effect=call.left,
        value=message,
        spent=call.spent,
        retried=attempts(call),
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


def run_end(run: str, declared: Outcome | None, cancelled: Reason | None) -> e.RunEnded:
    """The ending of a run: as it was declared, else by its cancel, else it has succeeded.

    `declared` counts only where it came before the cancel (law 3 one-ending).
    """
    if declared is not None:
        reason = Reason.OK if declared is Outcome.SUCCEEDED else Reason.DECLARED
        return e.RunEnded(run=run, outcome=declared, reason=reason)
    if cancelled is None:
        return e.RunEnded(run=run, outcome=Outcome.SUCCEEDED, reason=Reason.OK)
    lost = cancelled is Reason.DRIVER_LOST
    return e.RunEnded(
        run=run, outcome=Outcome.LOST if lost else Outcome.CANCELLED, reason=cancelled
    )


def _strength(mode: Mode) -> int:
    return (Mode.DRAIN, Mode.INTERRUPT, Mode.KILL).index(mode)
