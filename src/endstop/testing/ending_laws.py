"""What a story has told of one call, and whether its ending says what is true (law 5).

Public test tools; only reads.
"""

from __future__ import annotations

from decimal import Decimal

from endstop.core import events as e
from endstop.core.terms import (
    CANCEL_REASONS,
    Claim,
    Effect,
    EffectClass,
    Outcome,
    Phase,
    Reason,
    StoppedBy,
)

_TIMED_OUT = frozenset({Reason.DEADLINE, Reason.IDLE, Reason.BATCH_DEADLINE})


class CallStory:
    """What the story has told of one call so far."""

    def __init__(self, accepted: e.CallAccepted) -> None:
        self.accepted = accepted
        self.claims: tuple[Claim, ...] = accepted.claims
        self.phase = Phase.PREPARING
        self.grants = 0
        self.starts = 0
        self.attempts = 0
        self.left = Effect.NONE
        self.reconciled: bool | None = None
        self.reference = False
        self.stops: list[e.StopRequested] = []
        self.asked = 0
        self.kills = 0
        self.question: str | None = None
        self.commit: bool | None = None
        self.in_commit = False
        self.spent: dict[str, Decimal] = {}
        self.ending: e.CallSettled | None = None
        self.late_ends = 0


def without_start(wrong: list[str], call: CallStory, event: e.CallSettled) -> None:
    # A driver that is lost may have begun what it had no time to record.
    lost = event.outcome is Outcome.LOST and event.reason is Reason.DRIVER_LOST
    if event.effect is not Effect.NONE and not lost:
        wrong.append(f"law 5 honest-effect: {event.call} never began, {event.effect}")
    human = event.reason is Reason.ANSWERED_BY_HUMAN and event.outcome is Outcome.SUCCEEDED
    cancelled = event.outcome is Outcome.CANCELLED and event.reason in CANCEL_REASONS
    rejected = event.outcome is Outcome.REJECTED and event.reason not in CANCEL_REASONS
    if not (human or cancelled or rejected or lost):
        wrong.append(
            f"law 5 honest-effect: {event.call} never began, {event.outcome}/{event.reason}"
        )
    if event.alive or event.stopped_by is not None or event.ran_s:
        wrong.append(f"law 5 honest-effect: {event.call} never began and was stopped")


def not_again(wrong: list[str], call: CallStory, event: e.CallSettled) -> None:
    """An earlier attempt began: its ending never says that nothing did."""
    lost = event.reason is Reason.DRIVER_LOST
    if event.effect is not call.left and not (lost and event.effect is Effect.UNKNOWN):
        wrong.append(f"law 5 honest-effect: {event.call} left {call.left}, says {event.effect}")
    if event.outcome is Outcome.REJECTED:
        wrong.append(f"law 5 honest-effect: {event.call} began and was rejected")
    if event.alive or event.stopped_by is not None:
        wrong.append(f"law 5 honest-effect: {event.call} was not running and was stopped")


def after_start(wrong: list[str], call: CallStory, event: e.CallSettled) -> None:
    contract = call.accepted.contract
    if event.outcome is Outcome.REJECTED:
        wrong.append(f"law 5 honest-effect: {event.call} began and was rejected")
    returned = event.reason in (Reason.OK, Reason.RESULT_UNSERIALISABLE)
    if returned or call.commit:
        told = event.effect is Effect.DONE or (not returned and call.in_commit)
    elif call.left is not Effect.NONE:
        told = event.effect is call.left
    elif contract.effect is EffectClass.READ_ONLY:
        told = event.effect is Effect.NONE
    elif contract.commits and call.commit is None and not call.in_commit:
        told = event.effect is Effect.NONE or event.reason is Reason.DRIVER_LOST
    else:
        told = event.effect is Effect.UNKNOWN
    if not told:
        wrong.append(
            f"law 5 honest-effect: {event.call} {event.outcome}/{event.reason} "
            f"says effect {event.effect}"
        )
    stopped = event.outcome in (Outcome.CANCELLED, Outcome.TIMED_OUT)
    if stopped:
        reasons = CANCEL_REASONS if event.outcome is Outcome.CANCELLED else _TIMED_OUT
        if not call.stops or call.stops[0].reason is not event.reason:
            wrong.append(f"law 2 right-target: {event.call} ends for a reason not asked")
        if event.reason not in reasons:
            wrong.append(f"law 5 honest-effect: {event.call} {event.outcome}/{event.reason}")
        if event.stopped_by is StoppedBy.KILLED and not call.kills:
            wrong.append(f"law 6 bounded-stop: {event.call} says killed and was not")
        if not (call.asked or call.kills):
            wrong.append(f"law 6 bounded-stop: {event.call} was stopped without a word")
    if event.alive != (event.stopped_by is StoppedBy.ABANDONED):
        wrong.append(f"law 9 on-the-books: {event.call} alive={event.alive}")
