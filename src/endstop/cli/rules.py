"""The command line's `rules` and `revoke`: what a yes was remembered for, and taking it back.

The list is a reading of the journal. A rule is revoked by the driver of its run; where nobody
drives it, before anything of the run goes on (law 13 one-approval).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.approvals import wait_said
from endstop.cli.journal import Story, iso, opened, read_story
from endstop.cli.where import find_target, opened_to_ask, story_of, who
from endstop.core import events as e
from endstop.core.payload import dumps
from endstop.errors import NotFound
from endstop.run.errands import REVOKE
from endstop.store.inbox import Request
from endstop.store.sqlite import SqliteJournal

SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A rule as the journal has it. `revoked` says who took it back, if anybody did."""

    made: e.RuleMade
    at_s: float
    revoked: str | None = None

    def left_s(self, now: float) -> float | None:
        """What is left of its time; None where it has no end but that of its run."""
        return None if self.made.for_s is None else self.at_s + self.made.for_s - now

    def holds(self, now: float) -> bool:
        """Whether it still answers."""
        left = self.left_s(now)
        return self.revoked is None and (left is None or left > 0)


def rules_in(story: Story) -> dict[str, Remembered]:
    """Every rule that was made in a run, by its id."""
    found: dict[str, Remembered] = {}
    for one in story.events:
        match one.event:
            case e.RuleMade() as made:
                found[made.rule] = Remembered(made=made, at_s=one.at_s)
            case e.RuleRevoked() as gone if gone.rule in found:
                old = found[gone.rule]
                found[gone.rule] = Remembered(made=old.made, at_s=old.at_s, revoked=gone.by)
            case _:
                pass
    return found


def _holding(journal: SqliteJournal, now: float) -> Iterator[tuple[Story, Remembered, bool]]:
    """The rules that hold, and whether somebody wants them revoked when their run is resumed."""
    for row in journal.describe():
        if row.ended_at is not None:
            continue
        story = read_story(journal, row)
        wanted = _revoking(journal.requests(row.run))
        for name, rule in rules_in(story).items():
            if rule.holds(now):
                yield story, rule, name in wanted


def _revoking(requests: list[Request]) -> set[str]:
    return {one.target for one in requests if one.kind == REVOKE}


def show_rules(file: Path, *, as_json: bool) -> None:
    """List the remembered approvals that hold now."""
    now = time.time()
    with opened(file) as journal:
        found = list(_holding(journal, now))
    if as_json:
        data = [_data(story, rule, going, now) for story, rule, going in found]
        print(look.document({"journal": str(file), "rules": data}))
        return
    if not found:
        print("no approval is remembered")
        return
    out = look.console(stderr=False)
    for story, rule, going in found:
        _print_rule(out, story, rule, going, now)


def _print_rule(out: Any, story: Story, rule: Remembered, going: bool, now: float) -> None:
    made = rule.made
    out.print(f"{made.rule}  {look.words(made.tool, 64)} needs no approval", style="bold")
    for name, value in made.same.items():
        shown = value if isinstance(value, str) else dumps(value)
        words = f"{look.words(name, 40)}: {look.words(shown, SHOWN_CHARS)}"
        out.print(f"  where {words}", soft_wrap=True)
    if not made.same:
        out.print("  whatever its arguments are")
    left = rule.left_s(now)
    parts = [f"by {look.words(made.by)}"] if made.by else []
    parts.append(f"for {look.seconds(left)} more" if left is not None else "as long as its run")
    if not story.alive:
        parts.append("nobody drives its run now")
    if going:
        parts.append("revoked once the run is resumed")
    out.print(f"  {', '.join(parts)}", soft_wrap=True)


def _data(story: Story, rule: Remembered, going: bool, now: float) -> dict[str, Any]:
    made, left = rule.made, rule.left_s(now)
    return {
        "rule_id": made.rule,
        "run": made.run,
        "tool": made.tool,
        "same": made.same,
        "by": made.by,
        "made_at": iso(rule.at_s),
        "expires_in_s": None if left is None else round(left, 3),
        "driver": story.driver,
        "revoked_on_resume": going,
    }


def revoke(file: Path, wanted: str) -> int:
    """Take a remembered approval back; returns the exit code.

    Raises NotFound where no such rule was made, CallerError where the driver refuses.
    """
    with opened_to_ask(file) as journal:
        row, rule = find_target(journal, wanted, file)
        known = rules_in(story_of(journal, row.run)).get(rule)
        if known is None:
            raise NotFound(f"no approval is remembered as {rule!r}; see endstop rules")
        if not known.holds(time.time()):
            return _say(f"{rule} {_what_ended(known)}; nothing was changed", 1)
        if rule in _revoking(journal.requests(row.run)):
            return _say(f"{rule} is revoked once its run is resumed, as was asked before", 1)
        request = journal.inbox().post(row.run, rule, REVOKE, {}, who())
        if request is None:
            return _say(f"{rule}: its run is over; nothing was changed", 1)

        def won() -> str:
            return _what_ended(rules_in(story_of(journal, row.run))[rule])

        return wait_said(journal, row.run, rule, "revoked", request, won)


def _what_ended(rule: Remembered) -> str:
    if rule.revoked is None:
        return "does not hold any more"
    by = f" by {look.words(rule.revoked)}" if rule.revoked else ""
    return f"was revoked{by} before"


def _say(words: str, code: int) -> int:
    look.console(stderr=False).print(words, soft_wrap=True)
    return code
