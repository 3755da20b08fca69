"""The command line's `resume`: takes up a run whose driver is gone, and brings it to its end.

What is recorded as over is shown and never run again; the rest is driven, watched and stopped as in
`exec` (law 16 survives-restart). The answers are printed for whoever has the conversation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.ask import Desk
from endstop.cli.exec import (
    EXIT_CTRL_C,
    EXIT_JOURNAL,
    Key,
    Outcome,
    Session,
    Terms,
    describe_failure,
)
from endstop.cli.journal import find_run, opened
from endstop.cli.keys import open_terminal
from endstop.cli.output import Answer, complain, hear_warnings
from endstop.cli.running import (
    call_data,
    charged_in,
    load,
    summary,
    tell_recovered,
    truth_of,
    unfinished,
    view_of,
    watched,
)
from endstop.cli.servers import Servers
from endstop.config import Config
from endstop.core import events as e
from endstop.core.terms import Phase
from endstop.core.text import safe_text
from endstop.errors import CallerError
from endstop.run.blocking import BlockingRun, BlockingRuntime
from endstop.run.results import BatchResult, CallResult
from endstop.store.protocol import Recorded
from endstop.store.sqlite import SqliteJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for on the command line."""

    run: str
    tools: tuple[str, ...]
    shell: bool
    approve_all: bool
    as_json: bool
    servers: Servers


class Resuming(Session):
    """A session that takes up a run."""

    run: BlockingRun

    def __init__(self, runtime: BlockingRuntime, run_id: str, terms: Terms) -> None:
        self.run_id = run_id
        self._blocking = runtime
        super().__init__(runtime, terms)

    def open(self) -> BlockingRun:
        """See `Session.open`. What happened before is on the board before anything goes on."""
        now = time.monotonic()
        for one in self.runtime.engine.journal.read(self.run_id):
            self.board.apply(one.event, now)
        return self._blocking.resume(self.run_id)

    def waiting(self) -> None:
        """Show the questions that were open before, as if they came now."""
        for row in self.board.open:
            if row.phase is Phase.AWAITING_APPROVAL:
                self.inbox.put(self._asked(row.call))

    def _asked(self, call: str) -> e.ApprovalAsked:
        recorded = self.runtime.engine.journal.read(self.run_id)
        asked = [one.event for one in recorded if isinstance(one.event, e.ApprovalAsked)]
        return next(one for one in reversed(asked) if one.call == call)

    def work(self) -> BatchResult:
        """See `Session.work`."""
        batches = self.run.finish()
        return BatchResult(self.run_id, [result for batch in batches for result in batch])


def resume(file: Path, wanted: Wanted) -> int:
    """Take up a run; returns the exit code, as of `exec`.

    Raises `EndstopError` before anything was started.
    """
    hear_warnings()
    with ExitStack() as stack:
        answer = stack.enter_context(Answer())
        try:
            tools = load(wanted.tools, shell=wanted.shell, servers=wanted.servers, stack=stack)
        except KeyboardInterrupt:
            complain("stopped by Ctrl-C before any call was started")
            return EXIT_CTRL_C
        with opened(file) as viewer:
            run_id = find_run(viewer.describe(), wanted.run, file).run
            _refuse_a_conversation(viewer.read(run_id))
        terminal = None if wanted.as_json or not watched() else open_terminal()
        if terminal is not None:
            stack.callback(os.close, terminal)
        journal = SqliteJournal(file)
        left = unfinished(journal)
        runtime = BlockingRuntime(tools, journal=journal, config=Config.load())
        stack.callback(runtime.close)
        if not wanted.as_json:
            tell_recovered(journal, left)
        session = Resuming(runtime, run_id, Terms(approve_all=wanted.approve_all))
        stack.callback(session.close)
        desk = None
        if terminal is not None:
            desk = Desk(runtime, terminal, lambda key: session.inbox.put(Key(key)))
        view = view_of(session, desk, silent=wanted.as_json)
        if not wanted.as_json:
            over = len(session.board.rows) - len(session.board.open)
            complain(f"run {run_id}: {look.plural(len(session.board.rows), 'call')}, {over} over")
        session.waiting()
        with session.signals() as signals:
            outcome = session.execute(signals, view, desk)
            _print(answer, session, outcome, as_json=wanted.as_json)
        return EXIT_JOURNAL if answer.failed else outcome.exit_code


def _refuse_a_conversation(recorded: Iterable[Recorded]) -> None:
    """Only its agent can go on with a conversation: its calls alone are not all of it."""
    source, run, replied = "FILE.py", "", False
    for one in recorded:
        match one.event:
            case e.RunOpened(labels=labels):
                run, source = one.run, labels.get("source", source)
            case e.Noted(kind="reply"):
                replied = True
            case e.RunEnded():
                return
            case _:
                pass
    if replied:
        raise CallerError(
            f"run {run} is the conversation of an agent: endstop run {source} --resume {run}"
        )


def _print(answer: Answer, session: Resuming, outcome: Outcome, *, as_json: bool) -> None:
    results = outcome.results
    if results is None:
        complain(describe_failure(outcome.error))
    if as_json:
        answer.write(look.document(_document(session, outcome)) + "\n")
    elif results is not None:
        out = look.console(stderr=True)
        charged = charged_in(session)
        look.print_truth(out, [truth_of(n, one, charged) for n, one in enumerate(results, 1)])
        out.print(" · ".join(summary(results, charged)))
        answer.write(look.document([_observation(one) for one in results]) + "\n")


def _observation(result: CallResult) -> dict[str, Any]:
    return {
        "call_id": result.call_id,
        "model_id": result.model_id,
        "tool": result.tool,
        "text": result.text,
        "is_error": result.is_error,
    }


def _document(session: Resuming, outcome: Outcome) -> dict[str, Any]:
    charged = charged_in(session)
    made: dict[str, Any] = {
        "run": session.run_id,
        "observations": [_observation(one) for one in outcome.results or ()],
        "calls": [
            call_data(one, *charged.get(one.call_id, (one.spent, False)))
            for one in outcome.results or ()
        ],
        "exit": outcome.exit_code,
    }
    if outcome.results is None:
        made["error"] = safe_text(describe_failure(outcome.error), 4_000)
    return made
