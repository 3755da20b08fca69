"""The life of a run: what its inputs mean, and what its events change. Part of `decide.py` and
`evolve.py`, pure as they are.

A run ends once. Where somebody declared how, and somebody else cancelled it, whoever was recorded
first decides; the cancel stops what runs all the same (law 3 one-ending).
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core import gate
from endstop.core import inputs as i
from endstop.core.books import add_money
from endstop.core.state import RunState, State
from endstop.core.terms import DECLARABLE, Phase
from endstop.errors import CallerError, NotFound


def open_run(state: State, run_id: str) -> RunState:
    """The run with this id. Raises NotFound."""
    run = state.runs.get(run_id)
    if run is None:
        raise NotFound(f"no run {run_id!r} is open here")
    return run


def close(state: State, said: i.CloseRun, now: float) -> list[e.Event]:
    if said.outcome is not None and said.outcome not in DECLARABLE:
        known = ", ".join(sorted(DECLARABLE))
        raise CallerError(f"a run cannot be declared {said.outcome}; it is one of {known}")
    run = open_run(state, said.run)
    if run.ended or (said.at_seq is not None and run.seq != said.at_seq):
        return []
    # What was recorded first decides: after a cancel or another word, a declaration says nothing.
    counts = run.declared is None and run.cancelled is None
    outcome = said.outcome if counts else None
    if run.closing and outcome is None:
        return []
    return [e.RunClosing(run=run.id, outcome=outcome)]


def note(state: State, said: i.Note, now: float) -> list[e.Event]:
    run = state.runs.get(said.run)
    if run is None or run.ended:
        return []
    if said.call is not None:
        call = state.calls.get(said.call)
        if call is None or call.run is not run or call.phase is Phase.SETTLED:
            return []
    return [e.Noted(run=said.run, kind=said.kind, body=said.body, call=said.call, spent=said.spent)]


def opened(state: State, event: e.RunOpened, now: float) -> None:
    assert event.run not in state.runs, "a run is opened once"
    parent = state.calls.get(event.parent_call) if event.parent_call else None
    run = state.runs[event.run] = RunState(event, parent)
    if parent is not None:
        parent.run.below += 1
    if parent is not None and run.attached:
        parent.children = [*(parent.children or ()), run]


def cancelled(state: State, event: e.RunCancelled, now: float) -> None:
    run = state.runs[event.run]
    assert not run.ended, "an ending absorbs"
    run.cancelled = run.cancelled or event.reason
    run.mode = event.mode
    state.check_runs.append(run)


def closing(state: State, event: e.RunClosing, now: float) -> None:
    run = state.runs[event.run]
    run.closing = True
    if event.outcome is not None:
        assert run.cancelled is None, "a cancel that was first decides (law 3 one-ending)"
        assert run.declared is None, "an ending is declared once"
        run.declared = event.outcome
    state.check_runs.append(run)


def resumed(state: State, event: e.RunResumed, now: float) -> None:
    run = state.runs[event.run]
    assert not run.ended, "an ending absorbs"
    for batch in run.batches:
        if batch.closed:
            continue
        # Restored beyond its end, so that nothing moved while what had begun was dealt with.
        batch.horizon = 0
        gate.move_horizon(state, batch, now)
        if batch.unsettled == 0:
            state.check_batches.append(batch)
    state.check_runs.append(run)


def ended(state: State, event: e.RunEnded, now: float) -> None:
    run = state.runs[event.run]
    assert not run.ended, "a run ends once (law 3 one-ending)"
    assert run.open_batches == 0, "a run ends after its batches"
    run.ended, run.suspending = True, False
    gone_from(run)
    state.rules.pop(run.id, None)


def gone_from(run: RunState) -> None:
    """A run is over here: the one that it was opened from has one less below it."""
    if run.parent is not None:
        run.parent.run.below -= 1
        assert run.parent.run.below >= 0, "a run is over once"


def noted(state: State, event: e.Noted, now: float) -> None:
    run = state.runs[event.run]
    assert not run.ended, "an ending absorbs"
    if event.spent is not None:
        run.paid = add_money(run.paid, event.spent)
        run.budget.spend(event.spent)
