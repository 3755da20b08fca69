"""Decides what happens because of an input. Nothing here changes the state.

One function per input, each from (state, input, now) to the events that follow at once. What
follows from those in turn (a call that can be granted, a batch that is complete, a run that is
over) is found by `follow`, one event at a time until there is none. `step` does both and applies
every event as it goes: it is the only entry that drivers use.

An input that comes too late, twice, or for a call that has moved on decides nothing: it is not an
error, it is the normal case of a race that somebody else won (law 3 one-ending).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from endstop.core import again, calls, gate, questions, remembered, runs, settling, suspending
from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.evolve import APPLY
from endstop.core.record import maker
from endstop.core.state import BatchState, CallState, RunState, Slots, State
from endstop.core.terms import CANCEL_REASONS, Effect, Mode, Phase, Reason
from endstop.errors import CallerError, NotFound, RunSuspended

# Python 3.11 finds an enum member at several times the cost of a global, and these are on the path
# of every call.
_QUEUED = Phase.QUEUED
_accepted, _queued, _granted = maker(e.CallAccepted), maker(e.CallQueued), maker(e.CallGranted)


def step(state: State, said: i.Input, now: float) -> list[e.Event]:
    """Decide what an input means, apply it and all that follows; returns the events in order.

    Raises `NotFound` or `CallerError`, with nothing changed, for a target that does not exist or a
    run that takes no more work.
    """
    if type(said) is i.Tick:
        return _tick(state, now)
    if type(said) is i.Together:
        return _together(state, said, now)
    found = _DECIDE[type(said)](state, said, now)
    if found:
        _apply(state, found, now)
    return found


def _apply(state: State, found: list[e.Event], now: float) -> None:
    """Apply events and, one by one, what follows from them; adds the latter to `found`."""
    for event in found:
        APPLY[type(event)](state, event, now)
    while (following := follow(state, now)) is not None:
        APPLY[type(following)](state, following, now)
        found.append(following)


def _together(state: State, said: i.Together, now: float) -> list[e.Event]:
    """Decide one after the other, up to the first that comes to nothing."""
    happened: list[e.Event] = []
    for one in said.inputs:
        try:
            found = step(state, one, now)
        except (CallerError, NotFound):
            if not happened:
                raise
            # What came before it has happened, and must be recorded.
            break
        if not found:
            break
        happened += found
    return happened


def _tick(state: State, now: float) -> list[e.Event]:
    """Let everything happen that is due, one item at a time: an earlier one may settle a later."""
    happened: list[e.Event] = []
    while (item := state.timers.take_due(now)) is not None:
        found: list[e.Event] = []
        if isinstance(item, BatchState):
            found = settling.cancel_batch(item, Reason.BATCH_DEADLINE, Mode.INTERRUPT, now)
        elif isinstance(item, CallState):
            found = calls.due(state, item, now)
            if not found:
                gate.rearm_wait(state, item, now)
        _apply(state, found, now)
        happened += found
    return happened


def decide(state: State, said: i.Input, now: float) -> list[e.Event]:
    """The events that follow at once from an input."""
    return _DECIDE[type(said)](state, said, now)


def follow(state: State, now: float) -> e.Event | None:
    """The next event that follows from the state alone, or None when all is at rest."""
    for slots in state.lines:
        if slots.line and slots.moves:
            return _let_through(state, next(iter(slots.line.values())), slots)
    if not (state.check_batches or state.check_runs):
        return None
    while state.check_batches:
        batch = state.check_batches[0]
        if not batch.closed:
            return e.BatchClosed(run=batch.run.id, batch=batch.id)
        state.check_batches.popleft()
    while state.check_runs:
        run = state.check_runs[0]
        if not run.ended and run.open_batches == 0 and (run.closing or run.cancelled):
            return settling.run_end(run.id, run.declared, run.cancelled)
        if run.suspending and suspending.is_quiet(run):
            return e.RunInterrupted(run=run.id, clean=True)
        state.check_runs.popleft()
    return None


def _let_through(state: State, call: CallState, slots: Slots) -> e.Event:
    """The decision at the gate, taken with everything in view (law 1 one-door)."""
    run = call.run.id
    if call.phase is not _QUEUED:
        return e.CallUnparked(run=run, call=call.id)
    reason = gate.forbidden(call)
    if reason is not None:
        return settling.unstarted(call, reason)
    if not slots.free:
        held = f"all {slots.limit} {call.contract.isolation} slots are held by abandoned calls"
        return settling.unstarted(call, Reason.SATURATED, held)
    earlier = None
    if call.run.unsure is not None:
        earlier = again.earlier_of(call.run, call.tool, call.arguments, call.contract)
        if earlier is not None and (alive := again.still_lives(state, earlier)):
            return settling.unstarted(call, Reason.EARLIER_ATTEMPT_ALIVE, alive)
    if call.retried is not None:
        # Counted and paid for with its first attempt (law 20 paid-once).
        return _granted(run=run, call=call.id, reserved=call.reserved, earlier=earlier)
    too_dear = call.run.budget.refuses(call.tool, call.cost)
    if too_dear is not None:
        return settling.unstarted(call, Reason.OVER_BUDGET, too_dear)
    return _granted(run=run, call=call.id, reserved=call.cost, earlier=earlier)


def _open_run(state: State, said: i.OpenRun, now: float) -> list[e.Event]:
    if said.run in state.runs:
        raise CallerError(f"run {said.run} is open already; give every run an id of its own")
    if not said.run or "/" in said.run:
        raise CallerError(f"{said.run!r} is no run id: it must not be empty nor contain '/'")
    parent = None
    if said.parent_call is not None:
        parent = state.calls.get(said.parent_call)
        if parent is None:
            raise NotFound(f"call {said.parent_call}, the parent of run {said.run}, is not here")
    opened = e.RunOpened(
        run=said.run,
        parent_call=said.parent_call,
        detached=said.detached,
        limits=said.limits,
        after=said.after,
        inherited=said.inherited,
        labels=said.labels,
    )
    if parent is None or said.detached or parent.phase is Phase.RUNNING:
        return [opened]
    # The parent is being stopped or is over: the child is born cancelled (law 17).
    reason = Reason.PARENT_CANCELLED
    return [opened, e.RunCancelled(run=said.run, reason=reason, mode=Mode.INTERRUPT)]


def _submit_batch(state: State, said: i.SubmitBatch, now: float) -> list[e.Event]:
    run = runs.open_run(state, said.run)
    if run.suspending or run.let_go:
        raise RunSuspended(f"run {run.id} was suspended; resume it to go on with it")
    if run.cancelled is None and (run.closing or run.ended):
        raise CallerError(f"run {run.id} is closed and takes no more batches; open a new one")
    if said.parallel is not None and said.parallel < 1:
        raise CallerError(f"parallel={said.parallel} lets nothing run; use 1 or more, or None")
    batch = f"{run.id}/{len(run.batches)}"
    opened = e.BatchOpened(
        run=run.id,
        batch=batch,
        size=len(said.calls),
        parallel=said.parallel,
        deadline_s=said.deadline_s,
        together=said.together,
        stop_on_failure=said.stop_on_failure,
    )
    accepted = [
        _accepted(
            run=run.id,
            call=f"{batch}.{index}",
            batch=batch,
            index=index,
            model_id=asked.model_id,
            tool=asked.tool,
            arguments=asked.arguments,
            contract=asked.contract,
            claims=asked.claims,
            cost=asked.cost,
        )
        for index, asked in enumerate(said.calls)
    ]
    found: list[e.Event] = [opened, *accepted]
    for asked, taken in zip(said.calls, accepted, strict=True):
        call = taken.call
        if asked.refusal is not None:
            found.append(
                _refused_at_once(run.id, call, asked.refusal.reason, asked.refusal.message)
            )
        elif run.cancelled is not None:
            found.append(_refused_at_once(run.id, call, run.cancelled, None))
        elif run.unsure is not None and (alive := _earlier_lives(state, run, asked)):
            # Asked now as well as at the gate: it may hold what this call would wait for.
            reason = Reason.EARLIER_ATTEMPT_ALIVE
            found.append(_refused_at_once(run.id, call, reason, alive))
        elif asked.ready:
            found.append(_queued(run=run.id, call=call))
    return found


def _earlier_lives(state: State, run: RunState, asked: i.Asked) -> str | None:
    earlier = again.earlier_of(run, asked.tool, asked.arguments, asked.contract)
    return None if earlier is None else again.still_lives(state, earlier)


def _refused_at_once(run: str, call: str, reason: Reason, message: str | None) -> e.CallSettled:
    return e.CallSettled(
        run=run,
        call=call,
        outcome=settling.unstarted_outcome(reason),
        reason=reason,
        effect=Effect.NONE,
        error=message,
    )


def _cancel(state: State, said: i.Cancel, now: float) -> list[e.Event]:
    if said.reason not in CANCEL_REASONS:
        known = ", ".join(sorted(CANCEL_REASONS))
        raise CallerError(f"{said.reason} is no reason for a cancel; use one of {known}")
    if said.target in state.runs:
        return settling.cancel_run(state.runs[said.target], said.reason, said.mode, now)
    call = state.calls.get(said.target)
    if call is not None:
        stops = settling.stop_call(call, said.reason, said.mode, now)
        return settling.with_siblings(call, stops, now)
    batch = state.batch(said.target)
    if batch is None:
        raise NotFound(f"nothing here has the id {said.target!r}")
    return settling.cancel_batch(batch, said.reason, said.mode, now)


def _run_fenced(state: State, said: i.RunFenced, now: float) -> list[e.Event]:
    run = state.runs.get(said.run)
    if run is None:
        return []
    return settling.cancel_run(run, Reason.DRIVER_LOST, Mode.INTERRUPT, now)


def _resume_run(state: State, said: i.ResumeRun, now: float) -> list[e.Event]:
    """What had begun and may run again stands in line first; then the rest of the run goes on."""
    run = runs.open_run(state, said.run)
    assert run.cancelled is None, "a cancelled run is ended, not resumed"
    found: list[e.Event] = []
    for batch in run.batches:
        if not batch.closed:
            found += calls.taken_up(batch, said, now)
    return [*found, e.RunResumed(run=run.id)]


_DECIDE: dict[type, Callable[[State, Any, float], list[e.Event]]] = {
    i.OpenRun: _open_run,
    i.SubmitBatch: _submit_batch,
    i.Cancel: _cancel,
    i.CloseRun: runs.close,
    i.SuspendRun: suspending.suspend,
    i.Note: runs.note,
    i.RunFenced: _run_fenced,
    i.ResumeRun: _resume_run,
    i.HookBegan: calls.hook_began,
    i.Prepared: calls.prepared,
    i.Refused: calls.refused,
    i.Answered: calls.answered,
    i.RevokeRule: remembered.revoke,
    i.Claimed: calls.claimed,
    i.StartFailed: calls.start_failed,
    i.BodyEnded: calls.body_ended,
    i.Progressed: calls.progressed,
    i.HumanBegan: calls.human_began,
    i.HumanEnded: calls.human_ended,
    i.QuestionBegan: questions.began,
    i.QuestionTold: questions.told,
    i.QuestionLeft: questions.left,
    i.CommitEntered: calls.commit_entered,
    i.CommitLeft: calls.commit_left,
    i.Spent: calls.spent,
    i.ParkBegan: calls.park_began,
    i.ParkEnded: calls.park_ended,
}
