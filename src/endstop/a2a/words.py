"""The words of a task: what its status says where the agent itself said nothing, and its table.

Every word that a client reads about a stop, a loss or a failure is made here, from what is recorded
and from nothing else: a call that began is never said to have done nothing unless its ending says
so, and what is unknown is called unknown (law 5 honest-effect). No path of ours and no arguments of
a call are in them, except what a human must see to approve it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from endstop.a2a.states import CANCELED, COMPLETED, FAILED, REJECTED
from endstop.core import events as e
from endstop.core.payload import dumps
from endstop.core.terms import Effect, Outcome, Reason, StoppedBy
from endstop.core.text import safe_text

ROWS_MAX = 200
"""Calls in the table of a task, the newest; a longer one would be read by nobody."""
NAMED_MAX = 10
"""Calls that a sentence names."""
ERROR_CHARS = 2_000
ARGUMENTS_CHARS = 4_000

OWN_ERROR = "NoEnding: "
"""What our own complaint about an executor begins with; a client knows no such name."""

AGENT = "the agent"
"""What the executor's own call is named: the client knows no such tool."""


class Line:
    """One call of a task: what it is and what became of it."""

    __slots__ = ("call", "settled", "started", "tool")

    def __init__(self, call: str, tool: str) -> None:
        self.call = call
        self.tool = tool
        self.started = False
        self.settled: e.CallSettled | None = None

    @property
    def failed(self) -> bool:
        """Whether it is over and did not succeed."""
        return self.settled is not None and self.settled.outcome is not Outcome.SUCCEEDED


def final_state(ended: e.RunEnded) -> int:
    """The protocol's terminal state for the end of a run.

    `canceled` says that somebody asked for it; a server that is shut down was not asked by anybody
    who uses the task.
    """
    match ended.outcome:
        case Outcome.SUCCEEDED:
            return COMPLETED
        case Outcome.REJECTED:
            return REJECTED
        case Outcome.CANCELLED if ended.reason is not Reason.SHUTDOWN:
            return CANCELED
        case _:
            return FAILED


def ending(ended: e.RunEnded, lines: Collection[Line], execute: str, why: str = "") -> str | None:
    """What is to be said of the end of a run; None where it needs no words.

    `why` is what a conversation said of its own end, where it failed.
    """
    match ended.outcome:
        case Outcome.SUCCEEDED:
            return None
        case Outcome.CANCELLED if ended.reason is Reason.SHUTDOWN:
            return _sentences("Failed: the server was shut down before the end.", lines, execute)
        case Outcome.CANCELLED:
            return _sentences("Canceled.", lines, execute)
        case Outcome.LOST:
            lost = "Failed: the server that ran it was lost."
            return _sentences(lost, lines, execute)
        case Outcome.REJECTED:
            return "Rejected."
        case _:
            if why:
                return f"Failed: {safe_text(why, ERROR_CHARS)}"
            return _failure(lines, execute)


def _failure(lines: Collection[Line], execute: str) -> str:
    last = next((one for one in reversed(list(lines)) if one.tool == execute and one.failed), None)
    if last is None or last.settled is None:
        return "Failed."
    settled = last.settled
    error = (settled.error or "").removeprefix(OWN_ERROR)
    said = f": {safe_text(error, ERROR_CHARS)}" if error else ""
    match settled.outcome:
        case Outcome.LOST:
            return (
                "Failed: the server that ran it was lost. What the agent had begun may have "
                "happened; it was not run again."
            )
        case Outcome.TIMED_OUT:
            first = f"Failed: {AGENT} ran out of time after {settled.ran_s:.1f} s."
            return _sentences(first, lines, execute)
        case Outcome.CANCELLED:
            return _sentences(f"Failed: {AGENT} was stopped.", lines, execute)
        case Outcome.REJECTED:
            return f"Failed: {AGENT} could not be started{said}"
        case _:
            return f"Failed{said}" if said else "Failed: the agent raised an error."


def _sentences(first: str, lines: Collection[Line], execute: str) -> str:
    """What was stopped, what had already happened, and what is unknown."""
    done, stopped, alive, unknown, unbegun = [], [], [], [], []
    for line in lines:
        name = AGENT if line.tool == execute else f"{line.tool} ({line.call})"
        settled = line.settled
        if settled is None:
            continue
        if not line.started:
            unbegun.append(name)
            continue
        if settled.outcome is Outcome.SUCCEEDED:
            done.append(name)
        elif settled.stopped_by is StoppedBy.ABANDONED:
            alive.append(name)
        elif settled.stopped_by is not None:
            stopped.append(f"{name} ({_rung(settled.stopped_by)})")
        if settled.effect is Effect.UNKNOWN:
            unknown.append(name)
    said = [first]
    if not (done or stopped or alive or unknown):
        return f"{first} Nothing of it had begun."
    if stopped:
        said.append(f"Stopped while running: {_names(stopped)}.")
    if alive:
        said.append(f"Did not stop and may still be running: {_names(alive)}.")
    if done:
        said.append(f"Had already happened: {_names(done)}.")
    if unknown:
        said.append(f"What it did is unknown: {_names(unknown)}.")
    if unbegun:
        said.append(f"Never began: {_names(unbegun)}.")
    return " ".join(said)


def _rung(rung: StoppedBy) -> str:
    return "when it was asked to" if rung is StoppedBy.ASKED else "killed"


def _names(names: list[str]) -> str:
    if len(names) <= NAMED_MAX:
        return ", ".join(names)
    return ", ".join(names[:NAMED_MAX]) + f" and {len(names) - NAMED_MAX} more"


def table(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """What became of each call that is over, newest last and bounded: for programs."""
    rows = [_row(line, line.settled) for line in lines if line.settled is not None]
    return rows[-ROWS_MAX:]


def _row(line: Line, settled: e.CallSettled) -> dict[str, Any]:
    row: dict[str, Any] = {
        "call": line.call,
        "tool": line.tool,
        "outcome": str(settled.outcome),
        "reason": str(settled.reason),
        "effect": str(settled.effect),
        "ran_s": round(settled.ran_s, 3),
    }
    if settled.stopped_by is not None:
        row["stopped"] = str(settled.stopped_by)
    if settled.alive:
        row["alive"] = True
    return row


Approvals = Iterable[tuple[str, e.ApprovalAsked]]
"""What waits for a yes, each with the tool that is to run."""


def asking(approvals: Approvals, questions: Iterable[e.QuestionAsked]) -> str:
    """What is asked of a human, and how to answer it."""
    said = []
    for question in questions:
        choices = f" One of: {', '.join(question.choices)}." if question.choices else ""
        said.append(f"{safe_text(question.text, ARGUMENTS_CHARS)}{choices}")
    for tool, approval in approvals:
        shown = safe_text(dumps(approval.arguments), ARGUMENTS_CHARS)
        prompt = f" {safe_text(approval.prompt, ARGUMENTS_CHARS)}" if approval.prompt else ""
        said.append(
            f"May {tool} run with {shown}?{prompt}\n"
            "Answer yes, no, 'no: why', or 'edit {…}' with other arguments."
        )
    return "\n\n".join(said)


def asking_data(approvals: Approvals, questions: Iterable[e.QuestionAsked]) -> dict[str, Any]:
    """The same for programs: `approvals` and `questions`, each with the id to answer by."""
    asked: dict[str, Any] = {}
    for tool, approval in approvals:
        cost = approval.cost
        asked.setdefault("approvals", []).append(
            {
                "call": approval.call,
                "tool": tool,
                "digest": approval.digest,
                "prompt": approval.prompt,
                "arguments": approval.arguments,
                **({"cost": f"{cost.amount} {cost.currency}"} if cost is not None else {}),
            }
        )
    for question in questions:
        asked.setdefault("questions", []).append(
            {
                "question": question.question,
                "text": question.text,
                "choices": list(question.choices),
                "secret": question.secret,
            }
        )
    return asked
