"""The names of the events in a journal. Pure data, and part of the codec."""

from __future__ import annotations

from types import MappingProxyType

from endstop.core import events as language

KINDS = MappingProxyType(
    {
        "run_opened": language.RunOpened,
        "run_cancelled": language.RunCancelled,
        "run_closing": language.RunClosing,
        "run_suspending": language.RunSuspending,
        "run_interrupted": language.RunInterrupted,
        "run_resumed": language.RunResumed,
        "run_ended": language.RunEnded,
        "noted": language.Noted,
        "rule_made": language.RuleMade,
        "rule_revoked": language.RuleRevoked,
        "batch_opened": language.BatchOpened,
        "batch_cancelled": language.BatchCancelled,
        "batch_closed": language.BatchClosed,
        "call_accepted": language.CallAccepted,
        "hook_started": language.HookStarted,
        "approval_asked": language.ApprovalAsked,
        "approval_answered": language.ApprovalAnswered,
        "call_queued": language.CallQueued,
        "call_granted": language.CallGranted,
        "call_started": language.CallStarted,
        "call_retried": language.CallRetried,
        "call_reconciled": language.CallReconciled,
        "call_paused": language.CallPaused,
        "call_resumed": language.CallResumed,
        "question_asked": language.QuestionAsked,
        "question_answered": language.QuestionAnswered,
        "question_withdrawn": language.QuestionWithdrawn,
        "call_progressed": language.CallProgressed,
        "commit_began": language.CommitBegan,
        "commit_ended": language.CommitEnded,
        "call_spent": language.CallSpent,
        "call_parked": language.CallParked,
        "unpark_asked": language.UnparkAsked,
        "call_unparked": language.CallUnparked,
        "stop_requested": language.StopRequested,
        "ask_sent": language.AskSent,
        "kill_sent": language.KillSent,
        "call_settled": language.CallSettled,
        "late_end": language.LateEnd,
    }
)
"""The name of each event in a journal. Names are for ever: a class may be renamed, a kind not."""
