"""Remembered approvals: what a human may say of later calls while answering for one.

The core applies the rules and records every answer that one gives. Here they are made, listed and
revoked.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from endstop.config import SECONDS_MAX
from endstop.core import inputs as i
from endstop.core.terms import RuleTerms
from endstop.errors import CallerError

if TYPE_CHECKING:
    from endstop.run.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Let later calls of the same tool pass without a question, in this run and the runs below it.

    `same` names the arguments that must have the value that they have now; None means all of them.
    With `[]` every call of the tool passes. The rule holds for `for_s` seconds, None for as long as
    the run, and until `Runtime.revoke`. It is recorded, and holds again after `Runtime.resume`.
    """

    same: Sequence[str] | None = None
    for_s: float | None = None

    def terms(self, arguments: dict[str, Any]) -> RuleTerms:
        """The rule that this makes of a call. Raises CallerError for what does not fit it."""
        if isinstance(self.same, str):
            raise CallerError("remember: same is a list of names of arguments")
        names = list(arguments) if self.same is None else list(self.same)
        unknown = [name for name in names if name not in arguments]
        if unknown:
            known = ", ".join(arguments) or "none"
            raise CallerError(f"remember: there is no argument {unknown[0]!r}; there are: {known}")
        for_s = self.for_s
        if for_s is not None and not 0 < for_s <= SECONDS_MAX:
            raise CallerError(f"remember: for_s is a number of seconds above 0, not {for_s!r:.40}")
        same = {name: copy.deepcopy(arguments[name]) for name in names}
        return RuleTerms(same=same, for_s=for_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A remembered approval; `rule_id` is the call that was approved."""

    rule_id: str
    run_id: str
    tool: str
    same: dict[str, Any]
    expires_in_s: float | None
    by: str


class Rules:
    """The part of a runtime that lists and revokes what was remembered."""

    engine: Engine

    def rules(self) -> list[Rule]:
        """The remembered approvals that hold now, oldest first by run."""
        with self.engine.lock:
            now = self.engine.clock()
            return [
                Rule(
                    rule_id=made.rule,
                    run_id=made.run,
                    tool=made.tool,
                    same=copy.deepcopy(made.same),
                    expires_in_s=None if until is None else until - now,
                    by=made.by,
                )
                for mine in self.engine.state.rules.values()
                for made, until in mine.values()
                if until is None or now < until
            ]

    def revoke(self, rule_id: str, *, by: str = "") -> bool:
        """Forget a remembered approval; false if it does not hold any more.

        What it has let through is not called back: cancel that.
        """
        return self.engine.tell(i.RevokeRule(rule=rule_id, by=by))
