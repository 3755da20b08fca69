"""What must be true of the questions in a story, and of what answers them for humans.

Public test tools; only reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from endstop.core import events as e
from endstop.core.remembered import fits


def check_questions(events: Iterable[e.Event]) -> list[str]:
    """Every law that a story breaks in what its bodies asked humans."""
    wrong: list[str] = []
    asked: dict[tuple[str, str], e.QuestionAsked] = {}
    stopping: set[str] = set()
    rules = _Rules()
    for event in events:
        wrong += rules.read(event)
        match event:
            case e.StopRequested():
                stopping.add(event.call)
            case e.CallSettled() | e.CallRetried():
                asked = {key: one for key, one in asked.items() if key[0] != event.call}
            case e.QuestionAsked():
                if (event.call, event.question) in asked:
                    wrong.append(f"law 13 one-approval: {event.question} was asked twice")
                asked[event.call, event.question] = event
            case e.QuestionAnswered() | e.QuestionWithdrawn():
                question = asked.pop((event.call, event.question), None)
                if question is None:
                    wrong.append(f"law 13 one-approval: {event.question} got a stray answer")
                elif isinstance(event, e.QuestionAnswered):
                    wrong += _answered(event, question, event.call in stopping)
            case _:
                pass
    return wrong


def _answered(event: e.QuestionAnswered, asked: e.QuestionAsked, stopping: bool) -> list[str]:
    wrong = []
    if stopping:
        wrong.append(f"law 7 every-wait-listens: {event.question} was answered after the stop")
    if asked.secret and event.text is not None:
        wrong.append(f"law 13 one-approval: the secret answer to {event.question} was recorded")
    return wrong


class _Rules:
    """The rules of a story, and whether they answered only what they may."""

    def __init__(self) -> None:
        self.rules: dict[str, e.RuleMade] = {}
        self.asked: dict[str, e.ApprovalAsked] = {}
        self.tools: dict[str, str] = {}
        self.parents: dict[str, str | None] = {}

    def read(self, event: e.Event) -> list[str]:
        match event:
            case e.RunOpened():
                parent = None if event.detached or not event.parent_call else event.parent_call
                self.parents[event.run] = parent and parent.partition("/")[0]
            case e.CallAccepted():
                self.tools[event.call] = event.tool
            case e.RuleMade():
                self.rules[event.rule] = event
            case e.RuleRevoked():
                self.rules.pop(event.rule, None)
            case e.RunEnded():
                self.rules = {k: one for k, one in self.rules.items() if one.run != event.run}
            case e.ApprovalAsked():
                self.asked[event.call] = event
            case e.ApprovalAnswered() if event.rule:
                return self._used(event)
            case _:
                pass
        return []

    def _used(self, event: e.ApprovalAnswered) -> list[str]:
        rule, asked = self.rules.get(event.rule), self.asked.get(event.call)
        if rule is None or asked is None:
            return [f"law 13 one-approval: no rule {event.rule!r} holds for {event.call}"]
        wrong = []
        if rule.tool != self.tools.get(event.call) or not fits(rule, asked.arguments):
            wrong.append(f"law 13 one-approval: {rule.rule} was made for something else")
        run: str | None = event.run
        while run is not None and run != rule.run:
            run = self.parents.get(run)
        if run is None:
            wrong.append(f"law 13 one-approval: {rule.rule} does not hold in {event.run}")
        return wrong
