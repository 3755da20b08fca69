"""The state of a runtime: its runs, batches and calls, and the tables that they share.

Only `evolve.py` changes what is here, and only because an event says so. Everything is derived from
events: replaying a run's events gives its state again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from endstop.core.budget import Budget
from endstop.core.deadlines import Meter, Timers
from endstop.core.events import (
    ApprovalAsked,
    BatchOpened,
    CallAccepted,
    CallRetried,
    CallSettled,
    QuestionAsked,
    RuleMade,
    RunOpened,
)
from endstop.core.resources import ResourceTable
from endstop.core.terms import (
    Commit,
    Earlier,
    Effect,
    Isolation,
    Mode,
    Money,
    Outcome,
    Phase,
    Reason,
    StoppedBy,
)


class Stage(IntEnum):
    """Where a queued call stands between being ready and being granted; `gate.py` moves it.

    What is `WITHDRAWN` belongs to a run that is let go: it stands nowhere and holds nothing.
    """

    OUTSIDE = 0
    ORDER = 1
    WITHDRAWN = 2
    RESTING = 3
    RESOURCES = 4
    LANE = 5
    SLOT = 6
    THROUGH = 7


# Python 3.11 finds an enum member at several times the cost of a global.
_PREPARING, _OUTSIDE, _NO_COMMIT = Phase.PREPARING, Stage.OUTSIDE, Commit.NONE
_NO_EFFECT = Effect.NONE


class CallState:
    """One call. `due` belongs to the timer queue.

    `started`, `meter`, `commit` and the rest belong to the attempt that is under way; `retried` is
    how the one before it ended, and `left` what the earlier ones may have done to the world.
    """

    __slots__ = (
        "accepted_at",
        "alive",
        "approval",
        "arguments",
        "assumed",
        "batch",
        "children",
        "claims",
        "commit",
        "contract",
        "cost",
        "due",
        "earlier",
        "hook",
        "hook_limit_s",
        "humans",
        "id",
        "index",
        "lane",
        "left",
        "meter",
        "model_id",
        "parked",
        "phase",
        "phase_at",
        "progress_at",
        "reserved",
        "retried",
        "run",
        "rung",
        "settled",
        "slot",
        "spent",
        "stage",
        "started",
        "stop_reason",
        "tool",
    )

    def __init__(self, accepted: CallAccepted, batch: BatchState, now: float) -> None:
        self.id = accepted.call
        self.run = batch.run
        self.batch = batch
        self.index = accepted.index
        self.model_id = accepted.model_id
        self.tool = accepted.tool
        self.arguments = accepted.arguments
        self.contract = accepted.contract
        self.claims = accepted.claims
        self.cost = accepted.cost
        self.phase = _PREPARING
        self.stage = _OUTSIDE
        self.accepted_at = self.phase_at = now
        self.due: float | None = None
        self.hook: str | None = None
        self.hook_limit_s: float | None = None
        self.approval: str | None = None
        self.meter: Meter | None = None
        self.progress_at = now
        self.commit = _NO_COMMIT
        self.stop_reason: Reason | None = None
        self.rung: StoppedBy | None = None
        self.started = False
        self.alive = False
        self.slot = False
        self.lane = False
        self.parked = False
        self.reserved: Money | None = None
        self.spent: tuple[Money, ...] = ()
        self.assumed: Money | None = None
        self.humans = 0
        self.retried: CallRetried | None = None
        self.left = _NO_EFFECT
        self.earlier: Earlier | None = None
        self.children: list[RunState] | None = None
        self.settled: CallSettled | None = None


class BatchState:
    """The calls of one model reply and what orders them.

    `horizon` is the first index that may not queue yet (a barrier, or calls that start together);
    `order` holds the calls that have not queued, where a later one could overtake an earlier one.
    """

    __slots__ = (
        "calls",
        "cancelled",
        "closed",
        "deadline_s",
        "due",
        "entered_below",
        "horizon",
        "id",
        "lanes",
        "line",
        "meter",
        "mode",
        "next_exclusive",
        "order",
        "parallel",
        "run",
        "settled_below",
        "size",
        "stop_on_failure",
        "together",
        "unprepared",
        "unsettled",
    )

    def __init__(self, opened: BatchOpened, run: RunState, now: float) -> None:
        self.id = opened.batch
        self.run = run
        self.size = opened.size
        self.calls: list[CallState] = []
        self.parallel = opened.parallel
        self.deadline_s = opened.deadline_s
        self.together = opened.together
        self.stop_on_failure = opened.stop_on_failure
        self.meter = Meter(now)
        self.due: float | None = None
        self.order: ResourceTable | None = None
        self.horizon = 0
        self.settled_below = 0
        self.entered_below = 0
        self.next_exclusive = 0
        self.unprepared = opened.size
        self.unsettled = opened.size
        self.lanes = 0
        self.line: OrderedDict[str, CallState] = OrderedDict()
        self.cancelled: Reason | None = None
        self.mode: Mode | None = None
        self.closed = False


class RunState:
    """One agent execution. `seq` is the number of its last recorded event; `unsure` are the calls
    of it, and of those that it continues, of which it is not known what they did. `declared` is how
    it is to end, where somebody said so before it was cancelled. It has `ended` when nothing more
    follows here: it has its ending, or was `let_go` for somebody else to take up. `below` is how
    many runs that were opened from it, detached or not, have not."""

    __slots__ = (
        "attached",
        "batches",
        "below",
        "budget",
        "cancelled",
        "closing",
        "declared",
        "ended",
        "fenced",
        "id",
        "let_go",
        "mode",
        "open_batches",
        "paid",
        "parent",
        "seq",
        "suspending",
        "unsure",
    )

    def __init__(self, opened: RunOpened, parent: CallState | None) -> None:
        self.id = opened.run
        self.parent = parent
        self.attached = parent is not None and not opened.detached
        self.budget: Budget = Budget(opened.limits, parent.run.budget if parent else None)
        self.batches: list[BatchState] = []
        self.below = 0
        self.open_batches = 0
        self.cancelled: Reason | None = None
        self.mode: Mode | None = None
        self.closing = False
        self.declared: Outcome | None = None
        self.fenced = False
        self.suspending = False
        self.let_go = False
        self.ended = False
        self.seq = 0
        # What notes tell of that was paid outside of any call.
        self.paid: tuple[Money, ...] = ()
        self.unsure = {one.key: one for one in opened.inherited} or None

    def calls(self) -> Iterator[CallState]:
        """The calls of all its batches that are not closed."""
        for batch in self.batches:
            if not batch.closed:
                yield from batch.calls

    def kin(self) -> tuple[str, ...]:
        """The calls that wait for this run, nearest first: a child may use what they hold."""
        keys = []
        run = self
        while run.attached and run.parent is not None:
            keys.append(run.parent.id)
            run = run.parent.run
        return tuple(keys)


class Slots:
    """The slots of one kind of worker, and the calls that have everything else."""

    __slots__ = ("abandoned", "limit", "line", "taken")

    def __init__(self, limit: int | None) -> None:
        assert limit is None or limit > 0, "a kind of worker has at least one slot"
        self.limit = limit
        self.taken = 0
        self.abandoned = 0
        self.line: OrderedDict[str, CallState] = OrderedDict()

    @property
    def free(self) -> bool:
        """Whether a slot can be taken now."""
        return self.limit is None or self.taken < self.limit

    @property
    def saturated(self) -> bool:
        """Whether abandoned workers hold every slot, so that waiting may never end (law 9)."""
        return self.limit is not None and self.abandoned >= self.limit

    @property
    def moves(self) -> bool:
        """Whether the first in line can be granted, refused or resumed now."""
        return self.free or self.saturated


class State:
    """Everything that one runtime knows.

    `approvals` are the questions about calls that have not begun; `questions` those of bodies, by
    call and by id. `rules` are what is remembered of approvals, by run and by id, each with the
    instant of its end.
    """

    __slots__ = (
        "approvals",
        "calls",
        "check_batches",
        "check_runs",
        "lines",
        "questions",
        "resources",
        "rules",
        "runs",
        "slots",
        "timers",
    )

    def __init__(self, slots: Mapping[Isolation, int | None] | None = None) -> None:
        limits = slots or {}
        self.runs: dict[str, RunState] = {}
        self.calls: dict[str, CallState] = {}
        self.approvals: dict[str, ApprovalAsked] = {}
        self.questions: dict[str, dict[str, QuestionAsked]] = {}
        self.rules: dict[str, dict[str, tuple[RuleMade, float | None]]] = {}
        self.resources = ResourceTable()
        self.slots = {kind: Slots(limits.get(kind)) for kind in Isolation}
        self.lines = tuple(self.slots.values())
        self.timers = Timers()
        self.check_batches: deque[BatchState] = deque()
        self.check_runs: deque[RunState] = deque()

    def batch(self, batch_id: str) -> BatchState | None:
        """The batch with this id; none of a run that was let go."""
        run_id, _, number = batch_id.partition("/")
        run = self.runs.get(run_id)
        if run is None or run.let_go:
            return None
        if not number.isdigit() or int(number) >= len(run.batches):
            return None
        return run.batches[int(number)]


_HARM = (Effect.NONE, Effect.UNKNOWN, Effect.DONE)


def worst(one: Effect, other: Effect) -> Effect:
    """What is known of the world after two attempts that left this and that."""
    return max(one, other, key=_HARM.index)


def effect_of_stop(call: CallState) -> Effect:
    """What is known of the world when a started body did not return (law 5 honest-effect).

    Of this attempt only; `worst` adds what earlier ones left.
    """
    if call.commit is Commit.DONE:
        return Effect.DONE
    if call.contract.effect == "read_only":
        return Effect.NONE
    if call.contract.commits and call.commit is Commit.NONE:
        return Effect.NONE
    return Effect.UNKNOWN


def arguments_of(call: CallState) -> dict[str, Any]:
    """The arguments that a body is run with."""
    assert call.arguments is not None, f"{call.id} is run without arguments"
    return call.arguments
