"""Stopping a run whose driver is gone or does not answer: what the record then says.

Pure: from what is recorded to the events that whoever takes the run over appends, in the one step
that also fences the old driver off. What never began is cancelled and that is certain; of what may
have begun nothing is claimed (laws 5 honest-effect and 16 survives-restart).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from endstop.core import events as e
from endstop.core.recovery import Unfinished
from endstop.core.terms import Effect, Mode, Outcome, Reason
from endstop.errors import NotFound


def stopping(
    recorded: Iterable[e.Event], target: str, reason: Reason, mode: Mode, *, may_live: bool
) -> list[e.Event]:
    """The events that stop a run, or one batch or call of it, without its driver.

    Empty where the target is over already. `may_live` says that the old driver may still be there,
    and with it the workers of what has begun. Raises NotFound where the run has no such target.
    """
    before = list(recorded)
    run = before[0].run
    left = Unfinished(run)
    left.read(before)
    if left.ended or not _has_open(left, before, target):
        return []
    found = _cancelling(left, before, target, reason, mode)
    left.read(found)
    # The rest is as for any run that has lost its driver, and the run is marked.
    found += left.closing()
    return [_perhaps_alive(event) for event in found] if may_live else found


def _has_open(left: Unfinished, before: list[e.Event], target: str) -> bool:
    """Whether a target has anything to stop."""
    if target == left.run:
        return True
    batches = {event.call: event.batch for event in before if isinstance(event, e.CallAccepted)}
    if target not in batches and target not in batches.values():
        raise NotFound(f"run {left.run!r} has no {target!r}")
    return any(target in (call, batches[call]) for call in left.open)


def _cancelling(
    left: Unfinished, before: list[e.Event], target: str, reason: Reason, mode: Mode
) -> list[e.Event]:
    run = left.run
    if target == run:
        return [e.RunCancelled(run=run, reason=reason, mode=mode)]
    if target not in left.open:
        return [e.BatchCancelled(run=run, batch=target, reason=reason, mode=mode)]
    tried = any(isinstance(event, e.CallRetried) and event.call == target for event in before)
    if tried or left.may_have_begun(target):
        return left.losing([target])
    return [
        e.CallSettled(
            run=run, call=target, outcome=Outcome.CANCELLED, reason=reason, effect=Effect.NONE
        )
    ]


def _perhaps_alive(event: e.Event) -> e.Event:
    if isinstance(event, e.CallSettled) and event.outcome is Outcome.LOST:
        return replace(event, alive=True)
    return event
