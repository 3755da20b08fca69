"""The inputs: everything that the world may tell the core. Drivers may only tell.

Pure data: frozen, slotted, keyword-only. An input says what was asked or seen, never what is to
be done about it; `decide.py` decides that.
"""

from __future__ import annotations

from typing import Any

from endstop.core.record import EMPTY, record
from endstop.core.terms import (
    ApprovalTerms,
    Claim,
    Contract,
    Earlier,
    How,
    Limits,
    Mode,
    Money,
    Outcome,
    Reason,
    Refusal,
    RuleTerms,
    Verdict,
)


@record
class OpenRun:
    """Register a run; from here on it can be cancelled (law 2 right-target).

    `after` names the run that it continues, and `inherited` the calls of which that one left
    unknown what they did. `labels` are what it may be found by.
    """

    run: str
    parent_call: str | None = None
    detached: bool = False
    limits: Limits | None = None
    after: str | None = None
    inherited: tuple[Earlier, ...] = ()
    labels: dict[str, str] = EMPTY


@record
class Asked:
    """One call of a batch: what the model asked for and what its tool's contract makes of it.

    `ready` says that nothing is left to prepare (no hook, no approval). A call with a `refusal`
    is accepted, so that it gets its answer, and settled at once.
    """

    model_id: str
    tool: str
    arguments: dict[str, Any] | None
    contract: Contract
    claims: tuple[Claim, ...] = ()
    cost: Money | None = None
    ready: bool = True
    refusal: Refusal | None = None


@record
class SubmitBatch:
    """The tool calls of one model reply, in request order.

    `parallel` bounds how many of them run at once, `deadline_s` the batch as a whole. With
    `together`, none starts before all are prepared. With `stop_on_failure`, one that fails
    cancels the others.
    """

    run: str
    calls: tuple[Asked, ...]
    parallel: int | None = None
    deadline_s: float | None = None
    together: bool = False
    stop_on_failure: bool = False


@record
class HookBegan:
    """A hook of a call that is being prepared begins; it may take `limit_s`, then fails closed."""

    call: str
    hook: str
    limit_s: float | None


@record
class Prepared:
    """All hooks of a call agreed; these are its final arguments and claims."""

    call: str
    arguments: dict[str, Any]
    claims: tuple[Claim, ...]
    cost: Money | None = None
    approval: ApprovalTerms | None = None


@record
class Refused:
    """Preparing a call failed or was blocked; its body must not run."""

    call: str
    refusal: Refusal


@record
class Answered:
    """A human answered the approval of one call (law 13 one-approval).

    `digest` must be that of the pending question. With `edit`, the remaining fields carry the new,
    validated arguments, and `final` their digest; a yes may ask to `remember` it; with `reject` and
    `respond`, `message` is what the model will read.
    """

    call: str
    digest: str
    verdict: Verdict
    message: str = ""
    by: str = ""
    arguments: dict[str, Any] | None = None
    claims: tuple[Claim, ...] = ()
    cost: Money | None = None
    final: str = ""
    remember: RuleTerms | None = None


@record
class RevokeRule:
    """A human takes a remembered yes back."""

    rule: str
    by: str = ""


@record
class Claimed:
    """A worker asks, immediately before the body, whether it may start it (law 1 one-door)."""

    call: str


@record
class StartFailed:
    """A worker could not start a granted call: its body never began.

    `saturated` says that bodies which cannot be stopped are in its way (law 9 on-the-books).
    """

    call: str
    message: str
    saturated: bool = False


@record
class BodyEnded:
    """A worker says that a body is over, and how; also used for the late end of an abandoned one.

    `value` is JSON-safe; `error` describes an exception; `output` is what a stopped body had
    produced so far; `survivors` names processes that could not be killed (law 11 whole-tree).
    `said` are its last words, recorded before its end in the same step (law 15 record-first); of
    those that come too late nothing is kept.
    """

    call: str
    how: How
    value: Any = None
    error: str | None = None
    output: Any = None
    survivors: tuple[str, ...] = ()
    said: tuple[Note | CloseRun, ...] = ()


@record
class Progressed:
    """A running body reports progress; extends its idle limit only (law 8 machine-time)."""

    call: str
    message: str = ""
    fraction: float | None = None


@record
class HumanBegan:
    """A running body starts to wait for a human: its deadline stands still (law 8)."""

    call: str
    why: str = ""


@record
class HumanEnded:
    """The human wait inside a running body is over."""

    call: str


@record
class QuestionBegan:
    """A running body asks a human; see `QuestionAsked`. `question` is an id that the body makes."""

    call: str
    question: str
    text: str
    choices: tuple[str, ...] = ()
    secret: bool = False


@record
class QuestionTold:
    """A human answered a question; a `text` that is secret does not come here."""

    call: str
    question: str
    text: str | None = None
    by: str = ""


@record
class QuestionLeft:
    """The body waits for the answer no more."""

    call: str
    question: str


@record
class CommitEntered:
    """A body asks to pass its commit point; refused once a stop was requested (law 1 one-door)."""

    call: str


@record
class CommitLeft:
    """A body left its commit block; `done` is false where the block raised."""

    call: str
    done: bool


@record
class Spent:
    """A body reports money spent (law 20 paid-once); also counted when it comes late."""

    call: str
    money: Money


@record
class ParkBegan:
    """A running body waits for its children and gives its slot back (law 12 no-leaked-lock)."""

    call: str


@record
class ParkEnded:
    """The children of a parked body are over; it needs a slot again to go on."""

    call: str


@record
class Cancel:
    """Stop a run, a batch or a call, addressed by its identity (law 2 right-target)."""

    target: str
    reason: Reason = Reason.CANCELLED_BY_USER
    mode: Mode = Mode.INTERRUPT


@record
class CloseRun:
    """No further batch will come; the run ends when its open batches are closed.

    `outcome` declares how: succeeded, failed or rejected. Of that and a cancel of the run, the one
    recorded first decides (law 3 one-ending). With `at_seq` it counts only where nothing of the run
    was recorded since that number: whoever closes it has seen all that was said.
    """

    run: str
    outcome: Outcome | None = None
    at_seq: int | None = None


@record
class SuspendRun:
    """Let a run go, to be resumed by anybody; refused while anything of it runs.

    With `stop`, what runs is stopped by the ladder first, and the run is let go after it.
    """

    run: str
    stop: bool = False


@record
class Note:
    """The application's own word, to be kept in the history of a run.

    Refused once the run has ended, or the `call` that it belongs to is settled (law 3 one-ending).
    `spent` is money that was paid outside of any call for what the note tells of.
    """

    run: str
    kind: str
    body: dict[str, Any]
    call: str | None = None
    spent: Money | None = None


@record
class RunFenced:
    """Another driver wrote to this run: nothing of it may start here any more."""

    run: str


@record
class Reconciled:
    """What a tool's own reconciler says of a lost attempt; `value` is the result where it is done.

    `done` is None where it cannot tell, or failed itself; `error` then says so in words.
    """

    call: str
    done: bool | None
    value: Any = None
    error: str | None = None


@record
class ResumeRun:
    """Take a run up again that was restored in this same step (law 16 survives-restart).

    `again` are the calls that may have begun and may run again; `reconciled` those whose tool was
    asked; of the others that may have begun, the outcome stays unknown. `refused` are the calls
    that cannot go on here.
    """

    run: str
    again: tuple[str, ...] = ()
    reconciled: tuple[Reconciled, ...] = ()
    refused: tuple[tuple[str, Refusal], ...] = ()


@record
class Together:
    """Inputs for one run, decided and recorded in one piece (law 15 record-first).

    From the first that decides nothing, or is refused, on, the rest is not looked at.
    """

    inputs: tuple[OpenRun | Note | CloseRun | SubmitBatch, ...]


@record
class Tick:
    """Time has passed; whatever is due now happens."""


Input = (
    OpenRun
    | SubmitBatch
    | HookBegan
    | Prepared
    | Refused
    | Answered
    | RevokeRule
    | Claimed
    | StartFailed
    | BodyEnded
    | Progressed
    | HumanBegan
    | HumanEnded
    | QuestionBegan
    | QuestionTold
    | QuestionLeft
    | CommitEntered
    | CommitLeft
    | Spent
    | ParkBegan
    | ParkEnded
    | Cancel
    | CloseRun
    | SuspendRun
    | Note
    | RunFenced
    | ResumeRun
    | Together
    | Tick
)
