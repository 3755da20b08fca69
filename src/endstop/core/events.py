"""The events: what has happened to runs, batches and calls. This is the journal's language.

Pure data: frozen, slotted, keyword-only. Events carry no instants: the journal stamps what it
records, and `evolve` is told the time. Do not subclass them and do not add behaviour.
"""

from __future__ import annotations

from typing import Any

from endstop.core.human import ApprovalAnswered as ApprovalAnswered
from endstop.core.human import ApprovalAsked as ApprovalAsked
from endstop.core.human import CallPaused as CallPaused
from endstop.core.human import CallResumed as CallResumed
from endstop.core.human import QuestionAnswered as QuestionAnswered
from endstop.core.human import QuestionAsked as QuestionAsked
from endstop.core.human import QuestionWithdrawn as QuestionWithdrawn
from endstop.core.human import RuleMade as RuleMade
from endstop.core.human import RuleRevoked as RuleRevoked
from endstop.core.lifetime import Noted as Noted
from endstop.core.lifetime import RunCancelled as RunCancelled
from endstop.core.lifetime import RunClosing as RunClosing
from endstop.core.lifetime import RunEnded as RunEnded
from endstop.core.lifetime import RunInterrupted as RunInterrupted
from endstop.core.lifetime import RunOpened as RunOpened
from endstop.core.lifetime import RunResumed as RunResumed
from endstop.core.lifetime import RunSuspending as RunSuspending
from endstop.core.record import record
from endstop.core.terms import (
    Claim,
    Contract,
    Earlier,
    Effect,
    Flag,
    How,
    Mode,
    Money,
    Outcome,
    Reason,
    StoppedBy,
)


@record
class BatchOpened:
    """The calls of one model reply were taken in."""

    run: str
    batch: str
    size: int
    parallel: int | None = None
    deadline_s: float | None = None
    together: bool = False
    stop_on_failure: bool = False


@record
class BatchCancelled:
    """A cancel of one batch was accepted; sticky."""

    run: str
    batch: str
    reason: Reason
    mode: Mode


@record
class BatchClosed:
    """Every call of the batch is settled."""

    run: str
    batch: str


@record
class CallAccepted:
    """A call was taken in; it will get exactly one answer (law 4 one-answer)."""

    run: str
    call: str
    batch: str
    index: int
    model_id: str
    tool: str
    arguments: dict[str, Any] | None
    contract: Contract
    claims: tuple[Claim, ...] = ()
    cost: Money | None = None


@record
class HookStarted:
    """A hook of a call that is being prepared has begun."""

    run: str
    call: str
    hook: str
    limit_s: float | None


@record
class CallQueued:
    """A call is ready and waits for order, resources, a slot and budget.

    The fields are None where nothing changed since it was accepted.
    """

    run: str
    call: str
    arguments: dict[str, Any] | None = None
    claims: tuple[Claim, ...] | None = None
    cost: Money | None = None


@record
class CallGranted:
    """The gate let a call through; its worker may now claim it (law 1 one-door).

    `earlier` is the same call issued before, of which it is not known what it did (law 10).
    """

    run: str
    call: str
    reserved: Money | None = None
    earlier: Earlier | None = None


@record
class CallStarted:
    """The worker claimed the call: its body begins now."""

    run: str
    call: str


@record
class CallRetried:
    """An attempt is over without an ending, and the call stands in line again (law 10).

    `attempt`, counted from 1, is the one that is over. `effect` is what all so far may have left in
    the world, `used_s` their running time: one effect key, one deadline.
    """

    run: str
    call: str
    attempt: int
    reason: Reason
    effect: Effect
    delay_s: float = 0.0
    used_s: float = 0.0
    error: str | None = None


@record
class CallReconciled:
    """A tool was asked what became of an attempt that was lost: done, not done, or unknown."""

    run: str
    call: str
    done: bool | None
    error: str | None = None


@record
class CallProgressed:
    """A running body reported progress."""

    run: str
    call: str
    message: str = ""
    fraction: float | None = None


@record
class CommitBegan:
    """A body passed its commit point: a stop now waits, within a bound."""

    run: str
    call: str


@record
class CommitEnded:
    """A body left its commit block; `done` is false where the block raised."""

    run: str
    call: str
    done: bool


@record
class CallSpent:
    """Money was spent by a call; `late` when it was reported after the ending."""

    run: str
    call: str
    money: Money
    late: bool = False


@record
class CallParked:
    """A running body waits for its children and holds no slot."""

    run: str
    call: str


@record
class UnparkAsked:
    """A parked body wants to go on and stands in line for a slot."""

    run: str
    call: str


@record
class CallUnparked:
    """A parked body has a slot again and may go on."""

    run: str
    call: str


@record
class StopRequested:
    """A started call must stop; the first reason wins and decides how its end is classified."""

    run: str
    call: str
    reason: Reason


@record
class AskSent:
    """First rung: the body is asked to stop and has `grace_s` to do so."""

    run: str
    call: str
    grace_s: float


@record
class KillSent:
    """Second rung: the worker is killed, with its whole tree (law 11 whole-tree)."""

    run: str
    call: str


@record
class CallSettled:
    """The one ending of a call (law 3 one-ending).

    `alive` says that its worker may still be running: then its slot and resources stay taken until
    `LateEnd` (law 9 on-the-books). `ran_s` is running time, human waits not counted. `retried` is
    the number of attempts that were over before this ending.
    """

    run: str
    call: str
    outcome: Outcome
    reason: Reason
    effect: Effect
    value: Any = None
    error: str | None = None
    output: Any = None
    stopped_by: StoppedBy | None = None
    flags: tuple[Flag, ...] = ()
    survivors: tuple[str, ...] = ()
    spent: tuple[Money, ...] = ()
    ran_s: float = 0.0
    alive: bool = False
    retried: int = 0


@record
class LateEnd:
    """The worker of an abandoned call really ended; kept for audit, changes no outcome."""

    run: str
    call: str
    how: How
    error: str | None = None
    survivors: tuple[str, ...] = ()


RunEvent = (
    RunOpened
    | RunCancelled
    | RunClosing
    | RunSuspending
    | RunInterrupted
    | RunResumed
    | RunEnded
    | Noted
    | RuleMade
    | RuleRevoked
    | BatchOpened
    | BatchCancelled
    | BatchClosed
)
CallEvent = (
    CallAccepted
    | HookStarted
    | ApprovalAsked
    | ApprovalAnswered
    | CallQueued
    | CallGranted
    | CallStarted
    | CallRetried
    | CallReconciled
    | CallPaused
    | CallResumed
    | QuestionAsked
    | QuestionAnswered
    | QuestionWithdrawn
    | CallProgressed
    | CommitBegan
    | CommitEnded
    | CallSpent
    | CallParked
    | UnparkAsked
    | CallUnparked
    | StopRequested
    | AskSent
    | KillSent
    | CallSettled
    | LateEnd
)
Event = RunEvent | CallEvent

TRANSIENT = (HookStarted, CallProgressed, UnparkAsked)
"""Events that are shown but not recorded: nothing after a restart depends on them."""
