"""The command line's `runs`: which runs a journal holds, who drives them, what they wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.approvals import questions
from endstop.cli.journal import Story, calls_words, iso, opened, read_story, state_words, when
from endstop.core.terms import Outcome


def list_runs(file: Path, *, last: int, unfinished: bool, as_json: bool) -> None:
    """List the newest runs, oldest first; with `unfinished` only those that are not over."""
    with opened(file) as journal:
        rows = journal.describe()
        if unfinished:
            rows = [row for row in rows if row.ended_at is None]
        shown = rows[-last:] if last else rows
        stories = [read_story(journal, row) for row in shown]
    if as_json:
        print(look.document({"journal": str(file), "runs": [_data(story) for story in stories]}))
        return
    if not rows:
        print("no run is unfinished" if unfinished else f"{file} holds no run yet")
        return
    out = look.console(stderr=False)
    if len(shown) < len(rows):
        out.print(f"the newest {len(shown)} of {len(rows)} runs; --last 0 lists all")
    for story in stories:
        _print(out, story)


def _waiting(story: Story) -> int:
    return sum(question.open for question in questions(story).values())


def _print(out: Any, story: Story) -> None:
    from rich.text import Text

    row = story.row
    parts = [state_words(story), calls_words(story)]
    if waiting := 0 if row.ended_at is not None else _waiting(story):
        parts.append(f"{waiting} waiting for approval")
    if story.spent:
        parts.append(f"spent {look.amounts(story.spent)}")
    style = "bold" if row.ended_at is None else ""
    if row.ended_at is not None and row.outcome is not None:
        style = "" if row.outcome == Outcome.SUCCEEDED else "magenta"
    line = Text.assemble((row.run, style), f"  {when(row.opened_at)}  ", "; ".join(parts))
    out.print(line, soft_wrap=True)


def _data(story: Story) -> dict[str, Any]:
    row = story.row
    return {
        "run": row.run,
        "state": story.state,
        "outcome": row.outcome,
        "driver": story.driver,
        "opened_at": iso(row.opened_at),
        "ended_at": None if row.ended_at is None else iso(row.ended_at),
        "calls": len(story.calls),
        "open_calls": [name for name, call in story.calls.items() if call.settled is None],
        "waiting_for_approval": [
            name for name, one in questions(story).items() if one.open and row.ended_at is None
        ],
        "spent": look.money_data(story.spent),
    }
