"""The words of the core: the names and small values that inputs, events and state share.

Pure: nothing here knows the time, does I/O or may import anything above it. One word has one
meaning; `docs/glossary.md` lists them.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Any

from endstop.core.record import record


class Phase(StrEnum):
    """Where a call is on its way; `rules.py` lists the legal moves."""

    PREPARING = "preparing"
    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    GRANTED = "granted"
    RUNNING = "running"
    STOPPING = "stopping"
    SETTLED = "settled"


class Outcome(StrEnum):
    """How a call ended; exactly one per call (law 3 one-ending)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"


class Effect(StrEnum):
    """What may be true of the world after a call (law 5 honest-effect)."""

    NONE = "none"
    DONE = "done"
    UNKNOWN = "unknown"


class Reason(StrEnum):
    """The code behind an outcome: why it is what it is."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    RESULT_UNSERIALISABLE = "result_unserialisable"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED_BY_POLICY = "denied_by_policy"
    DENIED_BY_HUMAN = "denied_by_human"
    ANSWERED_BY_HUMAN = "answered_by_human"
    APPROVAL_EXPIRED = "approval_expired"
    OVER_BUDGET = "over_budget"
    RESOURCE_TIMEOUT = "resource_timeout"
    SATURATED = "saturated"
    EARLIER_ATTEMPT_ALIVE = "earlier_attempt_alive"
    HOOK_FAILED = "hook_failed"
    START_FAILED = "start_failed"
    BATCH_DEADLINE = "batch_deadline"
    CANCELLED_BY_USER = "cancelled_by_user"
    PARENT_CANCELLED = "parent_cancelled"
    SIBLING_FAILED = "sibling_failed"
    SUPERSEDED = "superseded"
    SHUTDOWN = "shutdown"
    DEADLINE = "deadline"
    IDLE = "idle"
    WORKER_LOST = "worker_lost"
    DRIVER_LOST = "driver_lost"
    DECLARED = "declared"


CANCEL_REASONS = frozenset(
    {
        Reason.CANCELLED_BY_USER,
        Reason.PARENT_CANCELLED,
        Reason.SIBLING_FAILED,
        Reason.SUPERSEDED,
        Reason.SHUTDOWN,
    }
)
"""The reasons that a cancel may carry."""

DECLARABLE = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.REJECTED})
"""The endings that whoever closes a run may declare for it."""


class EffectClass(StrEnum):
    """What a tool declares about its effect on the world; `design` decides durability by it."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"
    ONCE = "once"


class Isolation(StrEnum):
    """The kind of worker that a body runs on; each kind has slots of its own."""

    COROUTINE = "coroutine"
    THREAD = "thread"
    PROCESS = "process"
    REMOTE = "remote"


class Mode(StrEnum):
    """How a cancel stops: let what runs finish, climb the ladder, or skip the grace."""

    DRAIN = "drain"
    INTERRUPT = "interrupt"
    KILL = "kill"


class StoppedBy(StrEnum):
    """The rung of the stop ladder that ended a started call."""

    ASKED = "asked"
    KILLED = "killed"
    ABANDONED = "abandoned"


class Commit(StrEnum):
    """Where a body stands relative to the commit point that it declared."""

    NONE = "none"
    INSIDE = "inside"
    DONE = "done"
    FAILED = "failed"


class How(StrEnum):
    """How a body's worker says that the body is over."""

    RETURNED = "returned"
    RAISED = "raised"
    UNSERIALISABLE = "unserialisable"
    STOPPED = "stopped"
    LOST = "lost"


class Verdict(StrEnum):
    """The four answers to an approval."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"
    RESPOND = "respond"


class Flag(StrEnum):
    """What else is true of an ending, beside its outcome."""

    OVERRAN = "overran"
    CANCEL_REQUESTED = "cancel_requested"


@record
class Money:
    """An exact amount in one currency."""

    amount: Decimal
    currency: str


@record
class Limits:
    """A budget: what a run, with all its children, may spend (law 20 paid-once).

    `money` maps a currency to its limit; once it names any, a cost in another currency is over
    budget. `calls` bounds how many bodies may start; `tool_calls` bounds them per tool.
    """

    money: tuple[Money, ...] = ()
    calls: int | None = None
    tool_calls: tuple[tuple[str, int], ...] = ()


@record
class Claim:
    """One resource that a call wants, shared or exclusively, and how long it may wait for it.

    A resource whose name has the form `kind:/a/b` nests: `file:/a` excludes `file:/a/b`. The name
    is already normalised (the tools layer does that); the core compares it piece by piece.
    """

    resource: str
    shared: bool = False
    wait_s: float | None = None


@record
class Backoff:
    """How long a call rests before it is tried again: `first_s`, then `factor` times as long each
    time, at most `most_s`; all in seconds. It holds nothing meanwhile."""

    first_s: float = 1.0
    factor: float = 2.0
    most_s: float = 60.0

    def delay_s(self, attempt: int) -> float:
        """The rest after attempt number `attempt`, which counts from 1."""
        assert attempt >= 1, "there is no rest before the first attempt"
        delay_s = self.first_s
        for _ in range(attempt - 1):
            if delay_s >= self.most_s:
                break
            delay_s *= self.factor
        return min(delay_s, self.most_s)


DEFAULT_BACKOFF = Backoff()

REFERENCE = "reference"
"""The kind of the note in which a body keeps what it needs to go on after its driver is lost."""


@record
class Contract:
    """What is promised of a tool and asked of the runtime, with every time already resolved.

    All times are seconds; None means no limit. One object is shared by all calls of a tool that
    have the same limits. `retries` is how often an attempt that failed may be followed by another
    one; `reconciles` says that the tool can be asked what became of a call, `reattaches`
    that a body can go on with what a lost one began, by the reference that it noted (law 10).
    """

    effect: EffectClass = EffectClass.EFFECTFUL
    isolation: Isolation = Isolation.COROUTINE
    exclusive: bool = False
    commits: bool = False
    deadline_s: float | None = 420.0
    idle_s: float | None = None
    grace_s: float = 5.0
    commit_s: float = 30.0
    kill_s: float = 2.0
    start_s: float | None = 30.0
    retries: int = 0
    backoff: Backoff = DEFAULT_BACKOFF
    reconciles: bool = False
    reattaches: bool = False

    @property
    def killable(self) -> bool:
        """Whether the ladder has a kill rung for this worker (design §4)."""
        return self.isolation is Isolation.PROCESS


@record
class ToolCall:
    """One tool call as the model asked for it, before anything was checked.

    `model_id` may be empty or repeated and is never used as a key (law 4 one-answer). Where
    `arguments` is None they were unusable, `problem` says why in words for the model and `raw`
    shows what was received.
    """

    model_id: str
    tool: str
    arguments: dict[str, Any] | None
    raw: str = ""
    problem: str | None = None


@record
class Earlier:
    """A call of which it is not known what it did: the same call again is told of it (law 10).

    `key` stands for the tool and its canonical arguments.
    """

    key: str
    call: str
    outcome: Outcome
    effect: Effect


@record
class Refusal:
    """Why a call may not start, in a code and in words for the model."""

    reason: Reason
    message: str


@record
class RuleTerms:
    """What is remembered of a yes: the values of the arguments that count, and for how long."""

    same: dict[str, Any]
    for_s: float | None = None


@record
class ApprovalTerms:
    """What a human is asked: bound by `digest` to tool, final arguments and target (law 13)."""

    digest: str
    prompt: str = ""
    expires_s: float | None = None
