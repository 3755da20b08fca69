"""The engine: one core, one lock, one journal, whoever drives.

It takes inputs from any thread, lets the core decide under the lock, records what was decided, and
acts outside the lock on what is recorded. It decides nothing itself and never waits: a driver waits
in its own way (on a loop, or on a condition) for the promises that are kept here.

Decide, record, act
-------------------
`tell` runs `step` under the lock, so a claim and a cancel are two decisions on one state, one after
the other, whichever threads they come from (law 1 one-door). The events are appended in the same
moment. What must survive before it may be acted on waits for the journal's ticket: the grant of an
effectful call before its worker is started, an ending before anybody sees it (law 15 record-first).
Everything else is acted on at once. If the append is refused, another driver owns the run: it is
fenced here, and nothing of it starts any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.state import CallState, RunState, State
from endstop.core.terms import How, Isolation
from endstop.errors import JournalError, RunSuspended
from endstop.run import forgetting
from endstop.run.audience import Audience, Page
from endstop.run.clock import Clock
from endstop.run.driver import Driver
from endstop.run.fence import Refused, on_a_thread
from endstop.run.heartbeat import Heartbeat
from endstop.run.orphans import settle_orphans
from endstop.run.plans import Plan
from endstop.run.promise import Promise
from endstop.run.reading import calls_of, is_over
from endstop.run.recording import TRANSIENT, by_run, durability, ended_by, must_wait
from endstop.run.results import CallResult
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability, Journal, Ticket
from endstop.work.protocol import Worker

log = logging.getLogger("endstop.run")

_BUFFERED = Durability.BUFFERED
Appended = tuple[list[e.Event], Ticket | None, Page | None]
Landed = Callable[[list[e.Event]], None]


class Engine:
    """Drives one core for a runtime; see the theory above."""

    def __init__(
        self,
        *,
        journal: Journal,
        clock: Clock,
        slots: Mapping[Isolation, int | None],
        heartbeat_s: float | None = None,
    ) -> None:
        self.state = State(slots)
        self.journal = journal
        # Memory is as durable as it will ever be: nobody needs to ask how durable it should be.
        self._keeps_objects = isinstance(journal, MemoryJournal)
        self.clock = clock
        self.workers: dict[Isolation, Worker] = {}
        self.driver: Driver | None = None
        self.shows_results = False
        self.plans: dict[str, Plan] = {}
        self._leaving: set[str] = set()
        self._unparking: set[str] = set()
        self.fences: dict[str, Exception] = {}
        self.lock = threading.Lock()
        self._promise_lock = threading.Lock()
        self._promises: dict[str, Promise] = {}
        # What is over, but not yet as durably recorded as it must be before anybody is told.
        self._recording: set[str] = set()
        self._alarm: float | None = None
        # Runs a function outside of the step that is under way; the simulator has its own way.
        self.aside: Callable[[Callable[[], object]], object] = on_a_thread
        self.audience = Audience(heartbeat_s)
        self.on_question: Callable[[e.Event], None] = lambda event: None

    # -- telling

    def tell(self, said: i.Input, landed: Landed | None = None) -> bool:
        """Give one input to the core; true if something happened because of it.

        `landed` sees what happened before anything is acted on, still under the lock.
        """
        # Not by `with`: that costs twice as much, and this is on the path of every call, twice.
        self.lock.acquire()
        try:
            now = self.clock()
            events = step(self.state, said, now)
            if not events:
                return False
            if landed is not None:
                landed(events)
            recorded = self._record(events, now)
            due = self._next_alarm()
        finally:
            self.lock.release()
        self._after(recorded, due)
        return type(recorded[0][1]) is not Refused or not self._turned_away(said)

    def _turned_away(self, said: i.Input) -> bool:
        """Whether what asked to go on may not: its record was refused (law 1 one-door)."""
        if isinstance(said, i.Claimed):
            # The core counts the body as begun; it will not begin, and ends after the fence.
            ended = i.BodyEnded(call=said.call, how=How.STOPPED)
            self.aside(lambda: self.tell(ended))
            return True
        return isinstance(said, i.CommitEntered | i.Note | i.Together)

    def submit(self, said: i.SubmitBatch | i.Together, plans: Sequence[Plan]) -> str:
        """Give a batch to the core with its plans; returns its id, or nothing. Of one that comes
        together with more, nothing also says that the record of both was refused."""
        batch = ""

        def landed(events: list[e.Event]) -> None:
            nonlocal batch
            kinds = [type(event) for event in events]
            if e.BatchOpened not in kinds:
                return
            at = kinds.index(e.BatchOpened)
            batch = events[at].batch  # type: ignore[union-attr]
            for plan, taken in zip(plans, events[at + 1 :], strict=False):
                assert isinstance(taken, e.CallAccepted)
                plan.accepted(taken.run, taken.call)
                self.plans[taken.call] = plan
            self._promises[batch] = Promise(self._promise_lock)

        return batch if self.tell(said, landed) else ""

    def tick(self) -> None:
        """Let everything happen that is due."""
        with self.lock:
            self._alarm = None
            now = self.clock()
            events = step(self.state, i.Tick(), now)
            recorded = self._record(events, now) if events else []
            beats = self.audience.take_beats(self.state, now)
            due = self._next_alarm()
        self._after(recorded, due)
        if beats is not None:
            self.audience.show(beats)

    def next_due(self) -> float | None:
        """The instant at which something is due next; whoever asks will tick by then.

        Whatever was told before is forgotten: a driver that waits for this instant and no other
        must be told again of any that comes before it.
        """
        with self.lock:
            self._alarm = self._earliest()
            return self._alarm

    def _earliest(self) -> float | None:
        return self.audience.or_a_beat(self.state.timers.next_due())

    def _next_alarm(self) -> float | None:
        """The next instant to look at, if it is earlier than what the driver was told already."""
        # Maybe nothing is due then any more: a tick too many costs less than a search every time.
        due = self.state.timers.earliest
        if self.audience.present:
            due = self.audience.or_a_beat(due)
        if due is None or (self._alarm is not None and self._alarm <= due):
            return None
        self._alarm = due
        return due

    # -- recording

    def _record(self, events: list[e.Event], now: float) -> list[Appended]:
        """Append events to their runs, and give them their place before the audience."""
        run_id = events[0].run
        for event in events:
            if event.run != run_id or type(event) in TRANSIENT:
                return [
                    self._appended(run_id, group, kept, now)
                    for run_id, group, kept in by_run(events)
                ]
        # The everyday case: all of one run, and all to be kept.
        return [self._appended(run_id, events, events, now)]

    def _appended(
        self, run_id: str, events: list[e.Event], kept: list[e.Event], now: float
    ) -> Appended:
        ticket = self._append(run_id, kept) if kept else None
        return events, ticket, self.audience.expect(events, now) if self.audience.present else None

    def _append(self, run_id: str, kept: list[e.Event]) -> Any:
        run = self.state.runs[run_id]
        if run.fenced:
            return Refused(self.fences[run_id])
        needed = _BUFFERED if self._keeps_objects else durability(kept, self.state)
        try:
            ticket = self.journal.append(run_id, run.seq, kept, needed)
        except JournalError as error:
            self._fence(run, error)
            return Refused(error)
        run.seq += len(kept)
        if ticket is not None:
            self._recording.update(ended_by(kept))
        return ticket

    def _fence(self, run: RunState, error: Exception) -> None:
        """The journal took no append: another driver owns the run, or the file is unusable."""
        if run.fenced:
            return
        run.fenced = True
        self.fences[run.id] = error
        # Outside of the step that is under way: its own events must be applied first.
        fence = i.RunFenced(run=run.id)
        self.aside(lambda: self.tell(fence))

    def listen(self, listener: Callable[[Heartbeat], None]) -> None:
        """Show the heartbeats of what runs to `listener` from now on."""
        with self.lock:
            self.audience.add_listener(listener, self.state.calls.values(), self.clock())
            due = self._next_alarm()
        self._after([], due)

    # -- acting

    def _after(self, recorded: list[Appended], due: float | None) -> None:
        """Act on what is recorded, and on the rest once it is."""
        if due is not None and self.driver is not None:
            self.driver.alarm(due)
        for events, ticket, page in recorded:
            if ticket is None:
                for event in events:
                    act = _ACT.get(type(event))
                    if act is not None:
                        act(self, event)
                if page is not None:
                    self.audience.show(page)
            else:
                self._act_once_recorded(events, ticket, page)

    def _act_once_recorded(self, events: list[e.Event], ticket: Ticket, page: Page | None) -> None:
        waiting = []
        refused = type(ticket) is Refused
        for event in events:
            act = _ACT.get(type(event))
            if act is not None and (
                must_wait(event, self.plans) or (refused and act is Engine._start)
            ):
                waiting.append((act, event))
            elif act is not None:
                act(self, event)

        def decided(error: Exception | None) -> None:
            with self.lock:
                self._recording.difference_update(ended_by(events))
                run = self.state.runs.get(events[0].run)
                if error is not None and run is not None:
                    self._fence(run, error)
            if error is not None:
                if page is not None:
                    self.audience.show(page, recorded=False)
                self._unrecorded(events, error)
                return
            for act, event in waiting:
                act(self, event)
            if page is not None:
                self.audience.show(page)

        ticket.then(decided)

    def _unrecorded(self, events: Iterable[e.Event], error: Exception) -> None:
        """What could not be recorded is not shown as an ending, but nobody is left waiting."""
        for event in events:
            if isinstance(event, e.CallSettled):
                self._let_go(event)
            elif isinstance(event, e.RunInterrupted):
                forgetting.let_go(self, event.run, error)
        for name in ended_by(events):
            self._keep(name)

    def _start(self, event: e.CallGranted) -> None:
        plan = self.plans.get(event.call)
        if plan is None:
            # Cancelled and forgotten while its grant was being recorded.
            return
        assert plan.tool is not None, f"{event.call} was granted without a tool"
        self.workers[plan.contract.isolation].start(plan)

    def _ask(self, event: e.AskSent) -> None:
        plan = self.plans.get(event.call)
        if plan is not None:
            self.workers[plan.contract.isolation].ask(event.call)

    def _kill(self, event: e.KillSent) -> None:
        plan = self.plans.get(event.call)
        if plan is not None:
            self.workers[plan.contract.isolation].kill(event.call)

    def _settle(self, event: e.CallSettled) -> None:
        if self.shows_results and self.driver is not None and event.call in self.plans:
            self.driver.settled(self.state.calls[event.call])
        self._let_go(event)

    def _let_go(self, event: e.CallSettled) -> None:
        plan = self.plans.get(event.call)
        if plan is not None and plan.hook_task is not None and self.driver is not None:
            self.driver.stop_hook(plan)
        if event.call in self._promises:
            self._keep(event.call)
        if event.call in self._unparking:
            self.go_on(event.call)

    def _interrupted(self, event: e.RunInterrupted) -> None:
        words = "was suspended: what had not begun is pending; resume it to go on"
        forgetting.let_go(self, event.run, RunSuspended(f"run {event.run!r} {words}"))

    def _unpark(self, event: e.CallUnparked) -> None:
        self.go_on(event.call)

    def go_on(self, call: str) -> None:
        """Let a parked body go on: it has a slot again, or is settled and needs none."""
        self._unparking.discard(call)
        self._keep(f"{call}#unparked")

    def _release(self, event: e.LateEnd) -> None:
        """An abandoned worker is gone: if its run is over and closed, nothing needs it any more."""
        if event.run in self._leaving:
            self.forget(event.run)

    def _keep(self, name: str) -> None:
        promise = self._promises.pop(name, None)
        if promise is not None:
            promise.keep()

    # -- reading

    def promise(self, target: str) -> Promise:
        """A promise that a run, batch or call is over; kept already if it is.

        Raises NotFound for an id that nothing here has.
        """
        with self.lock:
            # What is over but not recorded yet is still a promise (law 15 record-first).
            pending = target in self._promises or target in self._recording
            if not pending and is_over(self.state, target):
                over = Promise(self._promise_lock)
                over.keep()
                return over
            return self._promises.setdefault(target, Promise(self._promise_lock))

    def is_told(self, call: CallState) -> bool:
        """Whether a call is settled and its ending is recorded."""
        with self.lock:
            return call.settled is not None and call.id not in self._recording

    def unparked(self, call: str) -> Promise:
        """A promise that a parked body may go on; ask for it before telling `ParkEnded`."""
        with self.lock:
            self._unparking.add(call)
            return self._promises.setdefault(f"{call}#unparked", Promise(self._promise_lock))

    def calls_of(self, target: str) -> list[CallState]:
        """The calls of a run or batch, or the one call. Raises NotFound for an unknown id."""
        with self.lock:
            return calls_of(self.state, target)

    def result(self, call: CallState) -> CallResult:
        """The answer of a settled call."""
        settled = call.settled
        assert settled is not None, f"{call.id} is not settled"
        return CallResult(settled, call.model_id, call.tool, call.arguments, call.earlier)

    def forget(self, run_id: str) -> None:
        """Drop a run that is over here; what its abandoned workers hold stays on the books."""
        forgetting.forget(self, run_id)

    def recover(self) -> list[str]:
        """Make the journal's orphans honest (law 16); returns the runs that were settled."""
        return settle_orphans(self.journal)


_ACT: dict[type, Callable[[Engine, Any], None]] = {
    e.CallGranted: Engine._start,
    e.AskSent: Engine._ask,
    e.KillSent: Engine._kill,
    e.CallSettled: Engine._settle,
    e.LateEnd: Engine._release,
    e.CallUnparked: Engine._unpark,
    e.BatchClosed: lambda engine, event: engine._keep(event.batch),
    e.RunEnded: lambda engine, event: engine._keep(event.run),
    e.RunInterrupted: Engine._interrupted,
    e.ApprovalAsked: lambda engine, event: engine.on_question(event),
    e.ApprovalAnswered: lambda engine, event: engine.on_question(event),
}
