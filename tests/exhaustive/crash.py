"""The crash of a driver as a move of the explorer: all that is left is what was recorded.

The heir does what a runtime does when it opens the journal and resumes: it settles what cannot go
on, restores the rest, and resumes it in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.recovery import Unfinished
from endstop.core.restore import restore
from endstop.core.settling import may_run_again
from endstop.core.state import State
from endstop.core.terms import Isolation
from endstop.testing.laws import check_story


def can_crash(events: Sequence[e.Event]) -> bool:
    """Whether a driver can still crash here, or another one take up what was let go: neither
    happened before, and there is something to lose."""
    return not any(
        isinstance(event, e.RunResumed | e.RunEnded)
        or (isinstance(event, e.RunInterrupted) and not event.clean)
        for event in events
    )


def crash(
    slots: dict[Isolation, int | None], events: Sequence[e.Event], now: float, *, done: bool | None
) -> tuple[State, list[e.Event]]:
    """The state of the heir and the events that it adds. `done` is what every reconciler says."""
    (run,) = {event.run for event in events}
    recorded = [event for event in events if not isinstance(event, e.TRANSIENT)]
    left = Unfinished(run)
    left.read(recorded)
    found = left.closing()
    assert check_story([*recorded, *found], complete=False) == []
    left.read(found)
    state = State(slots)
    restore(state, [(0.0, event) for event in (*recorded, *found)], now, 0.0)
    if left.ended:
        return state, found
    asked = [call for call in left.begun if left.open[call].contract.reconciles]
    again = [call for call in left.begun if may_run_again(left.open[call].contract)]
    told = tuple(i.Reconciled(call=call, done=done) for call in asked)
    said = i.ResumeRun(run=run, again=tuple(again), reconciled=told)
    return state, [*found, *step(state, said, now)]
