"""Testing: what is asked of a simulation, and what came of it. Values only; nothing here acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from endstop.core import events as e
from endstop.core.terms import Limits, Mode, ToolCall
from endstop.run.results import BatchResult, CallResult, CancelReport
from endstop.testing.promises import Log
from endstop.testing.simjournal import Trouble

Driver = Literal["async", "blocking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """A stop at one point of a simulation: after the `after_event`-th event or before the
    `at_step`-th step of the loop, both counted from 1.

    `target` is a run, a batch or a call; "task" cancels the tasks that wait for the runs (async
    driver only).
    """

    target: str
    mode: Mode = Mode.INTERRUPT
    after_event: int | None = None
    at_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a simulation is run; the same settings give the same trace.

    `shuffle` draws the order of what is ready from `seed`; without it, it is first in, first out.
    `commit_s`: the longest commit of the journal, drawn anew for each; None for an immediate one.
    `closes_s`: the runtime is closed at this instant, whatever runs; with `suspends`, so that what
    has not begun stays pending.
    """

    seed: int = 0
    driver: Driver = "async"
    shuffle: bool = False
    commit_s: float | None = None
    trouble: Trouble | None = None
    interrupt: Interrupt | None = None
    closes_s: float | None = None
    suspends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One run: its batches of calls, one after the other, each with its terms."""

    run: str
    batches: Sequence[tuple[Sequence[ToolCall], dict[str, Any]]]
    begins_s: float = 0.0
    limits: Limits | None = None


@dataclass(slots=True, kw_only=True)
class Simulated:
    """What a simulation came to. `wrong` lists every broken law; `check()` raises if there is one.

    `trace` is what observers saw, with instants; `log` what was recorded.
    """

    settings: Settings
    trace: Log = field(default_factory=list)
    log: Log = field(default_factory=list)
    committed: list[e.Event] = field(default_factory=list)
    results: dict[str, list[BatchResult]] = field(default_factory=dict)
    cancels: list[CancelReport] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    steps: int = 0
    appends: int = 0
    crashed: bool = False

    @property
    def events(self) -> list[e.Event]:
        """The events that observers saw, without instants."""
        return [event for _, event in self.trace]

    @property
    def answers(self) -> list[CallResult]:
        """The answers of all batches, in request order; what the process died before is missing."""
        return [one for batches in self.results.values() for batch in batches for one in batch]

    def ending(self, call: str) -> e.CallSettled:
        """The ending of a call. Raises KeyError where there is none."""
        for event in self.events:
            if isinstance(event, e.CallSettled) and event.call == call:
                return event
        raise KeyError(call)

    def check(self) -> Simulated:
        """Raise AssertionError, naming laws and settings, if a law was broken."""
        if self.wrong:
            lines = "\n  ".join(dict.fromkeys(self.wrong))
            raise AssertionError(f"{self.settings}\n  {lines}")
        return self


def check_answers(told: Simulated) -> list[str]:
    """Law 4: every batch is answered whole, in request order, with what is recorded."""
    endings = {ev.call: ev for _, ev in told.log if isinstance(ev, e.CallSettled)}
    sizes = {ev.batch: ev.size for _, ev in told.log if isinstance(ev, e.BatchOpened)}
    wrong = []
    if told.settings.trouble is None:
        answered = {batch.batch_id for batches in told.results.values() for batch in batches}
        gone = {ev.run for _, ev in told.log if isinstance(ev, e.RunInterrupted)}
        asked = [batch for batch in sizes if batch.partition("/")[0] in told.results.keys() - gone]
        wrong += [f"law 4 one-answer: {b} was never answered" for b in asked if b not in answered]
    for batches in told.results.values():
        for batch in batches:
            ids = [result.call_id for result in batch]
            if ids != [f"{batch.batch_id}.{n}" for n in range(sizes[batch.batch_id])]:
                wrong.append(f"law 4 one-answer: {batch.batch_id} was answered with {ids}")
            wrong += [
                f"law 4 one-answer: {result.call_id} was answered with what is not recorded"
                for result in batch
                if result._settled != endings.get(result.call_id)
            ]
    return wrong
