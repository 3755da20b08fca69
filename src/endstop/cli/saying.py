"""The command line's `say`: words for an agent that another program drives.

Whoever drives the run writes them into it, in order with all that happens there; where nobody does,
they wait in the journal for whoever goes on with it.
"""

from __future__ import annotations

import time
from pathlib import Path

from endstop.agents import notes
from endstop.cli import look
from endstop.cli.journal import Story
from endstop.cli.where import driver_words, find_target, opened_to_ask, row_of, story_of, who
from endstop.core import events as e
from endstop.errors import CallerError
from endstop.run.errands import NOTE
from endstop.store.owner import is_alive
from endstop.store.sqlite import SqliteJournal

ANSWER_S = 2.0
"""How long a driver may take to answer; one that lives takes milliseconds."""
LOOK_S = 0.1


def say(file: Path, wanted: str, text: str, *, later: bool) -> int:
    """Say something to the agent of a run; returns the exit code: 1 where it is over.

    Raises CallerError for a run that is no conversation, and where its driver does not answer.
    """
    when = notes.When.AFTER if later else notes.When.NOW
    with opened_to_ask(file) as journal:
        row, _ = find_target(journal, wanted, file)
        if not _is_conversation(story_of(journal, row.run)):
            raise CallerError(f"run {row.run} is no conversation of an agent; nobody would hear it")
        body = {"kind": notes.USER, "body": notes.user_note(text, when, {"by": who()})}
        request = journal.inbox().post(row.run, row.run, NOTE, body, who())
        if request is None:
            return _tell(f"run {row.run} is over; nothing was said", 1)
        return _wait(journal, row.run, request)


def _is_conversation(story: Story) -> bool:
    kinds = {one.event.kind for one in story.events if isinstance(one.event, e.Noted)}
    return not kinds.isdisjoint({notes.USER, notes.REPLY})


def _wait(journal: SqliteJournal, run: str, request: int) -> int:
    """Wait for what the driver says, if there is one."""
    inbox = journal.inbox()
    until = time.monotonic() + ANSWER_S
    while (said := inbox.wait(request, LOOK_S)) is None:
        row = row_of(journal, run)
        if row.ended_at is not None:
            return _tell(f"run {run} is over; nothing was said", 1)
        if row.owner is None or not is_alive(row.owner):
            return _tell(f"run {run} hears it once somebody goes on with it", 0)
        if time.monotonic() > until:
            driver = driver_words(row.owner)
            if inbox.withdraw(request):
                raise CallerError(f"{driver} did not answer within {ANSWER_S:.0f} s; it is unsaid")
            raise CallerError(f"{driver} has taken it and does not say what came of it")
    match said["what"]:
        case "noted":
            return _tell(f"run {run} hears it", 0)
        case "too_late":
            return _tell(f"run {run} is over; nothing was said", 1)
        case _:
            raise CallerError(f"run {run}: {said['why']}")


def _tell(words: str, code: int) -> int:
    look.console(stderr=False).print(words, soft_wrap=True)
    return code
