"""The events of humans who are asked: about a call before it starts, and by a body that runs.

Part of `events.py`, and pure as it is: these are its words for approvals and for waits in a body.
"""

from __future__ import annotations

from typing import Any

from endstop.core.record import record
from endstop.core.terms import Claim, Money, Verdict


@record
class ApprovalAsked:
    """A call waits for a human; nothing is held meanwhile (law 12 no-leaked-lock)."""

    run: str
    call: str
    digest: str
    prompt: str
    expires_s: float | None
    arguments: dict[str, Any]
    claims: tuple[Claim, ...]
    cost: Money | None


@record
class ApprovalAnswered:
    """The one answer to an approval; consumed here (law 13 one-approval).

    After an edit, `final` is the digest of what will run. Where a human's earlier yes was
    remembered, `rule` names the rule that answered.
    """

    run: str
    call: str
    digest: str
    verdict: Verdict
    message: str = ""
    by: str = ""
    final: str = ""
    rule: str = ""


@record
class CallPaused:
    """A running body waits for a human: its deadline stands still (law 8 machine-time)."""

    run: str
    call: str
    why: str = ""


@record
class CallResumed:
    """The human wait inside a body is over."""

    run: str
    call: str


@record
class QuestionAsked:
    """A running body asks a human and waits: its deadline stands still (law 8 machine-time).

    `choices`, where there are any, are the only answers. The answer to a `secret` one is a password
    or the like: it is not recorded and not shown.
    """

    run: str
    call: str
    question: str
    text: str
    choices: tuple[str, ...] = ()
    secret: bool = False


@record
class QuestionAnswered:
    """The one answer to a question; `text` is None where it is secret."""

    run: str
    call: str
    question: str
    text: str | None = None
    by: str = ""


@record
class QuestionWithdrawn:
    """The body does not wait for this answer any more."""

    run: str
    call: str
    question: str


@record
class RuleMade:
    """A yes is remembered: calls of `tool` with the `same` arguments need no other.

    `rule` is the call whose answer it was. It holds for its run and the runs below it, for `for_s`
    seconds or until the run is over.
    """

    run: str
    rule: str
    tool: str
    same: dict[str, Any]
    for_s: float | None = None
    by: str = ""


@record
class RuleRevoked:
    """A rule holds no more; what it has let through is not called back."""

    run: str
    rule: str
    by: str = ""
