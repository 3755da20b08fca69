"""Rules that remember a human's yes. Part of `decide.py` and `evolve.py`, pure as they are.

A rule belongs to the run in which the answer was given. It holds for it and the runs below it until
it expires, is revoked, or its run is over. It answers questions that are asked while it holds, and
no others; every such answer is recorded as one, with the rule's name (law 13 one-approval).
"""

from __future__ import annotations

from typing import Any

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.payload import canonical
from endstop.core.state import CallState, State
from endstop.core.terms import Verdict

MISSING = object()


def fitting(
    state: State, call: CallState, arguments: dict[str, Any], now: float
) -> e.RuleMade | None:
    """The rule that answers for a call with these final arguments, nearest run first."""
    run = call.run
    while True:
        for rule, until in state.rules.get(run.id, {}).values():
            if rule.tool == call.tool and (until is None or now < until) and fits(rule, arguments):
                return rule
        if not run.attached or run.parent is None:
            return None
        run = run.parent.run


def fits(rule: e.RuleMade, arguments: dict[str, Any]) -> bool:
    """Whether every argument that the rule names has the value that it had then."""
    return all(_equal(arguments.get(name, MISSING), value) for name, value in rule.same.items())


def _equal(one: object, other: object) -> bool:
    # As data: 1, 1.0 and true are three different things to whoever approved one of them.
    return one is not MISSING and canonical(one) == canonical(other)


def by_rule(state: State, call: CallState, asked: e.ApprovalAsked, now: float) -> list[e.Event]:
    """What follows a question that a rule answers, in the same step; nothing where none does."""
    rule = fitting(state, call, asked.arguments, now)
    if rule is None:
        return []
    run = call.run.id
    answered = e.ApprovalAnswered(
        run=run,
        call=call.id,
        digest=asked.digest,
        verdict=Verdict.APPROVE,
        by=rule.by,
        rule=rule.rule,
    )
    return [answered, e.CallQueued(run=run, call=call.id)]


def made_by(call: CallState, said: i.Answered) -> list[e.Event]:
    """The rule that an answer leaves behind, if it is to be remembered."""
    terms = said.remember
    if terms is None:
        return []
    return [
        e.RuleMade(
            run=call.run.id,
            rule=call.id,
            tool=call.tool,
            same=terms.same,
            for_s=terms.for_s,
            by=said.by,
        )
    ]


def revoke(state: State, said: i.RevokeRule, now: float) -> list[e.Event]:
    run = said.rule.partition("/")[0]
    if said.rule not in state.rules.get(run, {}):
        return []
    return [e.RuleRevoked(run=run, rule=said.rule, by=said.by)]


def made(state: State, event: e.RuleMade, now: float) -> None:
    """A rule holds from now on."""
    mine = state.rules.setdefault(event.run, {})
    assert event.rule not in mine, "an answer is given once, and so is its rule"
    mine[event.rule] = (event, None if event.for_s is None else now + event.for_s)


def revoked(state: State, event: e.RuleRevoked, now: float) -> None:
    """A rule holds no more."""
    mine = state.rules[event.run]
    del mine[event.rule]
    if not mine:
        del state.rules[event.run]
