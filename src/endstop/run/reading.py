"""Reading a state by the id of a run, a batch or a call; changes nothing (law 2 right-target)."""

from __future__ import annotations

from endstop.core.state import BatchState, CallState, RunState, State
from endstop.core.terms import Phase
from endstop.errors import NotFound


def find(state: State, target: str) -> RunState | BatchState | CallState:
    """What has this id. Raises NotFound for an id that nothing here has."""
    found = state.runs.get(target) or state.calls.get(target) or state.batch(target)
    if found is None:
        raise NotFound(f"nothing here has the id {target!r}")
    return found


def is_over(state: State, target: str) -> bool:
    """Whether a run, a batch or a call has its ending."""
    match find(state, target):
        case RunState() as run:
            return run.ended
        case BatchState() as batch:
            return batch.closed
        case CallState() as call:
            return call.phase is Phase.SETTLED


def calls_of(state: State, target: str) -> list[CallState]:
    """The calls of a run or batch, or the one call."""
    match find(state, target):
        case RunState() as run:
            return [call for batch in run.batches for call in batch.calls]
        case BatchState() as batch:
            return list(batch.calls)
        case CallState() as call:
            return [call]
