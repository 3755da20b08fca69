"""The command line's `stop`: stops a run or a call of another program, and says what came of it.

The driver is asked through the journal. Where it is gone or does not answer, the run is taken from
it and ended here (law 16 survives-restart). What is printed is read from the journal afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.journal import Story, call_data, truth
from endstop.cli.where import driver_words, find_target, opened_to_ask, row_of, story_of, who
from endstop.core.events import CallSettled, Event, RunOpened
from endstop.core.terms import Effect, Mode, Outcome, Reason
from endstop.errors import CallerError, NotFound
from endstop.run.errands import CANCEL
from endstop.run.takeover import stopping
from endstop.store.owner import is_alive
from endstop.store.protocol import Recorded
from endstop.store.sqlite import RunRow, SqliteJournal

ANSWER_S = 2.0
"""How long a driver may take to answer; one that lives takes milliseconds."""
LOOK_S = 0.1
MARGIN_S = 2.0
"""How much longer than the bounds of the stop ladder an accepted stop may take."""


class How(StrEnum):
    """Who stopped it."""

    ALREADY = "already_over"
    DRIVER = "driver"
    DRIVER_GONE = "driver_gone"
    DRIVER_SILENT = "driver_silent"
    DRIVER_STUCK = "driver_stuck"


@dataclass(slots=True, kw_only=True, eq=False)
class Stop:
    """One stop. `ended` are the calls that it ended, `below` the runs that worked for them."""

    journal: SqliteJournal
    run: str
    target: str
    mode: Mode
    how: How = How.ALREADY
    owner: str | None = None
    ended: tuple[str, ...] = ()
    below: list[str] = field(default_factory=list)

    # --- doing it ---------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Stop it, whoever must do so."""
        while True:
            row = row_of(self.journal, self.run)
            self.owner = row.owner
            if self._is_over() or row.ended_at is not None:
                return
            if row.owner is None or not is_alive(row.owner):
                if self._take(How.DRIVER_GONE, force=False):
                    return
                # Somebody has just taken the run up: then that driver is asked.
                continue
            if self._ask(row):
                return

    def _is_over(self) -> bool:
        """Whether the calls of a batch, or the one call, are all over; never so for a run."""
        if self.target == self.run:
            return False
        story = story_of(self.journal, self.run)
        calls = calls_of(story, self.target)
        if not calls:
            raise NotFound(f"run {self.run!r} has no {self.target!r}; see endstop journal")
        return all(story.calls[call].settled is not None for call in calls)

    def _ask(self, row: RunRow) -> bool:
        """Ask the driver; false where the run must be looked at again."""
        inbox = self.journal.inbox()
        body = {"reason": str(Reason.CANCELLED_BY_USER), "mode": str(self.mode)}
        request = inbox.post(self.run, self.target, CANCEL, body, who())
        if request is None:
            return False

        def answered() -> dict[str, Any] | None:
            return inbox.wait(request, LOOK_S)

        answer = self._until(answered, row, ANSWER_S)
        if answer is None and not inbox.answer(request, {"what": "withdrawn"}):
            # It came after all, in the last moment.
            answer = inbox.answered(request)
        if answer is None:
            if self._drives(row):
                return self._take(How.DRIVER_SILENT, force=True)
            return False
        match answer["what"]:
            case "cancelled":
                self.ended = tuple(answer["open"])
                return self._wait(row, answer)
            case "not_found":
                raise NotFound(str(answer["why"]))
            case _:
                raise CallerError(f"the driver of run {self.run!r} refused: {answer['why']}")

    def _wait(self, row: RunRow, answer: dict[str, Any]) -> bool:
        """Wait until what the driver has begun to stop is over."""
        self.how = How.DRIVER if answer["accepted"] or answer["open"] else How.ALREADY
        story = story_of(self.journal, self.run)
        contracts = [story.calls[one].accepted.contract for one in self.ended if one in story.calls]
        bound = max((c.grace_s + c.commit_s * c.commits + c.kill_s for c in contracts), default=0.0)

        left, seq = set(self.ended), 0

        def over() -> bool:
            nonlocal seq
            for one in self.journal.read(self.run, seq):
                seq = one.seq
                if isinstance(one.event, CallSettled):
                    left.discard(one.event.call)
            return not left

        drain = self.mode is Mode.DRAIN
        if self._until(over, row, None if drain else bound + MARGIN_S):
            return True
        if self._drives(row):
            return self._take(How.DRIVER_STUCK, force=True)
        return False

    def _until(self, holds: Callable[[], Any], row: RunRow, timeout_s: float | None) -> Any:
        """Wait for something of the driver, not longer than it drives; ten looks a second."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not (found := holds()):
            if not self._drives(row):
                return holds()
            if until is not None and time.monotonic() >= until:
                return None
            self.journal.inbox().bell().wait(LOOK_S)
        return found

    def _drives(self, row: RunRow) -> bool:
        """Whether the driver of this row still drives the run, and lives."""
        now = row_of(self.journal, self.run)
        same = now.ended_at is None and now.owner == row.owner
        return same and row.owner is not None and is_alive(row.owner)

    def _take(self, how: How, *, force: bool) -> bool:
        """Take the run from its driver and end what is to be ended, in one step."""

        def decide(recorded: list[Recorded]) -> list[Event]:
            events = [one.event for one in recorded]
            reason = Reason.CANCELLED_BY_USER
            return stopping(events, self.target, reason, self.mode, may_live=force)

        events = self.journal.take_over(self.run, decide, force=force)
        if events is None:
            return False
        if events:
            self.how = how
            self.ended = tuple(one.call for one in events if isinstance(one, CallSettled))
            self._end_below(self.run, self.target, force=force)
        return True

    def _end_below(self, run: str, target: str, *, force: bool) -> None:
        """End the attached runs that worked for what was ended (law 17 children-settle)."""

        def decide(recorded: list[Recorded]) -> list[Event]:
            events = [one.event for one in recorded]
            reason = Reason.PARENT_CANCELLED
            return stopping(events, events[0].run, reason, self.mode, may_live=force)

        for child in self.journal.children(run):
            opened = next(self.journal.read(child)).event
            assert isinstance(opened, RunOpened), "a run begins with its opening"
            parent = opened.parent_call or ""
            if opened.detached or target not in (run, parent, parent.rpartition(".")[0]):
                continue
            if self.journal.take_over(child, decide, force=force):
                self.below.append(child)
            self._end_below(child, child, force=force)

    # --- saying it --------------------------------------------------------------------------------

    def words(self, story: Story) -> str:
        """What happened, in a sentence or two."""
        what = f"run {self.run}" if self.target == self.run else f"{self.target}"
        ended = look.plural(len(self.ended), "call")
        if self.below:
            ended += f" and {look.plural(len(self.below), 'run')} below"
        driver = driver_words(self.owner)
        match self.how:
            case How.ALREADY:
                return f"{what} was over or stopped already: nothing was changed"
            case How.DRIVER:
                return f"{what} was stopped by {driver} which ended {ended}"
            case How.DRIVER_GONE:
                said = f"{driver} is gone" if self.owner else "nobody drives it"
                return f"{what} was ended here, because {said}: {ended} ended{self._unknown(story)}"
            case How.DRIVER_SILENT | How.DRIVER_STUCK:
                why = f"did not answer within {ANSWER_S:.0f} s"
                if self.how is How.DRIVER_STUCK:
                    why = "accepted the stop and did not bring it to an end"
                return (
                    f"{what} was taken from {driver} which {why}: {ended} ended"
                    f"{self._unknown(story)}. What it had started may still be running; it stops "
                    "that when it goes on, and can record nothing more of this run"
                )

    def _unknown(self, story: Story) -> str:
        endings = [story.calls[call].settled for call in self.ended]
        unknown = sum(one is not None and one.effect is Effect.UNKNOWN for one in endings)
        return f", effect unknown for {unknown}" if unknown else ""


def calls_of(story: Story, target: str) -> list[str]:
    """The calls of a run or batch, or the one call."""
    if target == story.row.run:
        return list(story.calls)
    return [name for name, call in story.calls.items() if target in (name, call.accepted.batch)]


def stop(file: Path, wanted: str, mode: Mode, *, as_json: bool) -> int:
    """Stop a run, batch or call of another program; returns the exit code."""
    with opened_to_ask(file) as journal:
        row, target = find_target(journal, wanted, file)
        done = Stop(journal=journal, run=row.run, target=target, mode=mode)
        done.carry_out()
        story = story_of(journal, row.run)
    calls = calls_of(story, target)
    left = [call for call in calls if story.calls[call].settled is None]
    if as_json:
        data = {
            "run": row.run,
            "target": target,
            "how": str(done.how),
            "ended": list(done.ended),
            "ended_runs_below": done.below,
            "run_outcome": story.row.outcome,
            "calls": [call_data(story, story.calls[call]) for call in calls],
        }
        print(look.document(data))
    else:
        out = look.console(stderr=False)
        out.print(done.words(story), soft_wrap=True)
        if calls:
            look.print_truth(out, [truth(story, story.calls[call]) for call in calls])
    lost = any(
        (ending := story.calls[call].settled) is not None and ending.outcome is Outcome.LOST
        for call in done.ended
    )
    return 1 if left or lost else 0
