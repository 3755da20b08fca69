"""Pauses: the time of a body and of a batch stands still while a human thinks (law 8 machine-time).

Pure, and part of `evolve.py`: these are the parts of events that have to do with running time. A
human who is asked by a child keeps its parents waiting, so their time stands still as well; nobody
waits for a detached run.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.rules import next_phase
from endstop.core.state import BatchState, CallState, State
from endstop.core.terms import Mode, Phase


def arm_running(state: State, call: CallState) -> None:
    """Set the timer of a running body to its deadline or its idle limit, whichever is first."""
    meter, contract = call.meter, call.contract
    assert meter is not None, "a running call has a meter"
    due = meter.due_at(contract.deadline_s)
    if contract.idle_s is not None and not meter.paused:
        idle = call.progress_at + contract.idle_s
        due = idle if due is None else min(due, idle)
    state.timers.set(call, due)


def pause(state: State, call: CallState, now: float) -> None:
    """Stop the time of a body, and of all who wait for it."""
    assert call.meter is not None, "only a body that began is paused"
    if not call.meter.paused:
        human_began(state, call.batch, now)
    call.meter.pause(now)
    if call.phase is Phase.RUNNING:
        arm_running(state, call)


def resume(state: State, call: CallState, now: float) -> None:
    """End one pause of a body; its time runs again after the last."""
    assert call.meter is not None, "only a body that began is paused"
    call.meter.resume(now)
    call.progress_at = now
    if not call.meter.paused:
        human_ended(state, call.batch, now)
    if call.phase is Phase.RUNNING:
        arm_running(state, call)


def call_paused(state: State, event: e.CallPaused, now: float) -> None:
    """A body waits for a human."""
    call = state.calls[event.call]
    call.phase = next_phase(call.phase, event)
    call.humans += 1
    pause(state, call, now)


def call_resumed(state: State, event: e.CallResumed, now: float) -> None:
    """One such wait is over."""
    call = state.calls[event.call]
    call.phase = next_phase(call.phase, event)
    assert call.humans > 0, "a wait ends that began"
    call.humans -= 1
    resume(state, call, now)


def question_asked(state: State, event: e.QuestionAsked, now: float) -> None:
    """A body asks and waits."""
    call = state.calls[event.call]
    call.phase = next_phase(call.phase, event)
    state.questions.setdefault(call.id, {})[event.question] = event
    call.humans += 1
    pause(state, call, now)


def question_over(
    state: State, event: e.QuestionAnswered | e.QuestionWithdrawn, now: float
) -> None:
    """A question has its answer, or nobody waits for one any more."""
    call = state.calls[event.call]
    call.phase = next_phase(call.phase, event)
    mine = state.questions[call.id]
    del mine[event.question]
    if not mine:
        del state.questions[call.id]
    assert call.humans > 0, "an open question is a wait for a human"
    call.humans -= 1
    resume(state, call, now)


def void(state: State, call: CallState, now: float) -> None:
    """The body is over or asks no more: whatever it waited for, its batch waits no more."""
    state.questions.pop(call.id, None)
    human_ended(state, call.batch, now)


def _waiting_parent(batch: BatchState) -> CallState | None:
    """The body that waits for this batch: a human who is asked here keeps it waiting, too."""
    parent = batch.run.parent if batch.run.attached else None
    if parent is None or not parent.started or parent.phase is Phase.SETTLED:
        return None
    return parent


def human_began(state: State, batch: BatchState, now: float) -> None:
    """A human is asked something in a batch: its time stands still, and that of its parents."""
    batch.meter.pause(now)
    state.timers.set(batch, None)
    parent = _waiting_parent(batch)
    if parent is not None:
        pause(state, parent, now)


def human_ended(state: State, batch: BatchState, now: float) -> None:
    """One question in a batch is over."""
    batch.meter.resume(now)
    if not batch.closed and batch.mode in (None, Mode.DRAIN):
        state.timers.set(batch, batch.meter.due_at(batch.deadline_s))
    parent = _waiting_parent(batch)
    if parent is not None:
        resume(state, parent, now)
