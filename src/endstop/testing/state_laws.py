"""What must be true of a state after every step. Public test tools; only reads.

The checks count again what the core keeps as running totals, and compare claims by brute force.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import combinations
from typing import assert_never

from endstop.core.budget import Budget
from endstop.core.state import BatchState, CallState, RunState, Stage, State
from endstop.core.terms import Claim, Mode, Phase

_UNSTARTED = (Phase.PREPARING, Phase.AWAITING_APPROVAL, Phase.QUEUED, Phase.GRANTED)
_THROUGH = (Phase.GRANTED, Phase.RUNNING, Phase.STOPPING)


def check_state(state: State) -> list[str]:
    """Every law that this state breaks, each complaint beginning with the law's name.

    Meant for a state between two inputs, when all that follows has been applied. An empty list
    means that no law is broken.
    """
    wrong = [
        *_books_of_slots(state),
        *_exclusion(state),
        *_entries(state),
        *_timers(state),
        *_questions(state),
    ]
    for call in state.calls.values():
        wrong += _one_call(state, call)
    for run in state.runs.values():
        wrong += _one_run(state, run)
        for batch in run.batches:
            wrong += _one_batch(batch)
            wrong += _order(batch)
    if at_rest(state):
        wrong += _nothing_left(state)
    return wrong


def at_rest(state: State) -> bool:
    """Whether every call is settled and no abandoned worker is left."""
    return all(c.phase is Phase.SETTLED and not c.alive for c in state.calls.values())


def conflict(one: Claim, other: Claim) -> bool:
    """Whether two claims exclude each other: same place or one above the other, not both shared."""
    if one.shared and other.shared:
        return False
    if one.resource == other.resource:
        return True
    kind, other_kind = one.resource.partition(":/"), other.resource.partition(":/")
    if kind[0] != other_kind[0] or not kind[1] or not other_kind[1]:
        return False
    here = [part for part in kind[2].split("/") if part]
    there = [part for part in other_kind[2].split("/") if part]
    depth = min(len(here), len(there))
    return here[:depth] == there[:depth]


def _conflicting(one: CallState, other: CallState) -> bool:
    return any(conflict(a, b) for a in one.claims for b in other.claims)


def _ancestors(call: CallState) -> Iterator[CallState]:
    """The calls that wait for this one, nearest first; a detached run has none."""
    run = call.run
    while run.attached and run.parent is not None:
        yield run.parent
        run = run.parent.run


def _kin(one: CallState, other: CallState) -> bool:
    return one in _ancestors(other) or other in _ancestors(one)


def _holding(call: CallState) -> bool:
    """Whether a call has all its resources: it is past the table or its worker lives."""
    return (call.phase is not Phase.SETTLED and call.stage > Stage.RESOURCES) or call.alive


def _books_of_slots(state: State) -> Iterator[str]:
    for kind, slots in state.slots.items():
        mine = [c for c in state.calls.values() if c.contract.isolation is kind]
        taken = [c for c in mine if c.slot]
        abandoned = [c for c in taken if c.phase is Phase.SETTLED]
        if slots.taken != len(taken):
            yield f"law 12 no-leaked-lock: {kind} counts {slots.taken} slots, {len(taken)} are held"
        if slots.abandoned != len(abandoned):
            yield (
                f"law 9 on-the-books: {kind} counts {slots.abandoned} abandoned slots, "
                f"there are {len(abandoned)}"
            )
        # A parked body that goes on while abandoned workers hold every slot is the one exception.
        if slots.limit is not None and len(taken) > slots.limit and not slots.saturated:
            yield f"law 12 no-leaked-lock: {len(taken)} of {slots.limit} {kind} slots are held"
        waiting = {c.id: c for c in mine if c.phase is Phase.QUEUED and c.stage is Stage.SLOT}
        for call in slots.line.values():
            if call.id not in waiting and not (call.parked and call.phase is not Phase.SETTLED):
                yield f"law 7 every-wait-listens: {call.id} is {call.phase} and stands in line"
        for call_id in waiting:
            if call_id not in slots.line:
                yield f"law 12 no-leaked-lock: {call_id} waits for a slot and is in no line"
        if slots.line and (slots.free or slots.saturated):
            yield f"law 12 no-leaked-lock: {kind} has a free slot and somebody waits for it"


def _exclusion(state: State) -> Iterator[str]:
    holders = [c for c in state.calls.values() if c.claims and _holding(c)]
    for one, other in combinations(holders, 2):
        if _conflicting(one, other) and not _kin(one, other):
            yield f"law 12 no-leaked-lock: {one.id} and {other.id} hold what excludes each other"


def _entries(state: State) -> Iterator[str]:
    waiting = [
        c for c in state.calls.values() if c.phase is Phase.QUEUED and c.stage is Stage.RESOURCES
    ]
    holders = [c for c in state.calls.values() if _holding(c)]
    known = 0
    for call in state.calls.values():
        in_table = call.id in state.resources
        known += in_table
        if call.claims and in_table != (call in waiting or _holding(call)):
            verb = "is" if in_table else "is not"
            yield f"law 12 no-leaked-lock: {call.id} ({call.phase}) {verb} in the resource table"
    if known != len(state.resources):
        yield "law 12 no-leaked-lock: the resource table knows a key that is no call"
    for call in holders:
        if call.id in state.resources and not state.resources.is_clear(call.id):
            yield f"law 12 no-leaked-lock: {call.id} went on and still waits in the table"
    for call in waiting:
        if state.resources.is_clear(call.id):
            yield f"law 12 no-leaked-lock: {call.id} is clear and was not told"
        others = [o for o in (*holders, *waiting) if o is not call and not _kin(o, call)]
        if not any(_conflicting(call, other) for other in others):
            yield f"law 12 no-leaked-lock: {call.id} waits for resources that nobody else wants"


def _timers(state: State) -> Iterator[str]:
    calls = [c for c in state.calls.values() if c.due is not None]
    batches = [b for r in state.runs.values() for b in r.batches if b.due is not None]
    if len(state.timers) != len(calls) + len(batches):
        yield (
            f"law 8 machine-time: the queue counts {len(state.timers)} instants, "
            f"{len(calls) + len(batches)} are set"
        )
    first = state.timers.next_due()
    instants = [c.due for c in calls] + [b.due for b in batches]
    earliest = min((due for due in instants if due is not None), default=None)
    if first != earliest:
        yield f"law 8 machine-time: the queue says {first} is next, it is {earliest}"
    for batch in batches:
        if batch.closed:
            yield f"law 8 machine-time: {batch.id} is closed and still has a timer"


def _one_call(state: State, call: CallState) -> Iterator[str]:
    yield from _phase_and_stage(call)
    yield from _due(call)
    over = call.phase is Phase.SETTLED
    if over != (call.settled is not None):
        yield f"law 3 one-ending: {call.id} is {call.phase}, its ending says otherwise"
    alive = call.started and (not over or (call.settled is not None and call.settled.alive))
    if call.alive and not alive:
        yield f"law 9 on-the-books: {call.id} has no living worker and counts as alive"
    if not over and call.started and not call.alive:
        yield f"law 9 on-the-books: {call.id} runs and does not count as alive"
    if over and not call.alive:
        if call.slot or call.lane or call.reserved is not None:
            yield f"law 12 no-leaked-lock: {call.id} is over and still holds something"
        if any(call.id in slots.line for slots in state.slots.values()):
            yield f"law 7 every-wait-listens: {call.id} is over and stands in line"
    if over and call.lane:
        yield f"law 12 no-leaked-lock: {call.id} is settled and has a lane"
    if call.slot and not (call.phase in _THROUGH or call.alive):
        yield f"law 12 no-leaked-lock: {call.id} is {call.phase} and holds a slot"
    if call.parked and call.slot:
        yield f"law 12 no-leaked-lock: {call.id} is parked and holds a slot"
    if call.phase in _THROUGH and not call.parked and not call.slot:
        yield f"law 1 one-door: {call.id} is {call.phase} without a slot"
    if call.phase in _UNSTARTED and (call.run.cancelled or call.batch.cancelled):
        yield f"law 1 one-door: {call.id} is {call.phase} after its cancel"
    if call.phase is not Phase.RUNNING:
        yield from _children_stop(call)


def _children_stop(call: CallState) -> Iterator[str]:
    for run in call.children or ():
        if not run.ended and run.cancelled is None:
            yield f"law 17 children-settle: {call.id} is {call.phase}, its child {run.id} goes on"


def _questions(state: State) -> Iterator[str]:
    asked = {call: question.digest for call, question in state.approvals.items()}
    waiting = {call.id: call.approval for call in state.calls.values() if call.approval is not None}
    if asked != waiting:
        yield f"law 13 one-approval: the open questions are {asked}, the calls wait for {waiting}"
    for name, mine in state.questions.items():
        call = state.calls.get(name)
        if call is None or call.phase not in (Phase.RUNNING, Phase.STOPPING):
            yield f"law 7 every-wait-listens: {name} is over and still asks {list(mine)}"
        elif call.humans < len(mine) or call.meter is None or not call.meter.paused:
            yield f"law 8 machine-time: {name} asks {list(mine)} and its time goes on"


def _phase_and_stage(call: CallState) -> Iterator[str]:
    match call.phase:
        case _ if call.run.suspending and call.phase in _UNSTARTED:
            agreed = call.stage is Stage.WITHDRAWN and call.phase is not Phase.GRANTED
        case Phase.PREPARING | Phase.AWAITING_APPROVAL:
            agreed = call.stage is Stage.OUTSIDE
        case Phase.QUEUED:
            agreed = (
                call.stage is not Stage.WITHDRAWN and Stage.OUTSIDE < call.stage < Stage.THROUGH
            )
        case Phase.GRANTED | Phase.RUNNING | Phase.STOPPING:
            agreed = call.stage is Stage.THROUGH
        case Phase.SETTLED:
            agreed = not call.started or call.stage is Stage.THROUGH
        case _:
            assert_never(call.phase)
    if not agreed:
        yield f"law 1 one-door: {call.id} is {call.phase} at stage {call.stage.name}"
    if call.started != (call.meter is not None):
        yield f"law 8 machine-time: {call.id} has no meter that fits its start"
    if (call.approval is not None) != (call.phase is Phase.AWAITING_APPROVAL):
        yield f"law 13 one-approval: {call.id} is {call.phase} and its question is {call.approval}"
    if call.phase in (Phase.RUNNING, Phase.STOPPING) and not call.started:
        yield f"law 1 one-door: {call.id} is {call.phase} and never started"
    if call.phase in _UNSTARTED and call.started:
        yield f"law 1 one-door: {call.id} started and is {call.phase}"
    stopping = call.phase is Phase.STOPPING
    if stopping != (call.stop_reason is not None) and call.phase is not Phase.SETTLED:
        yield f"law 6 bounded-stop: {call.id} is {call.phase} with stop reason {call.stop_reason}"


def _due(call: CallState) -> Iterator[str]:
    if call.phase is Phase.SETTLED and call.due is not None:
        yield f"law 8 machine-time: {call.id} is settled and still has a timer"
    if call.phase is Phase.STOPPING and call.due is None:
        yield f"law 6 bounded-stop: {call.id} is being stopped without a bound"
    if call.phase is Phase.GRANTED and call.contract.start_s is not None and call.due is None:
        yield f"law 6 bounded-stop: {call.id} was granted without a bound for its start"
    if call.phase is Phase.RUNNING and call.meter is not None:
        paused = call.meter.paused
        limited = call.contract.deadline_s is not None or call.contract.idle_s is not None
        if (call.due is not None) != (limited and not paused):
            yield f"law 8 machine-time: {call.id} runs, paused={paused}, and is due at {call.due}"
        latest = call.meter.due_at(call.contract.deadline_s)
        if latest is not None and (call.due is None or call.due > latest):
            yield f"law 8 machine-time: {call.id} is due at {call.due}, not at {latest}"


def _one_batch(batch: BatchState) -> Iterator[str]:
    unsettled = [c for c in batch.calls if c.phase is not Phase.SETTLED]
    unprepared = [c for c in unsettled if c.phase in (Phase.PREPARING, Phase.AWAITING_APPROVAL)]
    if batch.unsettled != len(unsettled):
        yield f"law 4 one-answer: {batch.id} counts {batch.unsettled} open, {len(unsettled)} are"
    if batch.unprepared != len(unprepared):
        yield f"law 4 one-answer: {batch.id} counts {batch.unprepared} unprepared"
    if batch.closed != (not unsettled and len(batch.calls) == batch.size):
        yield f"law 4 one-answer: {batch.id} closed={batch.closed} with {len(unsettled)} open"
    lanes = sum(c.lane for c in batch.calls)
    if batch.lanes != lanes:
        yield f"law 12 no-leaked-lock: {batch.id} counts {batch.lanes} lanes, {lanes} are held"
    if batch.parallel is not None:
        if lanes > batch.parallel:
            yield f"law 12 no-leaked-lock: {batch.id} runs {lanes} at once of {batch.parallel}"
        if batch.line and lanes < batch.parallel:
            yield f"law 12 no-leaked-lock: {batch.id} has a free lane and somebody waits for it"
    for call in batch.line.values():
        if call.phase is not Phase.QUEUED or call.stage is not Stage.LANE:
            yield f"law 7 every-wait-listens: {call.id} ({call.phase}) stands in line for a lane"
    thinking = any(
        c.phase is Phase.AWAITING_APPROVAL or (c.meter is not None and c.meter.paused)
        for c in unsettled
    )
    if batch.meter.paused != thinking:
        yield f"law 8 machine-time: {batch.id} paused={batch.meter.paused}, not {thinking}"
    started = [c for c in unsettled if c.phase is Phase.RUNNING]
    if batch.cancelled and batch.mode is not Mode.DRAIN and started:
        yield f"law 2 right-target: {batch.id} is cancelled and {started[0].id} runs on"


def _order(batch: BatchState) -> Iterator[str]:
    """Request order between calls that conflict, barriers, and calls that start together."""
    queued = [c for c in batch.calls if c.stage > Stage.WITHDRAWN]
    if batch.together and batch.unprepared and queued:
        yield f"law 1 one-door: {queued[0].id} went ahead, {batch.id} starts together"
    for call in queued:
        if call.phase is Phase.SETTLED:
            continue
        mine = call.contract.exclusive or batch.parallel == 1
        for earlier in batch.calls[: call.index]:
            open_ = earlier.phase is not Phase.SETTLED
            if open_ and (mine or earlier.contract.exclusive):
                yield f"law 4 one-answer: {call.id} passed the barrier between it and {earlier.id}"
            if open_ and earlier.stage <= Stage.ORDER and _conflicting(earlier, call):
                yield f"law 4 one-answer: {call.id} overtook {earlier.id}, which it conflicts with"


def _open_runs(state: State) -> Iterator[RunState]:
    return (run for run in state.runs.values() if not run.ended)


def _one_run(state: State, run: RunState) -> Iterator[str]:
    below = sum(o.parent is not None and o.parent.run is run for o in _open_runs(state))
    if run.below != below:
        yield f"law 20 paid-once: {run.id} counts {run.below} runs below it, there are {below}"
    open_batches = sum(not batch.closed for batch in run.batches)
    if run.open_batches != open_batches:
        yield f"law 3 one-ending: {run.id} counts {run.open_batches} open, not {open_batches}"
    if run.let_go:
        # Its calls are not here any more; what they took is counted where it is taken up.
        return
    over = open_batches == 0 and (run.closing or run.cancelled is not None)
    if run.ended != over:
        yield f"law 3 one-ending: {run.id} ended={run.ended} with {open_batches} batches open"
    running = [c for c in run.calls() if c.phase is Phase.RUNNING]
    if run.cancelled and run.mode is not Mode.DRAIN and running:
        yield f"law 2 right-target: {run.id} is cancelled and {running[0].id} runs on"
    yield from _books(state, run)


def _draws(run: RunState, book: Budget) -> bool:
    link: Budget | None = run.budget
    while link is not None:
        if link is book:
            return True
        link = link.above
    return False


def _books(state: State, run: RunState) -> Iterator[str]:
    book = run.budget
    mine = [c for c in state.calls.values() if _draws(c.run, book)]
    reserved: dict[str, Decimal] = {}
    spent: dict[str, Decimal] = {}
    for call in mine:
        if call.reserved is not None:
            amount = reserved.get(call.reserved.currency, Decimal(0))
            reserved[call.reserved.currency] = amount + call.reserved.amount
        for money in (*call.spent, *((call.assumed,) if call.assumed is not None else ())):
            spent[money.currency] = spent.get(money.currency, Decimal(0)) + money.amount
    for other in state.runs.values():
        for money in other.paid if _draws(other, book) else ():
            spent[money.currency] = spent.get(money.currency, Decimal(0)) + money.amount
    if {c: a for c, a in book.reserved.items() if a} != {c: a for c, a in reserved.items() if a}:
        yield f"law 20 paid-once: {run.id} has {book.reserved} reserved, its calls {reserved}"
    if {c: a for c, a in book.spent.items() if a} != {c: a for c, a in spent.items() if a}:
        yield f"law 20 paid-once: {run.id} has {book.spent} spent, its calls and notes {spent}"
    counted = [c for c in mine if c.started or c.retried or c.phase is Phase.GRANTED]
    if book.calls != len(counted):
        yield f"law 20 paid-once: {run.id} counts {book.calls} starts, there were {len(counted)}"
    tools: dict[str, int] = {}
    for call in counted:
        tools[call.tool] = tools.get(call.tool, 0) + 1
    if {t: n for t, n in book.tool_calls.items() if n} != tools:
        yield f"law 20 paid-once: {run.id} counts {book.tool_calls} per tool, there were {tools}"
    limits = book.limits
    if limits is not None and limits.calls is not None and len(counted) > limits.calls:
        yield f"law 20 paid-once: {run.id} started {len(counted)} calls of {limits.calls}"
    for tool, limit in limits.tool_calls if limits is not None else ():
        if tools.get(tool, 0) > limit:
            yield f"law 20 paid-once: {run.id} started {tools[tool]} calls of {tool}, limit {limit}"


def _nothing_left(state: State) -> Iterator[str]:
    if len(state.resources):
        yield f"law 12 no-leaked-lock: at rest {len(state.resources)} keys are in the table"
    for kind, slots in state.slots.items():
        if slots.taken or slots.abandoned or slots.line:
            yield f"law 12 no-leaked-lock: at rest {kind} slots are {slots.taken} taken"
    for run in state.runs.values():
        if any(run.budget.reserved.values()) and not run.let_go:
            yield f"law 20 paid-once: at rest {run.id} still has money reserved"
        for batch in run.batches:
            if batch.order is not None and len(batch.order):
                yield f"law 12 no-leaked-lock: at rest {batch.id} orders {len(batch.order)} keys"
    if len(state.timers):
        yield f"law 8 machine-time: at rest {len(state.timers)} timers are set"
