"""One example of every event of a call, to be offered where it is illegal."""

from __future__ import annotations

from typing import Any, get_args

from endstop.core import events as e
from endstop.core.state import CallState
from endstop.core.terms import Effect, How, Outcome, Reason, Verdict
from tests.stories import eur

CALL_EVENTS: tuple[type, ...] = tuple(
    kind for kind in get_args(e.CallEvent) if kind is not e.CallAccepted
)

_FIELDS: dict[type, dict[str, Any]] = {
    e.HookStarted: {"hook": "h", "limit_s": 1.0},
    e.ApprovalAsked: {
        "digest": "d",
        "prompt": "?",
        "expires_s": None,
        "arguments": {},
        "claims": (),
        "cost": None,
    },
    e.ApprovalAnswered: {"digest": "d", "verdict": Verdict.APPROVE},
    e.CallRetried: {"attempt": 1, "reason": Reason.TOOL_ERROR, "effect": Effect.NONE},
    e.CallReconciled: {"done": None},
    e.QuestionAsked: {"question": "q", "text": "?"},
    e.QuestionAnswered: {"question": "q"},
    e.QuestionWithdrawn: {"question": "q"},
    e.CommitEnded: {"done": True},
    e.CallSpent: {"money": eur("1")},
    e.StopRequested: {"reason": Reason.CANCELLED_BY_USER},
    e.AskSent: {"grace_s": 1.0},
    e.CallSettled: {
        "outcome": Outcome.SUCCEEDED,
        "reason": Reason.OK,
        "effect": Effect.DONE,
    },
    e.LateEnd: {"how": How.RETURNED},
}


def sample(kind: type, call: CallState) -> Any:
    """An event of this kind for this call."""
    return kind(run=call.run.id, call=call.id, **_FIELDS.get(kind, {}))
