"""Testing: what must be true of a whole simulation, beside the laws of a state and of a story.

Public test tool; only reads. The bounds are exact: virtual time has no noise to allow for.
"""

from __future__ import annotations

from collections.abc import Iterable

from endstop.core import events as e
from endstop.core.recovery import Unfinished
from endstop.core.terms import Claim, Effect, EffectClass, Outcome, Reason
from endstop.testing.acting import World

Log = list[tuple[float, e.Event]]
_ROUNDING_S = 1e-9


def check_bounds(log: Log, *, complete: bool = True) -> list[str]:
    """Law 6: whoever was stopped is settled within commit block, grace and kill bound.

    Without `complete` the record may lack endings: a journal that refuses takes none.
    """
    wrong: list[str] = []
    accepted: dict[str, e.CallAccepted] = {}
    stopped: dict[str, tuple[float, float]] = {}
    in_commit: set[str] = set()
    for at, event in log:
        match event:
            case e.CallAccepted():
                accepted[event.call] = event
            case e.CommitBegan():
                in_commit.add(event.call)
            case e.CommitEnded():
                in_commit.discard(event.call)
            case e.StopRequested():
                contract = accepted[event.call].contract
                bound = contract.grace_s + (contract.kill_s if contract.killable else 0.0)
                if event.call in in_commit:
                    bound += contract.commit_s
                stopped[event.call] = (at, bound)
            case e.CallSettled() if event.call in stopped:
                since, bound = stopped.pop(event.call)
                if at - since > bound + _ROUNDING_S:
                    wrong.append(
                        f"law 6 bounded-stop: {event.call} took {at - since:g} s of {bound:g} s"
                    )
            case _:
                pass
    if complete:
        wrong += [f"law 6 bounded-stop: {call} was stopped and never settled" for call in stopped]
    return wrong


def without_rewrites(wrong: list[str], log: Log) -> list[str]:
    """Complaints without those of a request order that was not known yet.

    A call that is rewritten, by a hook or a human, may come to want what a later one had already
    taken when nobody could know that they would conflict; then the later one keeps its place.
    """
    queued: dict[str, int] = {}
    rewritten: dict[str, int] = {}
    claims: dict[str, tuple[Claim, ...]] = {}
    for number, (_, event) in enumerate(log):
        if isinstance(event, e.CallQueued):
            queued[event.call] = number
        match event:
            case e.CallAccepted() | e.ApprovalAsked() | e.CallQueued() if event.claims is not None:
                if claims.setdefault(event.call, event.claims) != event.claims:
                    rewritten[event.call] = number
                claims[event.call] = event.claims
            case _:
                pass
    excused = {
        f"law 4 one-answer: {later} {passed} {earlier}, which it conflicts with"
        for earlier, at in rewritten.items()
        for later, since in queued.items()
        if since < at
        for passed in ("was granted before", "overtook")
    }
    return [one for one in wrong if one not in excused]


def check_honest(log: Log, world: World) -> list[str]:
    """Laws 1 and 5: the record agrees with what the bodies did."""
    wrong: list[str] = []
    accepted: dict[str, e.CallAccepted] = {}
    started: set[str] = set()
    for at, event in log:
        match event:
            case e.CallAccepted():
                accepted[event.call] = event
            case e.CallStarted():
                started.add(event.call)
            case e.CallSettled():
                contract = accepted[event.call].contract
                read_only = contract.effect is EffectClass.READ_ONLY
                if event.effect is Effect.NONE and not read_only:
                    touched = world.touched_at.get(event.call)
                    begun = event.call in world.begun and not contract.commits
                    if begun or (touched is not None and touched <= at):
                        wrong.append(f"law 5 honest-effect: {event.call} says none, it had begun")
                if event.effect is Effect.DONE and event.call not in world.begun:
                    wrong.append(f"law 5 honest-effect: {event.call} says done, it never began")
            case _:
                pass
    strays = sorted(set(world.begun) - started)
    wrong += [f"law 1 one-door: {call} began without a start" for call in strays]
    return wrong


def check_shown(shown: Iterable[e.Event], log: Log, *, complete: bool = True) -> list[str]:
    """Law 15: whoever watches sees of each run what is recorded, in the same order.

    Without `complete` the end may be missing, but nothing may be seen that is not recorded.
    """
    seen: dict[str, list[e.Event]] = {}
    recorded: dict[str, list[e.Event]] = {}
    for event in shown:
        if not isinstance(event, e.TRANSIENT):
            seen.setdefault(event.run, []).append(event)
    for _, event in log:
        recorded.setdefault(event.run, []).append(event)
    wrong = []
    for run in sorted(seen.keys() | recorded.keys()):
        mine, other = seen.get(run, []), recorded.get(run, [])
        if not complete:
            other = other[: len(mine)]
        if mine != other:
            at = next(
                (n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
                min(len(mine), len(other)),
            )
            wrong.append(
                f"law 15 record-first: {run} was shown {mine[at : at + 2]} as its event {at}, "
                f"recorded is {other[at : at + 2]}"
            )
    return wrong


def check_recovery(
    recorded: Iterable[e.Event], shown: Iterable[e.Event], world: World
) -> list[str]:
    """Laws 15 and 16: after a crash, recovery says of every call what is true of it."""
    wrong: list[str] = []
    runs: dict[str, list[e.Event]] = {}
    for event in recorded:
        runs.setdefault(event.run, []).append(event)
    for event in shown:
        endings = (e.CallSettled, e.BatchClosed, e.RunEnded)
        if isinstance(event, endings) and event not in runs.get(event.run, []):
            wrong.append(f"law 15 record-first: {event} was shown and is not recorded")
    known: dict[str, e.CallAccepted] = {}
    endings_of: dict[str, e.CallSettled] = {}
    for run, events in runs.items():
        left = Unfinished(run)
        left.read(events)
        closing = left.closing()
        for event in [*events, *closing]:
            if isinstance(event, e.CallAccepted):
                known[event.call] = event
            elif isinstance(event, e.CallSettled):
                if event.call in endings_of:
                    wrong.append(f"law 3 one-ending: recovery settles {event.call} again")
                endings_of[event.call] = event
        granted = {ev.call for ev in events if isinstance(ev, e.CallGranted | e.CallStarted)}
        wrong += [
            f"law 16 survives-restart: {event}"
            for event in closing
            if isinstance(event, e.CallSettled)
            and event.outcome is Outcome.LOST
            and event.reason is not Reason.DRIVER_LOST
        ]
        wrong += _open_ones(left, endings_of, granted, world)
    for call in world.begun:
        if call in known:
            wrong += _begun_one(known[call], endings_of.get(call))
    return wrong


def _open_ones(
    left: Unfinished, endings: dict[str, e.CallSettled], granted: set[str], world: World
) -> list[str]:
    wrong = []
    for call, accepted in left.open.items():
        effect = accepted.contract.effect
        # What may run again without harm may also be left to be resumed.
        harmless = effect in (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)
        if call not in endings and call in world.begun and not harmless:
            wrong.append(f"law 16 survives-restart: {call} had begun and is left as if it had not")
        waits = effect in (EffectClass.EFFECTFUL, EffectClass.ONCE)
        lost = call in endings and endings[call].outcome is Outcome.LOST
        if lost and waits and call not in granted:
            wrong.append(f"law 16 survives-restart: {call} cannot have begun and is lost")
        if waits and call in world.begun and call not in granted:
            wrong.append(f"law 15 record-first: {call} began before its grant was recorded")
    return wrong


def _begun_one(accepted: e.CallAccepted, ending: e.CallSettled | None) -> list[str]:
    contract = accepted.contract
    if ending is None or ending.effect is not Effect.NONE:
        return []
    if contract.effect is EffectClass.READ_ONLY or contract.commits:
        return []
    return [f"law 5 honest-effect: {accepted.call} had begun, recovery says it had no effect"]
