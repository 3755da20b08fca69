"""The command line's way to questions that running bodies ask: listing and answering them.

The answer to a secret one is typed without being shown and goes to the driver without being in any
file.
"""

from __future__ import annotations

import getpass
import sys
from dataclasses import dataclass
from typing import Any

from endstop.cli import look
from endstop.cli.journal import Story, iso
from endstop.cli.where import who
from endstop.core import events as e
from endstop.errors import CallerError
from endstop.run.errands import TELL
from endstop.store.sqlite import SqliteJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that a running body waits for."""

    event: e.QuestionAsked
    at_s: float
    tool: str


def asked_in(story: Story) -> list[Asked]:
    """The open questions of a run. Without a driver there are none: no body waits any more."""
    found: dict[str, Asked] = {}
    if not story.alive:
        return []
    for one in story.events:
        match one.event:
            case e.QuestionAsked() as event:
                tool = story.calls[event.call].accepted.tool
                found[event.question] = Asked(event=event, at_s=one.at_s, tool=tool)
            case e.QuestionAnswered() | e.QuestionWithdrawn() as event:
                found.pop(event.question, None)
            case e.StopRequested() | e.CallSettled() as event:
                found = {name: old for name, old in found.items() if old.event.call != event.call}
            case _:
                pass
    return list(found.values())


def print_asked(out: Any, one: Asked, now: float) -> None:
    """One question, ready to be answered."""
    event = one.event
    out.print(f"{event.question}  {look.words(one.tool, 64)} asks", style="bold")
    out.print(f"  {look.words(event.text, 2_000)}", soft_wrap=True)
    if event.choices:
        out.print(f"  one of: {look.words(', '.join(event.choices), 2_000)}", soft_wrap=True)
    secret = ", the answer is a secret" if event.secret else ""
    out.print(f"  waits for {look.seconds(max(0.0, now - one.at_s))}{secret}")


def asked_data(one: Asked) -> dict[str, Any]:
    """One question as JSON."""
    event = one.event
    return {
        "question_id": event.question,
        "call_id": event.call,
        "run": event.run,
        "tool": one.tool,
        "text": event.text,
        "choices": list(event.choices),
        "secret": event.secret,
        "asked_at": iso(one.at_s),
    }


def post_told(journal: SqliteJournal, one: Asked, text: str | None) -> int | None:
    """Post the answer to a question; the request's id, or None where the run is over."""
    event, secret = one.event, None
    if event.secret:
        if text is not None:
            raise CallerError(f"{event.question} asks for a secret: leave TEXT out, and type it")
        secret = _typed(event.text)
    elif text is None:
        raise CallerError("give the answer as TEXT")
    body = {} if event.secret else {"text": text}
    return journal.inbox().post(event.run, event.question, TELL, body, who(), secret=secret)


def _typed(prompt: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{look.words(prompt, 200)} ")
    return sys.stdin.readline().rstrip("\n")
