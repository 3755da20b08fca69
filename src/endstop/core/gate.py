"""The gate: the only way from ready to running.

Theory of operation
-------------------
A call that is ready walks through four stages and is then granted:

1. order. Inside a batch request order holds between calls that conflict, also while the earlier one
   is still being prepared or approved. A call waits here while an unqueued earlier call of its
   batch wants the same thing, or while a barrier (an exclusive call, a sequential batch, calls
   that start together) keeps the batch's horizon before it. It holds nothing against other runs.
2. resources. It asks the runtime's table for its whole set at once, first come first served.
3. lane. At most `parallel` calls of a batch run at once.
4. slot. At most so many bodies run on one kind of worker.

Nothing on this way runs a body. When a slot is free, `next_grant` looks once more at everything
that may forbid the start (cancel, deadline of the batch, budget) and only then lets the call
through; and the worker asks again with `Claimed` immediately before the body. These two questions
and a cancel are decisions on one state, one after the other, so there is no moment between them at
which a cancelled call could slip through, whatever it waited for (law 1 one-door).

A call may leave from any stage by being settled; `leave` takes it out of all of them, and who was
behind it moves up. Walking is written as a loop over a list, not as recursion: a release may
move a thousand calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from endstop.core.resources import ResourceTable, wants_of
from endstop.core.state import BatchState, CallState, Stage, State
from endstop.core.terms import Claim, Phase, Reason

# Python 3.11 finds an enum member at several times the cost of a global, and these are on the path
# of every call.
_QUEUED, _SETTLED = Phase.QUEUED, Phase.SETTLED
_ORDER, _RESOURCES, _SLOT = Stage.ORDER, Stage.RESOURCES, Stage.SLOT


def forbidden(call: CallState) -> Reason | None:
    """Why a call may not start any more: its run or batch was cancelled or is out of time."""
    return call.run.cancelled or call.batch.cancelled


def walk(state: State, calls: Iterable[CallState], now: float) -> None:
    """Move queued calls as far as they get, and whoever becomes free to move by it."""
    todo = deque(calls)
    while todo:
        todo.extend(move(state, todo.popleft(), now))


def move(state: State, call: CallState, now: float) -> Sequence[CallState]:
    """Move one queued call as far as it gets; returns who becomes free to move by it."""
    freed: Sequence[CallState] = ()
    if call.phase is not _QUEUED:
        return freed
    if call.stage is _ORDER and _in_order(call):
        call.stage = _RESOURCES
        call.phase_at = now
        freed = _out_of_order(state, call)
        if call.claims and not _take_resources(state, call):
            _arm_wait(state, call, now)
            return freed
    elif call.stage is not _RESOURCES or not _has_resources(state, call):
        return freed
    if call.due is not None:
        state.timers.set(call, None)
    if call.batch.parallel is None or _take_lane(call):
        call.stage = _SLOT
        state.slots[call.contract.isolation].line[call.id] = call
    return freed


def _in_order(call: CallState) -> bool:
    batch = call.batch
    if call.index >= batch.horizon:
        return False
    if batch.order is None:
        if call.index == batch.entered_below:
            return True
        # An earlier call has not queued yet: from now on the batch needs a table of its own.
        batch.order = ResourceTable()
        _fill_order(batch)
    return batch.order.is_clear(call.id)


def _fill_order(batch: BatchState) -> None:
    assert batch.order is not None
    assert len(batch.order) == 0, "a batch's order is filled once"
    for call in batch.calls:
        if not has_entered(call):
            batch.order.add(call.id, wants_of(call.claims))


def has_entered(call: CallState) -> bool:
    """Whether a call has passed the order of its batch, or will never need to."""
    return call.stage > _ORDER or call.phase is _SETTLED


def reorder(state: State, call: CallState, now: float) -> None:
    """Other arguments want other things: keep the call's place in the order of its batch."""
    order = call.batch.order
    if order is not None and call.id in order:
        places = [other.id for other in call.batch.calls]
        cleared = order.replace(call.id, wants_of(call.claims), places)
        walk(state, [state.calls[key] for key in cleared], now)


def _out_of_order(state: State, call: CallState) -> Sequence[CallState]:
    """Take a call out of its batch's order; returns the calls that may enter because of it."""
    batch = call.batch
    if call.index == batch.entered_below:
        # It was the first that had not entered: now that is the next one that has not.
        at, calls = call.index + 1, batch.calls
        while at < len(calls) and has_entered(calls[at]):
            at += 1
        batch.entered_below = at
    if batch.order is None:
        return ()
    return [state.calls[key] for key in batch.order.remove(call.id)]


def _has_resources(state: State, call: CallState) -> bool:
    return not call.claims or state.resources.is_clear(call.id)


def _take_resources(state: State, call: CallState) -> bool:
    kin: tuple[str, ...] = ()
    if call.run.parent is not None:
        kin = tuple(key for key in call.run.kin() if key in state.resources)
    return state.resources.add(call.id, wants_of(call.claims), kin)


def overdue_claim(state: State, call: CallState, now: float) -> Claim | None:
    """A claim that a call has waited for longer than the claim allows."""
    if call.stage is not Stage.RESOURCES:
        return None
    blocked = {name for name, _ in state.resources.blocked_on(call.id)}
    for claim in call.claims:
        if claim.wait_s is None or call.phase_at + claim.wait_s > now:
            continue
        if not blocked.isdisjoint(name for name, _ in wants_of((claim,))):
            return claim
    return None


def _arm_wait(state: State, call: CallState, now: float) -> None:
    limits = [
        c.wait_s for c in call.claims if c.wait_s is not None and call.phase_at + c.wait_s > now
    ]
    state.timers.set(call, call.phase_at + min(limits) if limits else None)


def rearm_wait(state: State, call: CallState, now: float) -> None:
    """The timer of a waiting call rang: its rest is over, or the next limit among its claims is
    what it waits for now."""
    if call.stage is Stage.RESTING:
        line_up(state, call, now)
    elif call.stage is Stage.RESOURCES:
        _arm_wait(state, call, now)


def _take_lane(call: CallState) -> bool:
    batch = call.batch
    assert batch.parallel is not None, "a batch without a bound has no lanes"
    if batch.lanes >= batch.parallel:
        call.stage = Stage.LANE
        batch.line[call.id] = call
        return False
    batch.lanes += 1
    call.lane = True
    return True


def move_horizon(state: State, batch: BatchState, now: float) -> None:
    """Let the calls of a batch queue that no barrier keeps back any more."""
    calls, size = batch.calls, batch.size
    if len(calls) < size or (batch.together and batch.unprepared):
        return
    while batch.settled_below < size and calls[batch.settled_below].phase is _SETTLED:
        batch.settled_below += 1
    at = max(batch.next_exclusive, batch.settled_below)
    while at < size and (calls[at].phase is _SETTLED or not _is_barrier(calls[at])):
        at += 1
    batch.next_exclusive = at
    before = batch.horizon
    # A barrier itself may go when everything before it is over; nothing behind it may.
    batch.horizon = min(size, at + 1) if batch.settled_below == at else at
    if before < batch.horizon:
        walk(state, calls[before : batch.horizon], now)


def _is_barrier(call: CallState) -> bool:
    return call.contract.exclusive or call.batch.parallel == 1


def line_up(state: State, call: CallState, now: float) -> None:
    """Let a call that is tried again ask for everything anew, behind whoever waits already.

    Its place in the order of its batch it had with its first attempt.
    """
    assert call.phase is _QUEUED, "only a queued call stands in line"
    call.stage = _RESOURCES
    call.phase_at = now
    if call.claims and not _take_resources(state, call):
        _arm_wait(state, call, now)
        return
    walk(state, (call,), now)


def leave(state: State, call: CallState, now: float) -> None:
    """Take a call that is settled out of every line, and free its lane and its barrier.

    What it holds is another matter: see `release`.
    """
    batch = call.batch
    if call.stage is Stage.THROUGH:
        freed: Sequence[CallState] = ()
        if call.parked:
            state.slots[call.contract.isolation].line.pop(call.id, None)
    else:
        freed = () if call.stage > _ORDER else _out_of_order(state, call)
        batch.line.pop(call.id, None)
        state.slots[call.contract.isolation].line.pop(call.id, None)
    if call.lane:
        call.lane = False
        batch.lanes -= 1
        assert batch.lanes >= 0, "a lane is freed once"
        if batch.line:
            _, waiting = batch.line.popitem(last=False)
            waiting.lane = True
            waiting.stage = Stage.SLOT
            batch.lanes += 1
            state.slots[waiting.contract.isolation].line[waiting.id] = waiting
    if freed:
        walk(state, freed, now)
    if batch.horizon < batch.size:
        move_horizon(state, batch, now)


def release(state: State, call: CallState, now: float) -> None:
    """Give back the slot and the resources of a call whose worker is gone or never was."""
    if call.slot:
        call.slot = False
        slots = state.slots[call.contract.isolation]
        slots.taken -= 1
        assert slots.taken >= 0, "a slot is freed once"
    if call.claims and call.id in state.resources:
        cleared = state.resources.remove(call.id)
        if cleared:
            walk(state, [state.calls[key] for key in cleared], now)


def line_up_again(state: State, call: CallState) -> None:
    """A parked body wants to go on: it stands before the calls that have not begun."""
    line = state.slots[call.contract.isolation].line
    line[call.id] = call
    line.move_to_end(call.id, last=False)


def take_slot(state: State, call: CallState) -> None:
    """Give a call the slot that it stands first in line for."""
    slots = state.slots[call.contract.isolation]
    del slots.line[call.id]
    # A parked body runs already and nothing but itself can end it: it goes on also where abandoned
    # workers hold every slot, else a wedged child would wedge its parent (law 6 bounded-stop).
    assert slots.free or (call.parked and slots.saturated), "a slot is taken only when one is free"
    slots.taken += 1
    call.slot = True


def waits_for(state: State, call: CallState) -> str:
    """What a call waits for, in words for a person."""
    match call.phase:
        case Phase.PREPARING:
            return f"hook {call.hook}" if call.hook else "being prepared"
        case Phase.AWAITING_APPROVAL:
            return "approval"
        case Phase.QUEUED if call.stage is Stage.ORDER:
            return "an earlier call of its batch"
        case Phase.QUEUED if call.stage is Stage.RESTING:
            return "its next attempt"
        case Phase.QUEUED if call.stage is Stage.RESOURCES:
            return ", ".join(name for name, _ in state.resources.blocked_on(call.id))
        case Phase.QUEUED if call.stage is Stage.LANE:
            return f"one of {call.batch.parallel} parallel calls"
        case Phase.QUEUED:
            return f"a free {call.contract.isolation} slot"
        case Phase.RUNNING if call.parked:
            return "its children"
        case Phase.RUNNING if call.id in state.questions:
            return f"a human's answer: {next(iter(state.questions[call.id].values())).text}"
        case Phase.RUNNING if call.meter is not None and call.meter.paused:
            return "a human"
        case _:
            return ""
