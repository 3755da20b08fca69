"""The command line's `approvals`, `approve`, `reject` and `respond`: answers from another terminal.

An answer goes to one call and to what was shown of it: it carries the digest of the question that
the journal holds (law 13 one-approval). Where nobody drives the run, it waits in the journal for
whoever resumes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.journal import Story, iso, opened, read_story
from endstop.cli.questions import asked_data, asked_in, post_told, print_asked
from endstop.cli.where import driver_words, find_target, opened_to_ask, row_of, story_of, who
from endstop.core import events as e
from endstop.core.payload import dumps, read_arguments
from endstop.core.terms import Verdict
from endstop.errors import CallerError, NotFound
from endstop.run.errands import ANSWER
from endstop.run.remembering import Remember
from endstop.store.inbox import Request
from endstop.store.owner import is_alive
from endstop.store.sqlite import SqliteJournal

ANSWER_S = 2.0
LOOK_S = 0.1
SHOWN_CHARS = 2_000
"""Most of one argument that is printed; `--json` prints all of it."""
SAID = {
    Verdict.APPROVE: "approved",
    Verdict.EDIT: "approved with other arguments",
    Verdict.REJECT: "rejected",
    Verdict.RESPOND: "answered",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An approval that was asked for. `answer` is what was said, `over` whether its call ended."""

    asked: e.ApprovalAsked
    at_s: float
    tool: str
    answer: e.ApprovalAnswered | None = None
    over: e.CallSettled | None = None

    @property
    def open(self) -> bool:
        """Whether it still waits."""
        return self.answer is None and self.over is None

    def expires_in_s(self, now: float) -> float | None:
        """What is left of its time; 0 or less where that is over."""
        limit = self.asked.expires_s
        return None if limit is None else self.at_s + limit - now


def questions(story: Story) -> dict[str, Question]:
    """The last question about each call of a run."""
    found: dict[str, Question] = {}
    for one in story.events:
        match one.event:
            case e.ApprovalAsked() as asked:
                tool = story.calls[asked.call].accepted.tool
                found[asked.call] = Question(asked=asked, at_s=one.at_s, tool=tool)
            case e.ApprovalAnswered() as said if said.call in found:
                old = found[said.call]
                found[said.call] = Question(
                    asked=old.asked, at_s=old.at_s, tool=old.tool, answer=said
                )
            case e.CallSettled() as ending if ending.call in found:
                old = found[ending.call]
                found[ending.call] = Question(
                    asked=old.asked, at_s=old.at_s, tool=old.tool, answer=old.answer, over=ending
                )
            case _:
                pass
    return found


# --- listing -------------------------------------------------------------------------------------


def _waiting(journal: SqliteJournal) -> Iterator[tuple[Story, Question, Request | None]]:
    for row in journal.describe():
        if row.ended_at is not None:
            continue
        story = read_story(journal, row)
        said = {
            one.target: one for one in reversed(journal.requests(row.run)) if one.kind == ANSWER
        }
        for call, question in questions(story).items():
            if question.open:
                yield story, question, said.get(call)


def show_approvals(file: Path, *, as_json: bool) -> None:
    """List the calls that wait for a human, before they start or while they run."""
    with opened(file) as journal:
        found = list(_waiting(journal))
        rows = [row for row in journal.describe() if row.ended_at is None]
        asked = [one for row in rows for one in asked_in(read_story(journal, row))]
    now = time.time()
    if as_json:
        data = {
            "journal": str(file),
            "approvals": [_question_data(story, one, said, now) for story, one, said in found],
            "questions": [asked_data(one) for one in asked],
        }
        print(look.document(data))
        return
    if not found and not asked:
        print("no call waits for a human")
        return
    out = look.console(stderr=False)
    for story, one, said in found:
        _print_question(out, story, one, said, now)
    for question in asked:
        print_asked(out, question, now)


def _print_question(
    out: Any, story: Story, one: Question, said: Request | None, now: float
) -> None:
    asked = one.asked
    head = f"{asked.call}  {look.words(one.tool, 64)}"
    if asked.cost is not None:
        head += f", costs {look.amount(asked.cost)}"
    out.print(head, style="bold")
    if asked.prompt:
        out.print(f"  {look.words(asked.prompt, 400)}")
    for name, value in asked.arguments.items():
        shown = value if isinstance(value, str) else dumps(value)
        out.print(f"  {look.words(name, 40)}: {look.words(shown, SHOWN_CHARS)}", soft_wrap=True)
    parts = [f"waits for {look.seconds(max(0.0, now - one.at_s))}"]
    left = one.expires_in_s(now)
    if left is not None:
        parts.append(f"expires in {look.seconds(left)}" if left > 0 else "its time is over")
    if not story.alive:
        parts.append("nobody drives its run now")
    if said is not None:
        parts.append(f"answered by {look.words(said.by)}, which counts once the run is resumed")
    out.print(f"  {', '.join(parts)}", soft_wrap=True)


def _question_data(story: Story, one: Question, said: Request | None, now: float) -> dict[str, Any]:
    asked, left = one.asked, one.expires_in_s(now)
    return {
        "call_id": asked.call,
        "run": asked.run,
        "tool": one.tool,
        "arguments": asked.arguments,
        "cost": None if asked.cost is None else look.money_data([asked.cost])[0],
        "prompt": asked.prompt,
        "digest": asked.digest,
        "asked_at": iso(one.at_s),
        "expires_in_s": None if left is None else round(left, 3),
        "driver": story.driver,
        "waiting_answer": None if said is None else str(said.body.get("verdict")),
    }


# --- answering -----------------------------------------------------------------------------------


def answer(
    file: Path,
    wanted: str,
    verdict: Verdict,
    *,
    text: str = "",
    arguments: str | None = None,
    remember: Remember | None = None,
) -> int:
    """Answer the question about one call; returns the exit code.

    Raises CallerError where the call does not ask anything, or the driver refuses the answer.
    """
    body: dict[str, Any] = {"verdict": str(verdict), "text": text}
    said = SAID[verdict]
    if remember is not None:
        same = None if remember.same is None else list(remember.same)
        body["remember"] = {"same": same, "for_s": remember.for_s}
        said += ", and remembered"
    if arguments is not None:
        edited, problem = read_arguments(arguments)
        if problem is not None or edited is None:
            raise CallerError(f"--edit: {problem or 'give the arguments as a JSON object'}")
        body["arguments"] = edited
    with opened_to_ask(file) as journal:
        row, call = find_target(journal, wanted, file)
        return _answer(journal, row.run, call, said, body)


def respond(file: Path, wanted: str, text: str | None) -> int:
    """Answer a call in its tool's place, or a question that its running body asks.

    `wanted` is a call, or a question by its own id. Returns the exit code; see `answer`.
    """
    with opened_to_ask(file) as journal:
        row, target = find_target(journal, wanted, file)
        story = story_of(journal, row.run)
        asked = [one for one in asked_in(story) if target in (one.event.question, one.event.call)]
        if len(asked) > 1:
            names = ", ".join(one.event.question for one in asked)
            raise CallerError(f"{target} asks several things; answer one of: {names}")
        if asked:
            request = post_told(journal, asked[0], text)
            if request is None:
                return _say(f"{target}: its run is over; nothing was changed", 1)
            return wait_said(journal, row.run, target, SAID[Verdict.RESPOND], request)
        if "?" in target:
            return _say(f"{target} is over, or was never asked; nothing was changed", 1)
        if text is None:
            raise CallerError("give the result as TEXT")
        body = {"verdict": str(Verdict.RESPOND), "text": text}
        return _answer(journal, row.run, target, SAID[Verdict.RESPOND], body)


def _answer(
    journal: SqliteJournal, run: str, call: str, answered: str, body: dict[str, Any]
) -> int:
    question = _question(story_of(journal, run), call)
    if not question.open:
        return _say(f"{call} {_what_won(question)}; nothing was changed", 1)
    waiting = [one for one in journal.requests(run) if one.target == call and one.kind == ANSWER]
    if waiting:
        by = look.words(waiting[0].by)
        return _say(f"{call} was answered by {by} already; that counts once it is taken up", 1)
    body["digest"] = question.asked.digest
    request = journal.inbox().post(run, call, ANSWER, body, who())
    if request is None:
        return _say(f"{call}: its run is over; nothing was changed", 1)
    return wait_said(journal, run, call, answered, request)


def wait_said(
    journal: SqliteJournal,
    run: str,
    call: str,
    answered: str,
    request: int,
    won: Callable[[], str] | None = None,
) -> int:
    """Wait for what the driver says, if there is one, and print it; returns the exit code.

    `answered` are the words for a success, `won` those for what was faster.
    """
    inbox = journal.inbox()
    until = time.monotonic() + ANSWER_S
    while (said := inbox.wait(request, LOOK_S)) is None:
        row = row_of(journal, run)
        if row.ended_at is not None:
            break
        if row.owner is None or not is_alive(row.owner):
            return _say(
                f"{call} is {answered} once its run is resumed: nobody drives {run} now; "
                f"see endstop resume {run}",
                0,
            )
        if time.monotonic() > until:
            driver = driver_words(row.owner)
            if inbox.withdraw(request):
                raise CallerError(
                    f"{driver} did not answer within {ANSWER_S:.0f} s; the answer is withdrawn"
                )
            if (said := inbox.answered(request)) is None:
                raise CallerError(
                    f"{driver} has taken the answer and does not say what came of it; "
                    f"see endstop journal FILE.db {run}"
                )
            break
    what = "too_late" if said is None else said["what"]
    if what == "answered":
        return _say(f"{call} is {answered}", 0)
    if said is not None and what in ("refused", "failed", "not_found"):
        raise CallerError(f"{call}: {said['why']}")
    faster = won() if won is not None else _faster(journal, run, call)
    return _say(f"{call} {faster}; nothing was changed", 1)


def _faster(journal: SqliteJournal, run: str, call: str) -> str:
    question = questions(story_of(journal, run)).get(call)
    return "does not wait any more" if question is None else _what_won(question)


def _question(story: Story, call: str) -> Question:
    if call not in story.calls:
        raise NotFound(f"{call!r} is no call of run {story.row.run}; see endstop approvals")
    question = questions(story).get(call)
    if question is None:
        raise CallerError(f"{call} does not wait for approval; see endstop approvals")
    return question


def _what_won(question: Question) -> str:
    said, ending = question.answer, question.over
    if said is not None:
        by = f" by {look.words(said.by)}" if said.by else ""
        return f"was {SAID[said.verdict]}{by} before"
    if ending is not None:
        reason = ending.reason.replace("_", " ")
        return f"is over: {ending.outcome.replace('_', ' ')} ({reason})"
    return "does not wait any more"


def _say(words: str, code: int) -> int:
    look.console(stderr=False).print(words, soft_wrap=True)
    return code
