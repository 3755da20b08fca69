"""Decides what inputs about one call mean. Part of `decide.py`; nothing here changes the state.

Every function answers the same question: does this input still concern the call in the phase that
it is in? If not, nothing follows from it.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core import gate, remembered, runs, settling
from endstop.core import inputs as i
from endstop.core.record import maker
from endstop.core.state import BatchState, CallState, State
from endstop.core.terms import Commit, Mode, Phase, Reason, StoppedBy, Verdict

# Python 3.11 finds an enum member at several times the cost of a global, and these are on the path
# of every call.
_GRANTED, _SETTLED = Phase.GRANTED, Phase.SETTLED
_BEGUN = frozenset({Phase.GRANTED, Phase.RUNNING, Phase.STOPPING})
_started = maker(e.CallStarted)


def hook_began(state: State, said: i.HookBegan, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.PREPARING or call.run.suspending:
        return []
    return [e.HookStarted(run=call.run.id, call=call.id, hook=said.hook, limit_s=said.limit_s)]


def prepared(state: State, said: i.Prepared, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.PREPARING or call.run.suspending:
        return []
    if said.approval is None:
        return [
            e.CallQueued(
                run=call.run.id,
                call=call.id,
                arguments=said.arguments,
                claims=said.claims,
                cost=said.cost,
            )
        ]
    asked = e.ApprovalAsked(
        run=call.run.id,
        call=call.id,
        digest=said.approval.digest,
        prompt=said.approval.prompt,
        expires_s=said.approval.expires_s,
        arguments=said.arguments,
        claims=said.claims,
        cost=said.cost,
    )
    return [asked, *remembered.by_rule(state, call, asked, now)]


def refused(state: State, said: i.Refused, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase not in (Phase.PREPARING, Phase.AWAITING_APPROVAL):
        return []
    if call.run.suspending:
        return []
    return [settling.unstarted(call, said.refusal.reason, said.refusal.message)]


def answered(state: State, said: i.Answered, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.AWAITING_APPROVAL or call.approval != said.digest:
        return []
    if call.run.suspending:
        # It is still asked when the run is taken up again, and can be answered then.
        return []
    run = call.run.id
    answered = e.ApprovalAnswered(
        run=run,
        call=call.id,
        digest=said.digest,
        verdict=said.verdict,
        message=said.message,
        by=said.by,
        final=said.final,
    )
    match said.verdict:
        case Verdict.APPROVE:
            return [
                answered,
                *remembered.made_by(call, said),
                e.CallQueued(run=run, call=call.id),
            ]
        case Verdict.EDIT:
            assert said.arguments is not None, "an edit carries the new arguments"
            queued = e.CallQueued(
                run=run,
                call=call.id,
                arguments=said.arguments,
                claims=said.claims,
                cost=said.cost,
            )
            return [answered, queued]
        case Verdict.REJECT:
            return [answered, settling.unstarted(call, Reason.DENIED_BY_HUMAN, said.message)]
        case Verdict.RESPOND:
            ending = settling.answered_by_human(call, said.message)
            return [answered, ending]


def claimed(state: State, said: i.Claimed, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not _GRANTED or gate.forbidden(call):
        return []
    return [_started(run=call.run.id, call=call.id)]


def start_failed(state: State, said: i.StartFailed, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.GRANTED:
        return []
    reason = Reason.SATURATED if said.saturated else Reason.START_FAILED
    return [settling.unstarted(call, reason, said.message)]


def body_ended(state: State, said: i.BodyEnded, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or not call.alive:
        return []
    if call.phase is _SETTLED:
        return [
            e.LateEnd(
                run=call.run.id,
                call=call.id,
                how=said.how,
                error=said.error,
                survivors=said.survivors,
            )
        ]
    again = settling.retry(call, said, now) if call.contract.retries else None
    found: list[e.Event] = []
    for one in said.said:
        if isinstance(one, i.Note):
            found += runs.note(state, one, now)
        elif not any(type(event) is e.RunClosing for event in found):
            # None of these is applied yet: a second word would not know of the first.
            found += runs.close(state, one, now)
    found.append(again or settling.body_end(call, said, now))
    if call.children is not None:
        found += settling.stop_children(call, Mode.INTERRUPT, now)
    return settling.with_siblings(call, found, now)


def progressed(state: State, said: i.Progressed, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.RUNNING:
        return []
    return [
        e.CallProgressed(
            run=call.run.id, call=call.id, message=said.message, fraction=said.fraction
        )
    ]


def human_began(state: State, said: i.HumanBegan, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.RUNNING:
        return []
    return [e.CallPaused(run=call.run.id, call=call.id, why=said.why)]


def human_ended(state: State, said: i.HumanEnded, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase not in (Phase.RUNNING, Phase.STOPPING):
        return []
    if call.humans <= len(state.questions.get(call.id, ())):
        return []
    return [e.CallResumed(run=call.run.id, call=call.id)]


def commit_entered(state: State, said: i.CommitEntered, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.RUNNING or call.commit is Commit.INSIDE:
        return []
    return [e.CommitBegan(run=call.run.id, call=call.id)]


def commit_left(state: State, said: i.CommitLeft, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase not in (Phase.RUNNING, Phase.STOPPING):
        return []
    if call.commit is not Commit.INSIDE:
        return []
    found: list[e.Event] = [e.CommitEnded(run=call.run.id, call=call.id, done=said.done)]
    if call.phase is Phase.STOPPING and call.rung is None:
        found.append(settling.ask(call))
    return found


def spent(state: State, said: i.Spent, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or not call.started:
        return []
    late = call.phase is Phase.SETTLED
    return [e.CallSpent(run=call.run.id, call=call.id, money=said.money, late=late)]


def park_began(state: State, said: i.ParkBegan, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase is not Phase.RUNNING or call.parked:
        return []
    return [e.CallParked(run=call.run.id, call=call.id)]


def park_ended(state: State, said: i.ParkEnded, now: float) -> list[e.Event]:
    call = state.calls.get(said.call)
    if call is None or call.phase not in (Phase.RUNNING, Phase.STOPPING) or not call.parked:
        return []
    return [e.UnparkAsked(run=call.run.id, call=call.id)]


def taken_up(batch: BatchState, said: i.ResumeRun, now: float) -> list[e.Event]:
    """What becomes of the calls of an open batch when its run is resumed.

    Those that may have begun are asked for, tried again or lost; those that cannot go on here are
    refused; the others wait for their turn as before (law 10 no-blind-retry).
    """
    told = {one.call: one for one in said.reconciled}
    refused = dict(said.refused)
    found: list[e.Event] = []
    for call in batch.calls:
        if call.phase in _BEGUN:
            found += _lost_attempt(call, told.get(call.id), call.id in said.again, now)
        elif call.id in refused and call.phase is not Phase.SETTLED:
            refusal = refused[call.id]
            found.append(settling.unstarted(call, refusal.reason, refusal.message))
    over = [call.settled for call in batch.calls if call.settled is not None]
    over += [event for event in found if isinstance(event, e.CallSettled)]
    if batch.stop_on_failure and any(one.outcome in settling.FAILURES for one in over):
        return _sibling_failed(batch, found, now)
    return found


def _sibling_failed(batch: BatchState, found: list[e.Event], now: float) -> list[e.Event]:
    """The crash is a failure of who was lost by it: in such a batch nobody else goes on."""
    reason = Reason.SIBLING_FAILED
    ends: list[e.Event] = [event for event in found if not isinstance(event, e.CallRetried)]
    ended = {event.call for event in ends if isinstance(event, e.CallSettled)}
    if batch.cancelled is None:
        ends.append(
            e.BatchCancelled(run=batch.run.id, batch=batch.id, reason=reason, mode=Mode.INTERRUPT)
        )
    for call in batch.calls:
        if call.phase is Phase.SETTLED or call.id in ended:
            continue
        begun = call.phase in _BEGUN
        ends.append(settling.lost(call, now) if begun else settling.unstarted(call, reason))
    return ends


def _lost_attempt(
    call: CallState, told: i.Reconciled | None, again: bool, now: float
) -> list[e.Event]:
    assert call.meter is not None, "a call that may have begun has a meter"
    used_s = call.meter.ran_s(now)
    found: list[e.Event] = []
    left = settling.left_by(call)
    if told is not None:
        found.append(
            e.CallReconciled(run=call.run.id, call=call.id, done=told.done, error=told.error)
        )
        if told.done:
            return [*found, settling.found_done(call, told, now)]
        again = told.done is False
        left = call.left
    deadline_s = call.contract.deadline_s
    if not again or (deadline_s is not None and used_s >= deadline_s):
        return [*found, settling.lost(call, now)]
    retried = e.CallRetried(
        run=call.run.id,
        call=call.id,
        attempt=settling.attempts(call) + 1,
        reason=Reason.DRIVER_LOST,
        effect=left,
        used_s=used_s,
        error="the program that drove it was gone before it ended",
    )
    return [*found, retried]


def due(state: State, call: CallState, now: float) -> list[e.Event]:
    """What happens to a call whose timer ran out, by the phase that it is in."""
    match call.phase:
        case Phase.PREPARING:
            words = f"{call.hook} did not answer in time"
            return [settling.unstarted(call, Reason.HOOK_FAILED, words)]
        case Phase.AWAITING_APPROVAL:
            return [settling.unstarted(call, Reason.APPROVAL_EXPIRED)]
        case Phase.QUEUED:
            return _waited_too_long(state, call, now)
        case Phase.GRANTED:
            words = f"no worker took it within {call.contract.start_s:g} s"
            return [settling.unstarted(call, Reason.START_FAILED, words)]
        case Phase.RUNNING:
            return settling.stop_call(call, _ran_out_of(call, now), Mode.INTERRUPT, now)
        case Phase.STOPPING if call.rung is None:
            # The commit block had its bound; what it did is unknown now (law 6 bounded-stop).
            return [settling.ask(call)]
        case Phase.STOPPING if call.rung is StoppedBy.ASKED:
            return settling.with_siblings(call, settling.last_rungs(call, now), now)
        case Phase.STOPPING:
            return settling.with_siblings(call, [settling.abandoned(call, now)], now)
        case Phase.SETTLED:
            return []


def _waited_too_long(state: State, call: CallState, now: float) -> list[e.Event]:
    claim = gate.overdue_claim(state, call, now)
    if claim is None:
        return []
    words = f"{claim.resource} was not free within {claim.wait_s:g} s"
    return [settling.unstarted(call, Reason.RESOURCE_TIMEOUT, words)]


def _ran_out_of(call: CallState, now: float) -> Reason:
    assert call.meter is not None, "a running call has a meter"
    due_at = call.meter.due_at(call.contract.deadline_s)
    return Reason.DEADLINE if due_at is not None and due_at <= now else Reason.IDLE
