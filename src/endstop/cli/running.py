"""The command line's `exec`, from options to exit code: read, load, run, print.

Nothing is run before everything that can be wrong with the input has been found. How the calls are
driven, watched and stopped is in `exec.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from endstop.adapters.reply import Reply, read_reply
from endstop.cli import look
from endstop.cli.ask import Desk
from endstop.cli.exec import (
    EXIT_CTRL_C,
    EXIT_JOURNAL,
    NAMES,
    Answering,
    Key,
    Outcome,
    Session,
    Terms,
    describe_failure,
)
from endstop.cli.keys import open_terminal
from endstop.cli.live import Lines, Silent, Table, View
from endstop.cli.loading import Offered, load_tools, unique
from endstop.cli.output import Answer, complain, hear_warnings
from endstop.cli.servers import Servers
from endstop.config import Config
from endstop.core import events as e
from endstop.core.terms import Effect, Money, Reason
from endstop.core.text import safe_text
from endstop.errors import CallerError
from endstop.run.blocking import BlockingRuntime
from endstop.run.results import BatchResult, CallResult
from endstop.store import open_journal
from endstop.store.protocol import Journal
from endstop.tools.tool import Tool

if TYPE_CHECKING:
    from rich.console import RenderableType


REPLY_BYTES = 64 * 1024 * 1024
"""The longest reply that is read: an endless standard input ends here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for on the command line."""

    reply: str
    tools: tuple[str, ...]
    shell: bool
    journal: str | None
    format: str | None
    parallel: int | None
    timeout_s: float | None
    deadline_s: float | None
    approve_all: bool
    approval_s: float | None
    as_json: bool
    servers: Servers


def run(wanted: Wanted) -> int:
    """Run it all; returns the exit code. Raises `EndstopError` before anything was started."""
    hear_warnings()
    with ExitStack() as stack:
        answer = stack.enter_context(Answer())
        try:
            reply = _read(wanted.reply, wanted.format)
            tools = load(wanted.tools, shell=wanted.shell, servers=wanted.servers, stack=stack)
        except KeyboardInterrupt:
            complain("stopped by Ctrl-C before any call was started")
            return EXIT_CTRL_C
        config = Config.load()
        terminal = None if wanted.as_json or not watched() else open_terminal()
        if terminal is not None:
            stack.callback(os.close, terminal)
        config = with_approvals(config, wanted.approval_s, wanted.approve_all, terminal)
        journal = open_journal(journal_name(wanted.journal) or config.journal)
        left = unfinished(journal)
        runtime = BlockingRuntime(tools, journal=journal, config=config)
        if not wanted.as_json:
            tell_recovered(journal, left)
        terms = Terms(
            parallel=wanted.parallel,
            timeout_s=wanted.timeout_s,
            deadline_s=wanted.deadline_s,
            approve_all=wanted.approve_all,
        )
        session = Answering(runtime, reply, terms)
        stack.callback(session.close)
        desk = None
        if terminal is not None:
            desk = Desk(runtime, terminal, lambda key: session.inbox.put(Key(key)))
        view = view_of(session, desk, silent=wanted.as_json)
        if not wanted.as_json:
            _introduce(reply, session)
        with session.signals() as signals:
            outcome = session.execute(signals, view, desk)
            _print(answer, wanted, session, outcome)
        return EXIT_JOURNAL if answer.failed else outcome.exit_code


def watched() -> bool:
    """Whether somebody sees standard error as a terminal shows it."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


# --- before --------------------------------------------------------------------------------------


def _read(name: str, format: str | None) -> Reply:
    """The reply, from a file or standard input."""
    try:
        if name == "-":
            if sys.stdin.isatty():
                complain("reading the reply from the terminal; end it with Ctrl-D")
            text = sys.stdin.buffer.read(REPLY_BYTES + 1)
        else:
            with open(name, "rb") as file:
                text = file.read(REPLY_BYTES + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise CallerError(
            f"{name} cannot be read: {why}; name the file of a model's reply, or - for standard "
            "input"
        ) from error
    where = "standard input" if name == "-" else name
    if len(text) > REPLY_BYTES:
        raise CallerError(
            f"{where}: it is longer than {REPLY_BYTES} bytes; give the reply of one request"
        )
    try:
        return read_reply(text, format)
    except CallerError as error:
        raise CallerError(f"{where}: {error}") from error


def load(sources: Sequence[str], *, shell: bool, servers: Servers, stack: ExitStack) -> list[Tool]:
    """The tools that the options name; servers live until the stack is closed."""
    offered = load_tools(sources)
    if shell:
        from endstop.work.shell import shell as built_in

        offered = unique([*offered, Offered(tool=built_in, source="--shell")])
    offered += servers.open(stack, offered)
    if not offered:
        raise CallerError(
            "there are no tools; name them with --tools FILE.py or --mcp COMMAND, or give --shell"
        )
    return [one.tool for one in offered]


def journal_name(name: str | None) -> str | None:
    """The journal that an option names."""
    if name is None or name == "memory" or name.startswith("sqlite:"):
        return name
    # Whatever it is called: on the command line a journal is a file.
    return f"sqlite:{name}"


def with_approvals(
    config: Config, approval_s: float | None, approve_all: bool, terminal: int | None
) -> Config:
    """Where nobody can be asked, a wait for approval has no end but expiry: it ends at once."""
    limit = approval_s if approval_s is not None else config.timeouts.approvals
    if limit is None and terminal is None and not approve_all:
        limit = 0.0
    return replace(config, timeouts=replace(config.timeouts, approvals=limit))


def unfinished(journal: Journal) -> dict[str, int]:
    """The runs that opening this journal will settle, and how far each is recorded."""
    return {
        run: max((one.seq for one in journal.read(run)), default=0) for run in journal.orphans()
    }


def tell_recovered(journal: Journal, left: dict[str, int]) -> None:
    """Say what was found of earlier runs, and what became of it (law 16 survives-restart)."""
    for run, seq in left.items():
        lost = [
            one.event
            for one in journal.read(run, seq)
            if isinstance(one.event, e.CallSettled) and one.event.reason is Reason.DRIVER_LOST
        ]
        if lost:
            unknown = sum(one.effect is Effect.UNKNOWN for one in lost)
            effect = f", effect unknown for {unknown}" if unknown else ""
            complain(
                f"run {run} was left unfinished by a program that is gone: "
                f"{look.plural(len(lost), 'call')} settled as lost{effect}; see endstop journal"
            )


def view_of(session: Session, desk: Desk | None, *, silent: bool) -> View:
    """What shows a session: a table on a terminal, lines elsewhere."""
    if silent:
        return Silent()
    if watched():
        out = look.console(stderr=True)

        def question() -> RenderableType | None:
            return desk.drawing() if desk is not None else None

        return Table(session.board, out, session.began, question)
    return Lines(session.board, session.began, session.runtime.config.heartbeat_s)


def _introduce(reply: Reply, session: Session) -> None:
    calls = look.plural(len(reply.calls), "call")
    line = f"run {session.run.id}: {calls}, {reply.format}"
    if reply.truncated:
        line += f"; the reply was cut off ({look.words(reply.reason or 'no reason given')})"
    complain(line)
    for note in reply.notes:
        complain(f"note: {look.words(note, 300)}")


# --- afterwards ----------------------------------------------------------------------------------


def _print(answer: Answer, wanted: Wanted, session: Answering, outcome: Outcome) -> None:
    if outcome.results is None:
        complain(describe_failure(outcome.error))
    reply = session.reply
    results = outcome.results
    messages = reply.answer(results.observations) if results is not None else []
    if wanted.as_json:
        answer.write(look.document(_document(session, outcome, messages)) + "\n")
        return
    if results is None:
        return
    if not reply.calls:
        complain("the reply asks for no tool call; there is nothing to answer")
        return
    out = look.console(stderr=True)
    charged = charged_in(session)
    look.print_truth(out, [truth_of(n, one, charged) for n, one in enumerate(results, 1)])
    stopped = outcome.signal
    said = [] if stopped is None else [f"stopped by {NAMES[signal.Signals(stopped)]}"]
    out.print(" · ".join([*said, *summary(results, charged)]))
    answer.write(look.document(messages) + "\n")


Charged = dict[str, tuple[tuple[Money, ...], bool]]


def charged_in(session: Session) -> Charged:
    """What each call has cost."""
    return {call: row.charged for call, row in session.board.rows.items()}


def truth_of(number: int, result: CallResult, charged: Charged) -> look.Truth:
    """What is true of one call, ready to be shown."""
    spent = look.charge(*charged.get(result.call_id, (result.spent, False)))
    return look.truth(str(number), result.tool, result._settled, spent)


def summary(results: BatchResult, charged: Charged) -> list[str]:
    """What all calls come to, in words."""
    parts = [look.counted(result.outcome for result in results)]
    unknown = sum(result.effect is Effect.UNKNOWN for result in results)
    if unknown:
        parts.append(f"effect unknown for {unknown}")
    alive = sum(result.alive for result in results)
    if alive:
        parts.append(f"{alive} may still have been running")
    spent = look.amounts(part for parts, _ in charged.values() for part in parts)
    if spent:
        parts.append(f"spent {spent}")
    return parts


def _document(session: Answering, outcome: Outcome, messages: Sequence[Any]) -> dict[str, Any]:
    charged = charged_in(session)
    made: dict[str, Any] = {
        "run": session.run.id,
        "format": session.reply.format,
        "messages": list(messages),
        "calls": [
            call_data(result, *charged.get(result.call_id, (result.spent, False)))
            for result in outcome.results or ()
        ],
        "exit": outcome.exit_code,
    }
    if outcome.results is None:
        made["error"] = safe_text(describe_failure(outcome.error), 4_000)
    return made


def call_data(result: CallResult, charged: tuple[Money, ...], declared: bool) -> dict[str, Any]:
    """The truth about one call, as JSON."""
    return {
        "call_id": result.call_id,
        "model_id": result.model_id,
        "tool": result.tool,
        "outcome": str(result.outcome),
        "reason": str(result.reason),
        "effect": str(result.effect),
        "stopped_by": None if result.stopped_by is None else str(result.stopped_by),
        "flags": [str(flag) for flag in result.flags],
        "survivors": list(result.survivors),
        "alive": result.alive,
        "spent": look.money_data(charged),
        "spent_is_declared": declared,
        "ran_s": round(result.ran_s, 6),
        "error": result.error,
        "value": result.value,
        "output": result.output,
    }
