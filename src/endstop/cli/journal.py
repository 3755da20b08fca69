"""The command line's `journal`: what a journal's file says, without touching it.

It is opened read-only and nothing is adopted, so this may be done while another program drives a
run. What is not recorded is not guessed: an unfinished call is named as what it is (law 5).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.story import told
from endstop.core import events as e
from endstop.core.recovery import Unfinished, waits_for_record
from endstop.core.terms import Effect, EffectClass, Money, Outcome
from endstop.errors import CallerError
from endstop.store.codec import encode
from endstop.store.owner import is_alive, parse_owner
from endstop.store.protocol import Recorded
from endstop.store.sqlite import RunRow, SqliteJournal


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call as the journal tells it."""

    accepted: e.CallAccepted
    cost: Money | None
    granted: bool = False
    started: bool = False
    stopping: bool = False
    spent: tuple[Money, ...] = ()
    settled: e.CallSettled | None = None

    @property
    def charged(self) -> tuple[tuple[Money, ...], bool]:
        """What it has cost, and whether that is only what its tool declares (law 20)."""
        if self.spent or self.cost is None or not self.started or self.settled is None:
            return self.spent, False
        declared = self.settled.effect is not Effect.NONE
        return ((self.cost,) if declared else ()), declared


@dataclass(slots=True, kw_only=True, eq=False)
class Story:
    """One run: its row, its events, and what they come to."""

    row: RunRow
    events: list[Recorded]
    calls: dict[str, Call]
    unfinished: Unfinished

    @property
    def alive(self) -> bool:
        """Whether its driver may still be at work."""
        return self.row.ended_at is None and self.row.owner is not None and is_alive(self.row.owner)

    @property
    def state(self) -> str:
        """Ended, running, or interrupted."""
        if self.row.ended_at is not None:
            return "ended"
        return "running" if self.alive else "interrupted"

    @property
    def driver(self) -> str | None:
        """Who drives it, in words."""
        owner = parse_owner(self.row.owner or "")
        return f"pid {owner.pid} on {owner.host}" if owner is not None and self.alive else None

    @property
    def spent(self) -> tuple[Money, ...]:
        """The sum over all calls, and what was paid outside of them."""
        notes = [one.event.spent for one in self.events if isinstance(one.event, e.Noted)]
        calls = [part for call in self.calls.values() for part in call.charged[0]]
        return look.total([*calls, *(money for money in notes if money is not None)])

    def open_words(self, call: str) -> str:
        """What is known of a call without an ending."""
        one = self.calls[call]
        effect = one.accepted.contract.effect
        if self.alive:
            if one.stopping:
                return "being stopped now"
            return "running now" if one.started else "not started yet"
        if one.started or (one.granted and waits_for_record(effect)):
            begun = "started" if one.started else "may have started"
            known = "no effect (read-only)" if effect is EffectClass.READ_ONLY else "unknown"
            return f"{begun}, no ending recorded: outcome {known}"
        if self.unfinished.may_have_begun(call):
            return "may have started, no ending recorded: outcome unknown"
        return "not started: safe to resume"


# --- reading ---------------------------------------------------------------------------------


@contextmanager
def opened(file: Path) -> Iterator[SqliteJournal]:
    """A journal that is only read, closed afterwards."""
    journal = SqliteJournal(file, readonly=True)
    try:
        yield journal
    finally:
        journal.close()


def read_story(journal: SqliteJournal, row: RunRow) -> Story:
    """What a journal says of one run."""
    events = list(journal.read(row.run))
    unfinished = Unfinished(row.run)
    unfinished.read(one.event for one in events)
    calls: dict[str, Call] = {}
    for one in events:
        _note(calls, one.event)
    return Story(row=row, events=events, calls=calls, unfinished=unfinished)


def _note(calls: dict[str, Call], event: e.Event) -> None:
    match event:
        case e.CallAccepted():
            calls[event.call] = Call(accepted=event, cost=event.cost)
        case e.CallQueued() | e.ApprovalAsked() if event.cost is not None:
            calls[event.call].cost = event.cost
        case e.CallGranted():
            calls[event.call].granted = True
        case e.CallStarted():
            calls[event.call].started = True
        case e.StopRequested():
            calls[event.call].stopping = True
        case e.CallSpent():
            calls[event.call].spent = look.total([*calls[event.call].spent, event.money])
        case e.CallSettled():
            calls[event.call].settled = event
        case _:
            pass


def find_run(rows: list[RunRow], wanted: str, file: Path) -> RunRow:
    """The run with this id, or the only one that begins with it, or the `last` one."""
    if not rows:
        raise CallerError(f"{file} holds no run yet")
    if wanted == "last":
        return rows[-1]
    found = [row for row in rows if row.run == wanted]
    found = found or [row for row in rows if row.run.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row.run for row in found[:5])
        raise CallerError(f"{wanted!r} begins {len(found)} runs ({names} …); write more of the id")
    raise CallerError(
        f"{file} holds no run {wanted!r}; list its runs with `endstop journal {file}`"
    )


# --- all runs --------------------------------------------------------------------------------


def show_runs(file: Path, *, last: int, as_json: bool) -> None:
    """List the runs of a journal, oldest first. Raises `JournalError` where it cannot be read."""
    with opened(file) as journal:
        rows = journal.describe()
        shown = rows[-last:] if last else rows
        stories = [read_story(journal, row) for row in shown]
    if as_json:
        data = {"journal": str(file), "runs": [_run_data(story) for story in stories]}
        print(look.document(data))
        return
    if not rows:
        print(f"{file} holds no run yet")
        return
    if len(shown) < len(rows):
        print(f"the newest {len(shown)} of {len(rows)} runs; --last 0 lists all")
    _print_runs(stories)


def _print_runs(stories: list[Story]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("run", "opened", "took", "state", "calls", "spent"):
        table.add_column(name, no_wrap=name in ("run", "opened", "took"))
    for story in stories:
        row = story.row
        took = look.seconds(row.ended_at - row.opened_at) if row.ended_at is not None else ""
        table.add_row(
            Text(row.run),
            Text(when(row.opened_at)),
            Text(took),
            Text(state_words(story), style=_state_style(story)),
            Text(calls_words(story)),
            Text(look.amounts(story.spent)),
        )
    look.console(stderr=False).print(table)


def state_words(story: Story) -> str:
    """Whether a run is over, and if not, who drives it."""
    if story.state == "ended":
        # A run that nobody stopped has "succeeded", whatever its calls came to.
        stopped = story.row.outcome != Outcome.SUCCEEDED
        return f"ended: {story.row.outcome}" if stopped else "ended"
    if story.state == "running":
        return f"running, driven by {story.driver or 'an unknown program'}"
    last = story.events[-1].event if story.events else None
    if isinstance(last, e.RunInterrupted) and last.clean:
        return "let go: it can be resumed"
    return "interrupted: its driver is gone"


def _state_style(story: Story) -> str:
    if story.state == "ended":
        return look.OUTCOME_STYLE.get(Outcome(story.row.outcome or "lost"), "")
    return "cyan" if story.state == "running" else "bold yellow"


def calls_words(story: Story) -> str:
    """How many of its calls ended how."""
    settled = [call.settled.outcome for call in story.calls.values() if call.settled is not None]
    still = len(story.calls) - len(settled)
    parts = [look.counted(settled), f"{still} without an ending" if still else ""]
    return ", ".join(part for part in parts if part) or "none"


# --- one run ---------------------------------------------------------------------------------


def show_run(file: Path, wanted: str, *, as_json: bool) -> None:
    """Show what happened in one run, in order, and what it comes to for each call."""
    with opened(file) as journal:
        story = read_story(journal, find_run(journal.describe(), wanted, file))
    if as_json:
        print(look.document(_whole_data(story)))
        return
    out = look.console(stderr=False)
    row = story.row
    out.print(f"run {row.run}, opened {when(row.opened_at)}: {state_words(story)}")
    out.print()
    began = story.events[0].at_s if story.events else row.opened_at
    for one in story.events:
        out.print(_line(story, one, began), soft_wrap=True)
    look.print_truth(out, [truth(story, call) for call in story.calls.values()])
    spent = look.amounts(story.spent)
    out.print(" · ".join(p for p in (calls_words(story), f"spent {spent}" if spent else "") if p))


def _line(story: Story, one: Recorded, began: float) -> str:
    call = story.calls.get(getattr(one.event, "call", ""))
    who = ""
    if call is not None:
        number = call.accepted.call.partition("/")[2]
        who = f"{number} {look.words(call.accepted.tool, 32)}: "
    return f"{one.at_s - began:+9.3f} s  {who}{told(one.event)}"


def truth(story: Story, call: Call) -> look.Truth:
    """What is true of one call, ready to be shown."""
    name, tool = call.accepted.call, call.accepted.tool
    number = name.partition("/")[2]
    if call.settled is None:
        note = story.open_words(name)
        return look.Truth(number, tool, None, "", None, "", look.amounts(call.spent), note)
    return look.truth(number, tool, call.settled, look.charge(*call.charged))


# --- as JSON ---------------------------------------------------------------------------------


def _run_data(story: Story) -> dict[str, Any]:
    row = story.row
    outcomes = Counter(
        str(call.settled.outcome) for call in story.calls.values() if call.settled is not None
    )
    return {
        "run": row.run,
        "state": story.state,
        "outcome": row.outcome,
        "driver": story.driver,
        "opened_at": iso(row.opened_at),
        "ended_at": None if row.ended_at is None else iso(row.ended_at),
        "calls": dict(outcomes),
        "open_calls": len(story.calls) - outcomes.total(),
        "spent": look.money_data(story.spent),
    }


def _whole_data(story: Story) -> dict[str, Any]:
    began = story.events[0].at_s if story.events else story.row.opened_at
    data = _run_data(story)
    data["events"] = [_event_data(one, began) for one in story.events]
    data["calls"] = [call_data(story, call) for call in story.calls.values()]
    return data


def _event_data(one: Recorded, began: float) -> dict[str, Any]:
    kind, call, body = encode(one.event)
    told_data: dict[str, Any] = {
        "seq": one.seq,
        "at": iso(one.at_s),
        "after_s": round(one.at_s - began, 6),
        "event": kind,
    }
    if call is not None:
        told_data["call"] = call
    return {**told_data, **json.loads(body)}


def call_data(story: Story, call: Call) -> dict[str, Any]:
    """What is true of one call, as JSON."""
    ended = call.settled
    spent, declared = call.charged
    return {
        "call_id": call.accepted.call,
        "model_id": call.accepted.model_id,
        "tool": call.accepted.tool,
        "arguments": call.accepted.arguments,
        "outcome": None if ended is None else str(ended.outcome),
        "reason": None if ended is None else str(ended.reason),
        "effect": None if ended is None else str(ended.effect),
        "ran_s": None if ended is None else ended.ran_s,
        "spent": look.money_data(spent),
        "spent_is_declared": declared,
        "unfinished": story.open_words(call.accepted.call) if ended is None else None,
    }


def when(at_s: float) -> str:
    """A wall time as people here write it."""
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def iso(at_s: float) -> str:
    """A wall time as JSON."""
    return datetime.fromtimestamp(at_s, UTC).isoformat()
