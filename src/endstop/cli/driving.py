"""The command line's `run`, from options to exit code: load the agent, drive it, print its answer.

As in `exec`, three threads that cannot hold up one another: the loop and its runtime live on one of
their own, the main thread shows what is recorded and takes keys, and a signal starts a third that
cancels (laws 6 bounded-stop and 18 audience-free).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from endstop.agents import notes
from endstop.agents.endings import Began, LoopResult, Replied, Spoke, Voided, result_of
from endstop.agents.loop import Loop
from endstop.agents.model_agent import ModelAgent
from endstop.agents.transcript import Transcript
from endstop.cli import look
from endstop.cli.agents import load_agent
from endstop.cli.ask import Desk
from endstop.cli.exec import (
    EXIT_CTRL_C,
    EXIT_JOURNAL,
    EXIT_NOT_ALL,
    EXIT_OK,
    NAMES,
    Key,
    Outcome,
    Session,
    Terms,
    describe_failure,
)
from endstop.cli.journal import find_run, opened
from endstop.cli.keys import open_terminal
from endstop.cli.live import Lines, Silent, Table, View
from endstop.cli.output import Answer, complain, hear_warnings
from endstop.cli.running import (
    REPLY_BYTES,
    call_data,
    charged_in,
    journal_name,
    summary,
    tell_recovered,
    truth_of,
    unfinished,
    watched,
    with_approvals,
)
from endstop.cli.talk import Deaf, Ear, Live, Plain, replied
from endstop.cli.there import CLOSE_S, LoopThread
from endstop.cli.where import journal_file
from endstop.config import Config
from endstop.core import events as e
from endstop.core.text import safe_text
from endstop.errors import CallerError, EndstopError
from endstop.run.handles import Run
from endstop.run.results import BatchResult
from endstop.run.runtime import Runtime
from endstop.store import open_journal
from endstop.store.protocol import Journal

STUCK_S = 5.0
"""How long a loop may go on after the end of its run; then its model blocks it (law 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for on the command line; `limits` go over the agent's own."""

    source: str
    prompt: str | None
    agent: str | None
    journal: str | None
    resume: str | None
    limits: dict[str, Any]
    approve_all: bool
    approval_s: float | None
    as_json: bool


def run(wanted: Wanted) -> int:
    """Run it all; returns the exit code. Raises `EndstopError` before anything was started."""
    hear_warnings()
    with ExitStack() as stack:
        answer = stack.enter_context(Answer())
        resumed, name = _find(wanted)
        try:
            agent = _limited(load_agent(wanted.source, name), wanted.limits)
            prompt = _prompt(wanted)
        except KeyboardInterrupt:
            complain("stopped by Ctrl-C before anything was started")
            return EXIT_CTRL_C
        terminal = None if wanted.as_json or not watched() else open_terminal()
        if terminal is not None:
            stack.callback(os.close, terminal)
        config = with_approvals(Config.load(), wanted.approval_s, wanted.approve_all, terminal)
        journal = open_journal(journal_name(wanted.journal) or config.journal)
        left = unfinished(journal)
        runtime = Runtime(journal=journal, config=config, bodies="own-loop")
        job = Job(agent=agent, prompt=prompt, resumed=resumed, source=_place(wanted.source))
        session = Driving(runtime, job, Terms(approve_all=wanted.approve_all))
        stack.callback(session.close)
        if not wanted.as_json:
            tell_recovered(journal, left)
            complain(f"run {session.run.id}: agent {agent.name}, {look.words(agent.model.name)}")
        desk = None
        if terminal is not None:
            desk = Desk(runtime, terminal, lambda key: session.inbox.put(Key(key)))
        view = session.watched_by(desk, silent=wanted.as_json)
        session.waiting()
        with session.signals() as signals:
            outcome = session.execute(signals, view, desk)
            _print(answer, session, outcome, as_json=wanted.as_json)
        return EXIT_JOURNAL if answer.failed else _exit_code(session, outcome)


# --- before --------------------------------------------------------------------------------------


def _limited(agent: ModelAgent, limits: dict[str, Any]) -> ModelAgent:
    if not limits:
        return agent
    made = copy(agent)
    made.limits = replace(agent.limits, **limits)
    return made


def _prompt(wanted: Wanted) -> str | None:
    if wanted.prompt is None and wanted.resume is None:
        raise CallerError('there is no prompt: endstop run FILE.py "what it is to do"')
    if wanted.prompt is None:
        return None
    if wanted.prompt != "-":
        # Checked here, before there is a run.
        notes.user_note(wanted.prompt, notes.When.AFTER)
        return wanted.prompt
    if sys.stdin.isatty():
        complain("reading the prompt from the terminal; end it with Ctrl-D")
    text = sys.stdin.buffer.read(REPLY_BYTES + 1)
    if len(text) > REPLY_BYTES:
        raise CallerError(f"standard input is longer than {REPLY_BYTES} bytes; that is no prompt")
    prompt = text.decode(errors="replace")
    notes.user_note(prompt, notes.When.AFTER)
    return prompt


def _place(source: str) -> str:
    """Where the agent is declared, for whoever goes on with the run."""
    return str(Path(source).absolute()) if Path(source).is_file() else source


def _find(wanted: Wanted) -> tuple[str | None, str | None]:
    """The run that is to be resumed, if one is, and the name of the agent."""
    if wanted.resume is None:
        return None, wanted.agent
    file = journal_file(wanted.journal)
    with opened(file) as viewer:
        run = find_run(viewer.describe(), wanted.resume, file).run
        first = next(iter(viewer.read(run))).event
    name = first.labels.get("agent") if isinstance(first, e.RunOpened) else None
    if None not in (name, wanted.agent) and name != wanted.agent:
        raise CallerError(f"run {run} is of the agent {name!r}; go on with that, or leave it out")
    return run, name or wanted.agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What an agent is to do: a prompt, or a run that was left."""

    agent: ModelAgent
    prompt: str | None
    resumed: str | None
    source: str


# --- driving -------------------------------------------------------------------------------------


class Driving(Session):
    """A session that drives an agent in a run."""

    run: Run

    def __init__(self, runtime: Runtime, job: Job, terms: Terms) -> None:
        self.job = job
        self.ear: Ear = Deaf()
        self.result: LoopResult | None = None
        self._rt = runtime
        self._stuck = False
        self._turns = 0
        self._there = LoopThread()
        try:
            super().__init__(runtime, terms)
        except EndstopError:
            self.let_go()
            raise

    def open(self) -> Run:
        """See `Session.open`; what happened before is on the board before anything goes on."""
        journal: Journal = self._rt.engine.journal
        if self.job.resumed is not None:
            for one in journal.read(self.job.resumed):
                self.board.apply(one.event, time.monotonic())
                self._turns += isinstance(one.event, e.Noted) and one.event.kind == notes.REPLY
        self.loop = self._there.call(self._open())
        return self.loop.run

    async def _open(self) -> Loop:
        job, agent = self.job, self.job.agent
        if job.resumed is None:
            labels = {"agent": agent.name, "source": job.source}
            run = agent.open(self._rt, labels=labels)
        else:
            run = await agent.take_up(self._rt, job.resumed, job.prompt)
        put: Callable[[Any], None] = self.inbox.put
        loop = Loop(self._rt, run, agent, on_event=put)
        if job.prompt is not None:
            loop.say(job.prompt)
        return loop

    def waiting(self) -> None:
        """Show the questions that were open before, as if they came now."""
        for pending in self._rt.pending():
            for one in self._rt.engine.journal.read(self.run.id):
                if isinstance(one.event, e.ApprovalAsked) and one.event.call == pending.call_id:
                    self.inbox.put(one.event)

    def work(self) -> BatchResult:
        """See `Session.work`."""
        driving = self._there.begin(self.loop.drive(close=True))
        over = threading.Event()
        driving.add_done_callback(lambda _: over.set())
        self.run._life.then(over.set)
        over.wait()
        seen = self.loop.transcript
        try:
            self.result = driving.result(STUCK_S)
        except TimeoutError:
            if driving.done():
                raise
            # The run is over, whatever the model's code does: the journal says how.
            self._stuck = True
            complain("the model blocks its event loop and is left behind; the run is over")
            seen = Transcript(self.job.agent.model.format)
            for one in self._rt.engine.journal.read(self.run.id):
                seen.apply(one.event)
            self.result = result_of(self.run.id, seen)
        return BatchResult(self.run.id, seen.results)

    def watched_by(self, desk: Desk | None, *, silent: bool) -> View:
        """What shows it: a table with what the model says on a terminal, lines elsewhere."""
        if silent:
            return Silent()
        if not watched():
            self.ear = Plain()
            return Lines(self.board, self.began, self._rt.config.heartbeat_s)
        out = look.console(stderr=True)
        ear = self.ear = Live(out, self.job.agent.model.name)

        def below() -> Any:
            from rich.console import Group

            parts = [ear.drawing(), desk.drawing() if desk is not None else None]
            shown = [part for part in parts if part is not None]
            return Group(*shown) if shown else None

        return Table(self.board, out, self.began, below)

    def _show(self, event: Any, view: View, desk: Desk | None) -> None:
        match event:
            case Replied():
                # Shown where it stands among what else is recorded.
                return
            case e.Noted(run=run, kind=notes.REPLY) if run == self.run.id:
                self._turns += 1
                event = replied(event, self._turns)
            case _:
                pass
        if isinstance(event, Began | Spoke | Replied | Voided):
            self.ear.heard(event, time.monotonic() - self.began)
        else:
            super()._show(event, view, desk)

    def let_go(self) -> None:
        """See `Session.let_go`."""
        try:
            self._there.call(self._close(), STUCK_S if self._stuck else None)
        except TimeoutError:
            self._rt.engine.journal.close()
            return
        self._there.close()

    async def _close(self) -> None:
        await self._rt.close()
        await asyncio.wait_for(self.job.agent.model.aclose(), CLOSE_S)


# --- afterwards ----------------------------------------------------------------------------------


def _exit_code(session: Driving, outcome: Outcome) -> int:
    if outcome.results is None or outcome.signal is not None:
        return outcome.exit_code
    assert session.result is not None, "who has results has come to an end"
    return EXIT_OK if session.result.ok else EXIT_NOT_ALL


def _print(answer: Answer, session: Driving, outcome: Outcome, *, as_json: bool) -> None:
    result, results = session.result, outcome.results
    if results is None or result is None:
        complain(describe_failure(outcome.error))
    if as_json:
        answer.write(look.document(_document(session, outcome)) + "\n")
        return
    if results is None or result is None:
        return
    out = look.console(stderr=True)
    charged = charged_in(session)
    if results:
        look.print_truth(out, [truth_of(n, one, charged) for n, one in enumerate(results, 1)])
    stopped = outcome.signal
    said = [f"{result.ended}: {look.words(result.why, 500)}"]
    if stopped is not None:
        said.insert(0, f"stopped by {NAMES[signal.Signals(stopped)]}")
    said.append(look.plural(result.turns, "turn"))
    if result.tokens:
        said.append(f"{result.tokens:,} tokens")
    if results:
        said += [part for part in summary(results, charged) if not part.startswith("spent ")]
    if result.spent:
        said.append(f"spent {look.amounts(result.spent)}")
    out.print(" · ".join(said), soft_wrap=True)
    # What it said on the way is no answer.
    if result.ok and result.text:
        answer.write(look.lines(result.text) + "\n")


def _document(session: Driving, outcome: Outcome) -> dict[str, Any]:
    result, charged = session.result, charged_in(session)
    made: dict[str, Any] = {
        "run": session.run.id,
        "agent": session.job.agent.name,
        "format": session.job.agent.model.format,
    }
    if result is not None:
        made |= {
            "ended": str(result.ended),
            "outcome": str(result.outcome),
            "why": result.why,
            "text": result.text,
            "turns": result.turns,
            "tokens": result.tokens,
            "spent": look.money_data(result.spent),
            "messages": result.messages,
        }
    made["calls"] = [
        call_data(one, *charged.get(one.call_id, (one.spent, False)))
        for one in outcome.results or ()
    ]
    made["exit"] = _exit_code(session, outcome)
    if outcome.results is None:
        made["error"] = safe_text(describe_failure(outcome.error), 4_000)
    return made
