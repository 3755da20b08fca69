"""Letting a run go: what has not begun stays as it is, for whoever takes the run up again.

Part of `decide.py` and `evolve.py`, pure as they are. Where nothing of a run runs, it is let go at
once. At a shutdown, what runs is first stopped by the ladder, as by any stop; meanwhile nothing of
the run moves on. The record says that it was let go cleanly: what had not started then has never
begun, whatever class its effect is of, and none of it is settled (law 15 record-first).
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core import gate, runs, settling
from endstop.core import inputs as i
from endstop.core.state import CallState, RunState, Stage, State
from endstop.core.terms import Mode, Phase, Reason

_RUNS = frozenset({Phase.RUNNING, Phase.STOPPING})


def suspend(state: State, said: i.SuspendRun, now: float) -> list[e.Event]:
    """Nothing for a run that ends by itself, or that somebody waits for: that one decides.

    Nor, unless all is stopped, for one whose budget others here draw on, or that draws on another's
    (law 20 paid-once): what they spend meanwhile would be in no books.
    """
    run = state.runs.get(said.run)
    if run is None or run.ended or run.fenced or run.suspending or run.cancelled is not None:
        return []
    if run.parent is not None and not run.parent.run.ended and (run.attached or not said.stop):
        return []
    if run.below and not said.stop:
        return []
    begun = [call for batch in run.batches for call in batch.calls if _begun(call)]
    if not begun:
        return [e.RunInterrupted(run=run.id, clean=True)]
    if not said.stop:
        return []
    found: list[e.Event] = [e.RunSuspending(run=run.id)]
    for call in begun:
        found += settling.stop_call(call, Reason.SHUTDOWN, Mode.INTERRUPT, now)
    return found


def _begun(call: CallState) -> bool:
    return call.alive or call.phase in _RUNS


def is_quiet(run: RunState) -> bool:
    """Whether nothing of a run runs that could still end; an abandoned body never may."""
    return not any(call.phase in _RUNS for call in run.calls())


def suspending(state: State, event: e.RunSuspending, now: float) -> None:
    """Nothing of the run moves on from here; what it waits for or holds goes to others."""
    run = state.runs[event.run]
    assert not run.ended, "an ending absorbs"
    run.suspending = True
    _withdraw(state, run, now)
    state.check_runs.append(run)


def interrupted(state: State, event: e.RunInterrupted, now: float) -> None:
    """The run is not driven here any more: nothing of it is left in any table."""
    run = state.runs[event.run]
    assert not run.ended, "only a run without an ending is interrupted"
    assert is_quiet(run), "a run is let go when nothing of it runs"
    _withdraw(state, run, now)
    run.suspending, run.let_go, run.ended = False, True, True
    runs.gone_from(run)
    state.rules.pop(run.id, None)
    for batch in run.batches:
        state.timers.set(batch, None)
        for call in batch.calls:
            state.approvals.pop(call.id, None)
            if not call.alive:
                del state.calls[call.id]


def _withdraw(state: State, run: RunState, now: float) -> None:
    """Take what has not begun out of every table. Its record is what brings it back."""
    for call in run.calls():
        if call.phase is Phase.SETTLED or call.phase in _RUNS or call.stage is Stage.WITHDRAWN:
            continue
        state.timers.set(call, None)
        gate.leave(state, call, now)
        if call.phase is Phase.GRANTED:
            _take_back(call)
        gate.release(state, call, now)
        call.stage = Stage.WITHDRAWN


def _take_back(call: CallState) -> None:
    """A grant that no worker has claimed yet: the call stands in line again, and was not counted.

    What a call that is tried again took with its first attempt, it keeps (law 20 paid-once).
    """
    call.phase = Phase.QUEUED
    if call.retried is not None:
        return
    call.run.budget.uncount(call.tool)
    if call.reserved is not None:
        call.run.budget.release(call.reserved)
        call.reserved = None
