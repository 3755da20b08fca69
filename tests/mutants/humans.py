"""Planted bugs where humans are asked: approvals by policy, and questions from inside a body."""

from __future__ import annotations

from tests.mutants.runner import Mutant

HANDLER = ("tests/approvals/test_handler.py",)
REMEMBER = ("tests/approvals/test_remember.py",)
QUESTIONS = ("tests/approvals/test_questions.py",)
ASKED = ("tests/exhaustive/test_two_calls.py::test_every_order_keeps_every_law[questions]",)


def planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


HUMANS: tuple[Mutant, ...] = (
    planted(
        "the policy's question is not asked",
        "13 one-approval",
        "run/plans.py",
        "tool.needs_approval(plan.kwargs, plan.cost) or asks:",
        "tool.needs_approval(plan.kwargs, plan.cost):",
        HANDLER,
    ),
    planted(
        "whatever a handler says is a yes",
        "13 one-approval",
        "run/approvals.py",
        "        call = self._runtime.engine.state.calls.get(pending.call_id)\n"
        "        waits = call is not None and call.approval == pending.digest\n",
        "        self._runtime.approve(pending.call_id)\n        waits = False\n",
        HANDLER,
    ),
    planted(
        "a question outlives the stop of its call",
        "7 every-wait-listens",
        "core/questions.py",
        "    if call is None or call.phase is not Phase.RUNNING or asked is None:\n",
        "    if call is None or asked is None:\n",
        ASKED,
    ),
    planted(
        "a stop wakes nobody who asks",
        "7 every-wait-listens",
        "tools/context.py",
        "            asking.wake_all(self)\n",
        "            pass\n",
        QUESTIONS,
    ),
    planted(
        "a question stays when its body is over",
        "7 every-wait-listens",
        "core/pauses.py",
        "    state.questions.pop(call.id, None)\n",
        "",
        ASKED,
    ),
    planted(
        "a secret answer is recorded",
        "13 one-approval",
        "core/questions.py",
        "    text = None if asked.secret else said.text\n",
        "    text = said.text\n",
        ASKED,
    ),
    planted(
        "an answer is taken twice",
        "13 one-approval",
        "core/pauses.py",
        "    del mine[event.question]\n",
        "",
        ASKED,
    ),
    planted(
        "the end of another wait ends a question",
        "8 machine-time",
        "core/calls.py",
        "    if call.humans <= len(state.questions.get(call.id, ())):\n",
        "    if not call.humans:\n",
        ASKED,
    ),
    planted(
        "a rule never expires",
        "13 one-approval",
        "core/remembered.py",
        "(until is None or now < until) and ",
        "",
        REMEMBER,
    ),
    planted(
        "what looks alike is the same to a rule",
        "13 one-approval",
        "core/remembered.py",
        "    return one is not MISSING and canonical(one) == canonical(other)\n",
        "    return one == other\n",
        REMEMBER,
    ),
    planted(
        "a rule holds in detached runs",
        "13 one-approval",
        "core/remembered.py",
        "        if not run.attached or run.parent is None:\n",
        "        if run.parent is None:\n",
        REMEMBER,
    ),
    planted(
        "a rule is lost in a restart",
        "13 one-approval",
        "core/restore.py",
        "    for at, rule in replay.rules.values():\n",
        "    for at, rule in ():\n",
        REMEMBER,
    ),
)
