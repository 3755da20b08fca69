"""Applies events to the state. Nothing else changes it.

Pure: an event is applied the same way whether it has just been decided or is read from a journal.
`evolve` never decides anything; where an event frees something, whoever waits for it moves up, and
`decide.follow` then says what happens because of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from endstop.core import again, gate, pauses, remembered, runs, suspending
from endstop.core import events as e
from endstop.core.books import add_money, close_books
from endstop.core.deadlines import Meter
from endstop.core.rules import MOVES
from endstop.core.state import BatchState, CallState, Stage, State
from endstop.core.terms import Commit, Effect, Mode, Phase, StoppedBy

# Python 3.11 finds an enum member at several times the cost of a global, and these are on the path
# of every call.
_PREPARING, _AWAITING = Phase.PREPARING, Phase.AWAITING_APPROVAL
_ORDER, _THROUGH = Stage.ORDER, Stage.THROUGH
_UNKNOWN = Effect.UNKNOWN
_QUEUES, _GRANTS = MOVES[e.CallQueued], MOVES[e.CallGranted]
_STARTS, _SETTLES = MOVES[e.CallStarted], MOVES[e.CallSettled]


def evolve(state: State, event: e.Event, now: float) -> None:
    """Apply one event at the instant `now`.

    Raises `IllegalMove`, and changes nothing, where the rules table does not allow it.
    """
    APPLY[type(event)](state, event, now)


def _call(state: State, event: e.CallEvent) -> CallState:
    """The call of an event, moved to its next phase."""
    call = state.calls[event.call]
    call.phase = MOVES[type(event)][call.phase]
    return call


def _batch_opened(state: State, event: e.BatchOpened, now: float) -> None:
    run = state.runs[event.run]
    batch = BatchState(event, run, now)
    assert event.batch == f"{run.id}/{len(run.batches)}", "batches are numbered without a gap"
    run.batches.append(batch)
    run.open_batches += 1
    state.timers.set(batch, batch.meter.due_at(batch.deadline_s))
    if batch.size == 0:
        state.check_batches.append(batch)


def _batch_cancelled(state: State, event: e.BatchCancelled, now: float) -> None:
    batch = state.batch(event.batch)
    assert batch is not None
    assert not batch.closed, "only an open batch is cancelled"
    batch.cancelled = batch.cancelled or event.reason
    batch.mode = event.mode
    if event.mode is not Mode.DRAIN:
        state.timers.set(batch, None)


def _batch_closed(state: State, event: e.BatchClosed, now: float) -> None:
    batch = state.batch(event.batch)
    assert batch is not None
    assert not batch.closed, "a batch closes once"
    assert batch.unsettled == 0, "a batch closes when all its calls are settled"
    batch.closed = True
    batch.run.open_batches -= 1
    state.timers.set(batch, None)
    state.check_runs.append(batch.run)


def _call_accepted(state: State, event: e.CallAccepted, now: float) -> None:
    # The batch was opened by the event before: it is the newest of its run.
    batch = state.runs[event.run].batches[-1]
    assert batch.id == event.batch, "calls are accepted right after their batch is opened"
    assert len(batch.calls) == event.index, "calls are accepted in order"
    call = CallState(event, batch, now)
    batch.calls.append(call)
    state.calls[call.id] = call
    if len(batch.calls) == batch.size:
        gate.move_horizon(state, batch, now)


def _hook_started(state: State, event: e.HookStarted, now: float) -> None:
    call = _call(state, event)
    call.hook = event.hook
    state.timers.set(call, None if event.limit_s is None else now + event.limit_s)


def _approval_asked(state: State, event: e.ApprovalAsked, now: float) -> None:
    call = _call(state, event)
    _rewrite(state, call, event, now)
    call.approval = event.digest
    state.approvals[call.id] = event
    call.hook = None
    call.phase_at = now
    pauses.human_began(state, call.batch, now)
    state.timers.set(call, None if event.expires_s is None else now + event.expires_s)


def _approval_answered(state: State, event: e.ApprovalAnswered, now: float) -> None:
    call = _call(state, event)
    assert call.approval == event.digest, "an answer belongs to the question that was asked"
    call.approval = None
    del state.approvals[call.id]
    state.timers.set(call, None)
    pauses.human_ended(state, call.batch, now)


def _call_queued(state: State, event: e.CallQueued, now: float) -> None:
    call = state.calls[event.call]
    call.phase = _QUEUES[call.phase]
    if event.arguments is not None:
        _rewrite(state, call, event, now)
    call.hook = None
    call.stage = _ORDER
    call.phase_at = now
    if call.due is not None:
        state.timers.set(call, None)
    batch = call.batch
    batch.unprepared -= 1
    if batch.together and batch.unprepared == 0:
        gate.move_horizon(state, batch, now)
    freed = gate.move(state, call, now)
    if freed:
        gate.walk(state, freed, now)


def _call_granted(state: State, event: e.CallGranted, now: float) -> None:
    call = state.calls[event.call]
    call.phase = _GRANTS[call.phase]
    gate.take_slot(state, call)
    call.stage = _THROUGH
    call.earlier = event.earlier
    if call.retried is None:
        # Attempts of one call are paid once (law 20): what the first took, the others have.
        call.reserved = event.reserved
        call.run.budget.reserve(call.tool, event.reserved)
    start_s = call.contract.start_s
    if start_s is not None:
        state.timers.set(call, now + start_s)


def _call_started(state: State, event: e.CallStarted, now: float) -> None:
    call = state.calls[event.call]
    call.phase = _STARTS[call.phase]
    assert not call.started, "a body starts at most once per attempt"
    call.started = call.alive = True
    call.meter = Meter(now if call.retried is None else now - call.retried.used_s)
    call.progress_at = now
    pauses.arm_running(state, call)


def _call_retried(state: State, event: e.CallRetried, now: float) -> None:
    call = _call(state, event)
    if call.due is not None:
        state.timers.set(call, None)
    if call.meter is not None and call.meter.paused:
        pauses.void(state, call, now)
    call.retried = event
    call.left = event.effect
    call.started = call.alive = call.parked = False
    call.meter = None
    call.humans = 0
    call.commit = Commit.NONE
    gate.leave(state, call, now)
    call.stage = Stage.RESTING
    gate.release(state, call, now)
    if event.delay_s > 0:
        call.phase_at = now
        state.timers.set(call, now + event.delay_s)
    else:
        gate.line_up(state, call, now)


def _call_reconciled(state: State, event: e.CallReconciled, now: float) -> None:
    _call(state, event)


def _call_progressed(state: State, event: e.CallProgressed, now: float) -> None:
    call = _call(state, event)
    call.progress_at = now
    if call.contract.idle_s is not None:
        pauses.arm_running(state, call)


def _commit_began(state: State, event: e.CommitBegan, now: float) -> None:
    call = _call(state, event)
    call.commit = Commit.INSIDE


def _commit_ended(state: State, event: e.CommitEnded, now: float) -> None:
    call = _call(state, event)
    # A block that raised leaves it open whether the effect happened (law 5 honest-effect).
    call.commit = Commit.DONE if event.done else Commit.FAILED


def _call_spent(state: State, event: e.CallSpent, now: float) -> None:
    call = _call(state, event)
    if call.assumed is not None:
        # What was taken for spent at the end gives way to what is reported after it.
        call.run.budget.unspend(call.assumed)
        call.assumed = None
    call.spent = add_money(call.spent, event.money)
    call.run.budget.spend(event.money)


def _call_parked(state: State, event: e.CallParked, now: float) -> None:
    call = _call(state, event)
    call.parked = True
    _free_slot(state, call)


def _unpark_asked(state: State, event: e.UnparkAsked, now: float) -> None:
    call = _call(state, event)
    assert call.parked, "only a parked body asks to go on"
    gate.line_up_again(state, call)


def _call_unparked(state: State, event: e.CallUnparked, now: float) -> None:
    call = _call(state, event)
    gate.take_slot(state, call)
    call.parked = False


def _stop_requested(state: State, event: e.StopRequested, now: float) -> None:
    call = _call(state, event)
    assert call.stop_reason is None, "the first reason wins"
    call.stop_reason = event.reason
    call.phase_at = now
    waits = call.commit is Commit.INSIDE
    state.timers.set(call, now + call.contract.commit_s if waits else None)


def _ask_sent(state: State, event: e.AskSent, now: float) -> None:
    call = _call(state, event)
    assert call.rung is None, "a body is asked once"
    call.rung = StoppedBy.ASKED
    state.timers.set(call, now + event.grace_s)


def _kill_sent(state: State, event: e.KillSent, now: float) -> None:
    call = _call(state, event)
    assert call.rung is not StoppedBy.KILLED, "a worker is killed once"
    call.rung = StoppedBy.KILLED
    state.timers.set(call, now + call.contract.kill_s)


def _call_settled(state: State, event: e.CallSettled, now: float) -> None:
    call = state.calls[event.call]
    before = call.phase
    call.phase = _SETTLES[before]
    assert call.settled is None, "a call ends once (law 3 one-ending)"
    call.settled = event
    batch = call.batch
    if call.due is not None:
        state.timers.set(call, None)
    if before is _PREPARING or before is _AWAITING:
        batch.unprepared -= 1
        state.approvals.pop(call.id, None)
    if before is _AWAITING or (call.meter is not None and call.meter.paused):
        pauses.void(state, call, now)
    call.approval = None
    call.alive = event.alive
    if event.effect is _UNKNOWN or event.alive:
        again.remember(call, event)
    gate.leave(state, call, now)
    if not event.alive:
        close_books(call, event)
        gate.release(state, call, now)
    elif call.slot:
        state.slots[call.contract.isolation].abandoned += 1
    batch.unsettled -= 1
    if batch.unsettled == 0 and len(batch.calls) == batch.size:
        state.check_batches.append(batch)
    if call.run.suspending:
        state.check_runs.append(call.run)


def _late_end(state: State, event: e.LateEnd, now: float) -> None:
    call = _call(state, event)
    assert call.alive, "only an abandoned worker ends late"
    assert call.settled is not None
    call.alive = False
    if call.slot:
        state.slots[call.contract.isolation].abandoned -= 1
    close_books(call, call.settled)
    gate.release(state, call, now)


def _rewrite(
    state: State, call: CallState, event: e.ApprovalAsked | e.CallQueued, now: float
) -> None:
    """Take over final arguments; where they want other things, keep the call's place in order."""
    assert call.stage is Stage.OUTSIDE, "arguments are final once a call is queued"
    call.arguments = event.arguments
    call.cost = event.cost
    claims = event.claims or ()
    if call.claims != claims:
        call.claims = claims
        gate.reorder(state, call, now)


def _free_slot(state: State, call: CallState) -> None:
    assert call.slot, "only a held slot is given back"
    call.slot = False
    state.slots[call.contract.isolation].taken -= 1


APPLY: dict[type, Callable[[State, Any, float], None]] = {
    e.RunOpened: runs.opened,
    e.RunCancelled: runs.cancelled,
    e.RunClosing: runs.closing,
    e.RunSuspending: suspending.suspending,
    e.RunInterrupted: suspending.interrupted,
    e.RunResumed: runs.resumed,
    e.RunEnded: runs.ended,
    e.Noted: runs.noted,
    e.RuleMade: remembered.made,
    e.RuleRevoked: remembered.revoked,
    e.BatchOpened: _batch_opened,
    e.BatchCancelled: _batch_cancelled,
    e.BatchClosed: _batch_closed,
    e.CallAccepted: _call_accepted,
    e.HookStarted: _hook_started,
    e.ApprovalAsked: _approval_asked,
    e.ApprovalAnswered: _approval_answered,
    e.CallQueued: _call_queued,
    e.CallGranted: _call_granted,
    e.CallStarted: _call_started,
    e.CallRetried: _call_retried,
    e.CallReconciled: _call_reconciled,
    e.CallPaused: pauses.call_paused,
    e.CallResumed: pauses.call_resumed,
    e.QuestionAsked: pauses.question_asked,
    e.QuestionAnswered: pauses.question_over,
    e.QuestionWithdrawn: pauses.question_over,
    e.CallProgressed: _call_progressed,
    e.CommitBegan: _commit_began,
    e.CommitEnded: _commit_ended,
    e.CallSpent: _call_spent,
    e.CallParked: _call_parked,
    e.UnparkAsked: _unpark_asked,
    e.CallUnparked: _call_unparked,
    e.StopRequested: _stop_requested,
    e.AskSent: _ask_sent,
    e.KillSent: _kill_sent,
    e.CallSettled: _call_settled,
    e.LateEnd: _late_end,
}
