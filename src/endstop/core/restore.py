"""Restoring: the recorded events of a run become part of a living state again (law 16).

Pure. Nothing here decides anything: settled calls are as they were recorded and never run again,
approvals are still pending with what is left of their time, what had not begun stands where it
stood. Nothing moves before the same step says `ResumeRun`, or `Cancel`.

Replaying the events one by one would not do: in the living state other runs hold slots and
resources, and a call that was granted long ago must not wait for them again.

Instants are recorded by the wall clock, and used only for differences; a clock that was set back
makes them 0, never negative (law 8 machine-time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from endstop.core import events as e
from endstop.core import pauses, remembered
from endstop.core.again import remember
from endstop.core.books import add_money
from endstop.core.deadlines import Meter
from endstop.core.state import BatchState, CallState, RunState, Stage, State
from endstop.core.terms import Commit, Effect, EffectClass, Phase

Stamped = tuple[float, e.Event]
"""An event and the wall time at which it was recorded."""


def restore(state: State, recorded: Iterable[Stamped], now: float, wall_now: float) -> RunState:
    """Put a run back into the state, from all its recorded events in order.

    What may have begun is restored as begun, without a worker: the same step must say what becomes
    of it. `seq` of the run is the number of events read.
    """
    replay = _Replay(state)
    for at, event in recorded:
        replay.read(at, event)
    assert replay.run is not None, "a run begins with its opening"
    assert replay.run.id not in state.runs, "a run is restored where it is not"
    state.runs[replay.run.id] = replay.run
    for batch in replay.run.batches:
        replay.finish(batch, now, wall_now)
    for at, rule in replay.rules.values():
        remembered.made(state, rule, now - max(0.0, wall_now - at))
    return replay.run


class _Replay:
    """What the events of one run say of its batches and calls."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.run: RunState | None = None
        self.at = 0.0
        self.calls: dict[str, CallState] = {}
        self.granted: set[str] = set()
        self.asked: dict[str, tuple[float, e.ApprovalAsked]] = {}
        self.meters: dict[str, Meter] = {}
        self.paused: set[str] = set()
        self.clean = False
        self.rules: dict[str, tuple[float, e.RuleMade]] = {}

    def read(self, at: float, event: e.Event) -> None:
        self.at = max(self.at, at)
        read = _READ.get(type(event))
        if read is not None:
            read(self, event)
        assert self.run is not None, "a run begins with its opening"
        self.run.seq += 1

    # -- the run and its batches

    def _opened(self, event: e.RunOpened) -> None:
        parent = self.state.calls.get(event.parent_call) if event.parent_call else None
        self.run = RunState(event, parent)
        if parent is not None:
            parent.run.below += 1
        if parent is not None and self.run.attached:
            parent.children = [*(parent.children or ()), self.run]

    def _cancelled(self, event: e.RunCancelled) -> None:
        assert self.run is not None
        self.run.cancelled = self.run.cancelled or event.reason
        self.run.mode = event.mode

    def _closing(self, event: e.RunClosing) -> None:
        assert self.run is not None
        self.run.closing = True
        self.run.declared = self.run.declared or event.outcome

    def _noted(self, event: e.Noted) -> None:
        assert self.run is not None
        if event.spent is not None:
            self.run.paid = add_money(self.run.paid, event.spent)
            self.run.budget.spend(event.spent)

    def _interrupted(self, event: e.RunInterrupted) -> None:
        self.clean = event.clean
        if not event.clean:
            return
        for call in self.calls.values():
            if call.phase is Phase.GRANTED:
                # No worker had claimed it, and none will: it stands in line again.
                call.phase, call.stage = Phase.QUEUED, Stage.ORDER
                self.meters.pop(call.id, None)
                if call.retried is None:
                    _uncount(call)

    def _resumed(self, event: e.RunResumed) -> None:
        self.clean = False

    def _ended(self, event: e.RunEnded) -> None:
        assert self.run is not None
        self.run.ended = True

    def _rule_made(self, event: e.RuleMade) -> None:
        self.rules[event.rule] = (self.at, event)

    def _rule_revoked(self, event: e.RuleRevoked) -> None:
        del self.rules[event.rule]

    def _batch_opened(self, event: e.BatchOpened) -> None:
        assert self.run is not None
        self.run.batches.append(BatchState(event, self.run, self.at))
        self.run.open_batches += 1

    def _batch(self, batch: str) -> BatchState:
        assert self.run is not None
        return self.run.batches[int(batch.rpartition("/")[2])]

    def _batch_cancelled(self, event: e.BatchCancelled) -> None:
        batch = self._batch(event.batch)
        batch.cancelled, batch.mode = batch.cancelled or event.reason, event.mode

    def _batch_closed(self, event: e.BatchClosed) -> None:
        batch = self._batch(event.batch)
        batch.closed = True
        batch.run.open_batches -= 1

    # -- calls

    def _accepted(self, event: e.CallAccepted) -> None:
        batch = self._batch(event.batch)
        call = CallState(event, batch, self.at)
        batch.calls.append(call)
        self.calls[call.id] = call

    def _rewritten(self, call: CallState, event: e.ApprovalAsked | e.CallQueued) -> None:
        if event.arguments is not None:
            call.arguments, call.cost = event.arguments, event.cost
            call.claims = event.claims or ()

    def _approval_asked(self, event: e.ApprovalAsked) -> None:
        call = self.calls[event.call]
        self._rewritten(call, event)
        call.phase = Phase.AWAITING_APPROVAL
        call.approval = event.digest
        call.phase_at = self.at
        self.asked[call.id] = (self.at, event)
        self._human_began(call)

    def _approval_answered(self, event: e.ApprovalAnswered) -> None:
        call = self.calls[event.call]
        call.phase, call.approval = Phase.PREPARING, None
        self._human_ended(call)

    def _queued(self, event: e.CallQueued) -> None:
        call = self.calls[event.call]
        self._rewritten(call, event)
        call.phase, call.stage = Phase.QUEUED, Stage.ORDER

    def _granted(self, event: e.CallGranted) -> None:
        call = self.calls[event.call]
        call.phase, call.stage = Phase.GRANTED, Stage.THROUGH
        call.earlier = event.earlier
        if call.retried is None:
            call.reserved = event.reserved
            call.run.budget.reserve(call.tool, event.reserved)
        self._meter(call)

    def _meter(self, call: CallState) -> None:
        used_s = call.retried.used_s if call.retried is not None else 0.0
        self.meters[call.id] = Meter(self.at - used_s)

    def _started(self, event: e.CallStarted) -> None:
        call = self.calls[event.call]
        call.phase, call.started = Phase.RUNNING, True
        self._meter(call)

    def _retried(self, event: e.CallRetried) -> None:
        call = self.calls[event.call]
        self._human_ended(call)
        call.phase, call.stage = Phase.QUEUED, Stage.ORDER
        call.retried, call.left = event, event.effect
        call.started = False
        call.commit = Commit.NONE
        self.meters.pop(call.id, None)

    def _stopping(self, event: e.StopRequested) -> None:
        call = self.calls[event.call]
        call.phase, call.stop_reason = Phase.STOPPING, event.reason

    def _commit_began(self, event: e.CommitBegan) -> None:
        self.calls[event.call].commit = Commit.INSIDE

    def _commit_ended(self, event: e.CommitEnded) -> None:
        self.calls[event.call].commit = Commit.DONE if event.done else Commit.FAILED

    def _spent(self, event: e.CallSpent) -> None:
        call = self.calls[event.call]
        if call.assumed is not None:
            call.run.budget.unspend(call.assumed)
            call.assumed = None
        call.spent = add_money(call.spent, event.money)
        call.run.budget.spend(event.money)

    def _pause(self, event: e.CallPaused | e.QuestionAsked) -> None:
        call = self.calls[event.call]
        call.humans += 1
        self._human_began(call)

    def _resume(self, event: e.CallResumed | e.QuestionAnswered | e.QuestionWithdrawn) -> None:
        call = self.calls[event.call]
        call.humans -= 1
        if not call.humans:
            self._human_ended(call)

    def _human_began(self, call: CallState) -> None:
        if call.id not in self.paused:
            self.paused.add(call.id)
            call.batch.meter.pause(self.at)
            if call.id in self.meters:
                self.meters[call.id].pause(self.at)

    def _human_ended(self, call: CallState) -> None:
        if call.id in self.paused:
            self.paused.remove(call.id)
            call.batch.meter.resume(self.at)
            if call.id in self.meters:
                self.meters[call.id].resume(self.at)

    def _settled(self, event: e.CallSettled) -> None:
        call = self.calls[event.call]
        self._human_ended(call)
        call.phase, call.settled, call.approval = Phase.SETTLED, event, None
        remember(call, event)
        # Its worker died with the driver, wedged or not (a host does not outlive its runtime).
        call.alive = False
        budget = call.run.budget
        began = call.started or call.retried is not None
        if call.stage is Stage.THROUGH and not began:
            if event.effect is Effect.NONE:
                budget.uncount(call.tool)
            else:
                call.started = True
        if call.reserved is not None:
            budget.release(call.reserved)
            if event.effect is not Effect.NONE and not call.spent:
                budget.spend(call.reserved)
                call.assumed = call.reserved
            call.reserved = None

    # -- afterwards

    def finish(self, batch: BatchState, now: float, wall_now: float) -> None:
        """Give one batch the present time, and its place in the tables of the state."""
        assert len(batch.calls) == batch.size, "a batch is recorded with all its calls"
        unsettled = [call for call in batch.calls if call.phase is not Phase.SETTLED]
        batch.unsettled = len(unsettled)
        batch.unprepared = sum(call.stage is Stage.OUTSIDE for call in unsettled)
        # Nothing moves before the run is resumed.
        batch.horizon = batch.size
        batch.meter = Meter(now - batch.meter.ran_s(self.at))
        for call in batch.calls:
            self.state.calls[call.id] = call
            if call.phase is Phase.SETTLED:
                call.meter = Meter(now) if call.started else None
        for call in unsettled:
            self._go_on(call, now, wall_now)
        if batch.closed:
            return
        if not batch.unsettled:
            self.state.check_batches.append(batch)
        elif not batch.meter.paused and batch.cancelled is None:
            self.state.timers.set(batch, batch.meter.due_at(batch.deadline_s))

    def _go_on(self, call: CallState, now: float, wall_now: float) -> None:
        meter = self.meters.get(call.id)
        call.humans = 0
        if meter is not None:
            # Granted is as good as begun: nobody knows how far its worker came.
            call.started = True
            call.meter = Meter(now - meter.ran_s(self.at))
        idempotent = call.contract.effect is EffectClass.IDEMPOTENT
        if idempotent and call.left is Effect.NONE and not self.clean:
            # Such a body does not wait for its record: it may have begun without one.
            call.left = Effect.UNKNOWN
        if call.phase is not Phase.AWAITING_APPROVAL:
            call.phase_at = now
            return
        at, asked = self.asked[call.id]
        self.state.approvals[call.id] = asked
        waited_s = max(0.0, wall_now - at)
        call.phase_at = now - waited_s
        pauses.human_began(self.state, call.batch, now)
        expires_s = asked.expires_s
        self.state.timers.set(call, None if expires_s is None else call.phase_at + expires_s)


def _uncount(call: CallState) -> None:
    budget = call.run.budget
    budget.uncount(call.tool)
    if call.reserved is not None:
        budget.release(call.reserved)
        call.reserved = None


_READ: dict[type, Callable[[_Replay, Any], None]] = {
    e.RunOpened: _Replay._opened,
    e.RunCancelled: _Replay._cancelled,
    e.RunClosing: _Replay._closing,
    e.RuleMade: _Replay._rule_made,
    e.RuleRevoked: _Replay._rule_revoked,
    e.RunInterrupted: _Replay._interrupted,
    e.RunResumed: _Replay._resumed,
    e.RunEnded: _Replay._ended,
    e.Noted: _Replay._noted,
    e.BatchOpened: _Replay._batch_opened,
    e.BatchCancelled: _Replay._batch_cancelled,
    e.BatchClosed: _Replay._batch_closed,
    e.CallAccepted: _Replay._accepted,
    e.ApprovalAsked: _Replay._approval_asked,
    e.ApprovalAnswered: _Replay._approval_answered,
    e.CallQueued: _Replay._queued,
    e.CallGranted: _Replay._granted,
    e.CallStarted: _Replay._started,
    e.CallRetried: _Replay._retried,
    e.StopRequested: _Replay._stopping,
    e.CommitBegan: _Replay._commit_began,
    e.CommitEnded: _Replay._commit_ended,
    e.CallSpent: _Replay._spent,
    e.CallPaused: _Replay._pause,
    e.CallResumed: _Replay._resume,
    e.QuestionAsked: _Replay._pause,
    e.QuestionAnswered: _Replay._resume,
    e.QuestionWithdrawn: _Replay._resume,
    e.CallSettled: _Replay._settled,
}
