"""Reconcilers on the driver's side: the question, and what their answers mean to the core.

Nothing here waits. An answer that makes no sense, and none at all, means that it cannot be told:
the outcome of the call stays unknown (law 10 no-blind-retry).
"""

from __future__ import annotations

import copy

from endstop.core import inputs as i
from endstop.core.payload import Unserialisable, to_data
from endstop.run.plans import Plan
from endstop.tools.reconcile import LostCall, Reconcile, Reconciled


def question_of(plan: Plan) -> tuple[Reconcile, LostCall]:
    """The reconciler of a lost call, and what it is asked."""
    assert plan.tool is not None, "only a call with a tool is asked for"
    assert plan.tool.reconcile is not None, "only a tool with a reconciler is asked"
    asked = LostCall(
        call_id=plan.call,
        run_id=plan.run,
        tool=plan.tool_name,
        effect_key=plan.effect_key,
        arguments=copy.deepcopy(plan.kwargs),
    )
    return plan.tool.reconcile, asked


def answer_of(plan: Plan, answer: object) -> i.Reconciled:
    """What a reconciler's answer means."""
    if not isinstance(answer, Reconciled) or not (
        answer.done is None or isinstance(answer.done, bool)
    ):
        words = f"its reconciler answered {answer!r:.80}, not Reconciled(done=True, False or None)"
        return no_answer(plan, words)
    if not answer.done:
        return i.Reconciled(call=plan.call, done=answer.done)
    try:
        value = to_data(answer.value, where="result")
    except Unserialisable as problem:
        # It is done all the same: only what came of it cannot be passed on.
        return i.Reconciled(call=plan.call, done=True, error=str(problem))
    return i.Reconciled(call=plan.call, done=True, value=value)


def no_answer(plan: Plan, words: str) -> i.Reconciled:
    """A reconciler that failed: it cannot be told."""
    return i.Reconciled(call=plan.call, done=None, error=words)
