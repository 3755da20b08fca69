"""What must be true of the events of a run, read as a story. Public test tools; only reads.

A story is everything that a runtime said, of one run or of several, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from endstop.core import events as e
from endstop.core.rules import RULES
from endstop.core.state import worst
from endstop.core.terms import (
    REFERENCE,
    Effect,
    EffectClass,
    Outcome,
    Phase,
    Reason,
)
from endstop.testing.again_laws import AgainLaws
from endstop.testing.ending_laws import CallStory, after_start, not_again, without_start
from endstop.testing.human_laws import check_questions
from endstop.testing.run_laws import RunLaws
from endstop.testing.state_laws import conflict


class _Story:
    """Reads events one by one and notes every law that they break."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.calls: dict[str, CallStory] = {}
        self.sizes: dict[str, int] = {}
        self.of_batch: dict[str, list[str]] = {}
        self.closed: set[str] = set()
        self.parents: dict[str, str | None] = {}
        self.ended: dict[str, Outcome] = {}
        self.cancelled: dict[str, Reason] = {}
        self.runs = RunLaws(self.wrong)
        self.again = AgainLaws(self.wrong)

    def read(self, event: e.Event) -> None:
        self.runs.read(event)
        self.again.read(event)
        match event:
            case (
                e.RunOpened()
                | e.RunCancelled()
                | e.RunClosing()
                | e.RunSuspending()
                | e.RunInterrupted()
                | e.RunResumed()
                | e.RunEnded()
                | e.Noted()
                | e.RuleMade()
                | e.RuleRevoked()
                | e.BatchOpened()
                | e.BatchCancelled()
                | e.BatchClosed()
            ):
                self._run_event(event)
            case e.CallAccepted():
                self._accepted(event)
            case _:
                self._call_event(event)

    def _run_event(self, event: e.RunEvent) -> None:
        if not isinstance(event, e.RunOpened) and event.run not in self.parents:
            self.wrong.append(f"law 3 one-ending: {type(event).__name__} of unknown {event.run}")
        match event:
            case e.RunOpened():
                if event.run in self.parents:
                    self.wrong.append(f"law 2 right-target: {event.run} was opened twice")
                self.parents[event.run] = event.parent_call
            case e.RunCancelled():
                if event.run in self.ended:
                    self.wrong.append(f"law 3 one-ending: {event.run} was cancelled after its end")
                first = self.cancelled.setdefault(event.run, event.reason)
                if event.reason is not first:
                    self.wrong.append(f"law 2 right-target: {event.run} changed its cancel reason")
            case e.BatchOpened():
                if event.batch in self.sizes:
                    self.wrong.append(f"law 2 right-target: {event.batch} was opened twice")
                self.sizes[event.batch] = event.size
                self.of_batch[event.batch] = []
            case e.BatchCancelled():
                if event.batch in self.closed:
                    self.wrong.append(f"law 3 one-ending: {event.batch} was cancelled when closed")
                self.cancelled.setdefault(event.batch, event.reason)
            case e.BatchClosed():
                self._batch_closed(event)
            case e.RunEnded():
                self._run_ended(event)
            case e.RunSuspending():
                self._let_go(event.run)
            case e.RunInterrupted():
                self._interrupted(event)
            case e.RunResumed():
                if event.run in self.ended or event.run in self.cancelled:
                    self.wrong.append(f"law 3 one-ending: {event.run} was resumed after its end")
            case e.Noted(kind=kind, call=str(call)) if kind == REFERENCE and call in self.calls:
                self.calls[call].reference = True
            case e.RunClosing() | e.Noted() | e.RuleMade() | e.RuleRevoked():
                pass

    def _interrupted(self, event: e.RunInterrupted) -> None:
        """An idempotent body does not wait for its record: it may have begun without one.

        Unless its driver let go of the run itself: then nothing runs, and what did not start never
        has.
        """
        if event.clean:
            self._let_go(event.run)
        for call in self.calls.values():
            if call.accepted.run != event.run or call.ending is not None:
                continue
            if event.clean:
                if call.starts:
                    self.wrong.append(f"law 15 record-first: {event.run} was let go as a call ran")
            elif call.accepted.contract.effect is EffectClass.IDEMPOTENT:
                call.left = worst(call.left, Effect.UNKNOWN)

    def _let_go(self, run: str) -> None:
        """What was granted and not claimed stands in line again."""
        for call in self.calls.values():
            if call.accepted.run == run and call.phase is Phase.GRANTED:
                call.phase, call.grants = Phase.QUEUED, 0

    def _batch_closed(self, event: e.BatchClosed) -> None:
        if event.batch in self.closed:
            self.wrong.append(f"law 3 one-ending: {event.batch} closed twice")
        self.closed.add(event.batch)
        members = self.of_batch.get(event.batch, [])
        still_open = [c for c in members if self.calls[c].ending is None]
        if still_open or len(members) != self.sizes.get(event.batch):
            self.wrong.append(
                f"law 4 one-answer: {event.batch} closed before {still_open or 'all'}"
            )

    def _run_ended(self, event: e.RunEnded) -> None:
        if event.run in self.ended:
            self.wrong.append(f"law 3 one-ending: {event.run} ended twice")
        self.ended[event.run] = event.outcome
        mine = [b for b in self.sizes if b.partition("/")[0] == event.run]
        if any(batch not in self.closed for batch in mine):
            self.wrong.append(f"law 4 one-answer: {event.run} ended with a batch open")

    def _accepted(self, event: e.CallAccepted) -> None:
        if event.call in self.calls:
            self.wrong.append(f"law 4 one-answer: {event.call} was accepted twice")
        members = self.of_batch.setdefault(event.batch, [])
        if event.index != len(members):
            self.wrong.append(f"law 4 one-answer: {event.call} is out of request order")
        members.append(event.call)
        self.calls[event.call] = CallStory(event)

    def _call_event(self, event: e.CallEvent) -> None:
        call = self.calls.get(event.call)
        name = type(event).__name__
        if call is None:
            self.wrong.append(f"law 4 one-answer: {name} of {event.call}, which was not accepted")
            return
        to = RULES.get((call.phase, type(event)))
        if to is None:
            law = "law 3 one-ending" if call.ending is not None else "law 1 one-door"
            self.wrong.append(f"{law}: {event.call} is {call.phase} and took {name}")
        else:
            call.phase = to
        match event:
            case e.CallGranted() | e.CallStarted():
                self._towards_body(call, event)
            case e.CallRetried():
                self._retried(call, event)
            case e.CallReconciled():
                call.reconciled = event.done
            case e.ApprovalAsked():
                call.question, call.claims = event.digest, event.claims
            case e.ApprovalAnswered():
                if call.question != event.digest:
                    self.wrong.append(f"law 13 one-approval: {event.call} got a stray answer")
                call.question = None
            case e.CallQueued():
                if call.question is not None:
                    self.wrong.append(f"law 13 one-approval: {event.call} queued unanswered")
                if event.claims is not None:
                    call.claims = event.claims
            case e.CallSettled():
                self._settled(call, event)
            case e.LateEnd():
                self._late_end(call, event)
            case _:
                self._during(call, event)

    def _during(self, call: CallStory, event: e.CallEvent) -> None:
        match event:
            case e.CommitBegan():
                call.in_commit = True
                if call.stops:
                    self.wrong.append(f"law 1 one-door: {event.call} committed after a stop")
            case e.CommitEnded():
                call.in_commit, call.commit = False, event.done
            case e.CallSpent():
                money = event.money
                call.spent[money.currency] = (
                    call.spent.get(money.currency, Decimal(0)) + money.amount
                )
                if event.late != (call.ending is not None):
                    self.wrong.append(f"law 20 paid-once: {event.call} spent, late={event.late}")
            case e.StopRequested():
                call.stops.append(event)
                if len(call.stops) > 1:
                    self.wrong.append(f"law 2 right-target: {event.call} was stopped twice")
            case e.AskSent():
                call.asked += 1
                if call.asked > 1 or call.kills:
                    self.wrong.append(f"law 6 bounded-stop: {event.call} was asked again")
            case e.KillSent():
                call.kills += 1
                if call.kills > 1:
                    self.wrong.append(f"law 6 bounded-stop: {event.call} was killed twice")
                if not call.accepted.contract.killable:
                    self.wrong.append(f"law 6 bounded-stop: {event.call} cannot be killed and was")
            case _:
                pass

    def _towards_body(self, call: CallStory, event: e.CallGranted | e.CallStarted) -> None:
        name = type(event).__name__
        run, batch = event.run, call.accepted.batch
        if run in self.cancelled or batch in self.cancelled:
            self.wrong.append(f"law 1 one-door: {event.call} took {name} after its cancel")
        if isinstance(event, e.CallStarted):
            call.starts += 1
            if call.starts > 1 or not call.grants:
                self.wrong.append(
                    f"law 1 one-door: {event.call} began {call.starts} times, {call.grants} grants"
                )
            return
        call.grants += 1
        if call.grants > 1:
            self.wrong.append(f"law 1 one-door: {event.call} was granted twice")
        for earlier_id in self.of_batch[batch][: call.accepted.index]:
            earlier = self.calls[earlier_id]
            waits = earlier.ending is None and not (earlier.grants or earlier.attempts)
            if waits and any(conflict(a, b) for a in earlier.claims for b in call.claims):
                self.wrong.append(
                    f"law 4 one-answer: {event.call} was granted before {earlier_id}, "
                    "which it conflicts with"
                )

    def _retried(self, call: CallStory, event: e.CallRetried) -> None:
        """Law 10: who may be tried again, how often, and under one budget."""
        contract, batch = call.accepted.contract, call.accepted.batch
        call.attempts += 1
        told = call.reconciled is False
        harmless = contract.effect in (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT) or told
        # Gone on with, not done again: the task is elsewhere, and its reference is noted.
        harmless |= contract.reattaches and call.reference and event.reason is Reason.DRIVER_LOST
        known = event.reason is Reason.TOOL_ERROR and event.effect is Effect.NONE
        if not (harmless or known):
            self.wrong.append(f"law 10 no-blind-retry: {event.call} left {event.effect} behind")
        if event.attempt != call.attempts:
            self.wrong.append(f"law 10 no-blind-retry: {event.call} counts {event.attempt}")
        lost = event.reason is Reason.DRIVER_LOST
        if not lost and call.attempts > contract.retries:
            self.wrong.append(f"law 10 no-blind-retry: {event.call} is tried too often")
        if call.stops or event.run in self.cancelled or batch in self.cancelled:
            self.wrong.append(f"law 10 no-blind-retry: {event.call} was stopped and tried again")
        if contract.deadline_s is not None and event.used_s >= contract.deadline_s:
            self.wrong.append(f"law 10 no-blind-retry: {event.call} has no time left")
        if (
            contract.effect is EffectClass.IDEMPOTENT
            and event.effect is Effect.NONE
            and not (told or contract.commits)
        ):
            self.wrong.append(f"law 5 honest-effect: {event.call} says its attempt left nothing")
        call.left = worst(call.left, event.effect)
        call.grants = call.starts = 0
        call.commit, call.in_commit = None, False
        call.reconciled = None

    def _settled(self, call: CallStory, event: e.CallSettled) -> None:
        if call.ending is not None:
            self.wrong.append(f"law 3 one-ending: {event.call} was settled twice")
            return
        call.ending = event
        if event.retried != call.attempts:
            self.wrong.append(f"law 10 no-blind-retry: {event.call} ends with {event.retried}")
        if call.reconciled:
            if (event.outcome, event.effect) != (Outcome.SUCCEEDED, Effect.DONE):
                self.wrong.append(f"law 5 honest-effect: {event.call} was done, says its tool")
        elif call.starts:
            after_start(self.wrong, call, event)
        elif call.attempts or call.left is not Effect.NONE:
            not_again(self.wrong, call, event)
        else:
            without_start(self.wrong, call, event)
        sums = {money.currency: money.amount for money in event.spent}
        if {c: a for c, a in sums.items() if a} != {c: a for c, a in call.spent.items() if a}:
            self.wrong.append(f"law 20 paid-once: {event.call} ends with {sums}, not {call.spent}")

    def _late_end(self, call: CallStory, event: e.LateEnd) -> None:
        call.late_ends += 1
        if call.ending is None or not call.ending.alive or call.late_ends > 1:
            self.wrong.append(f"law 9 on-the-books: {event.call} ended late, which it cannot")

    def close(self) -> None:
        """What must be there when nothing more will come, but of a run that was let go."""
        gone = self.runs.interrupted
        for call_id, call in self.calls.items():
            if call.ending is None and call.accepted.run not in gone:
                self.wrong.append(f"law 4 one-answer: {call_id} has no ending")
        for batch in self.sizes:
            if batch not in self.closed and batch.partition("/")[0] not in gone:
                self.wrong.append(f"law 4 one-answer: {batch} was not closed")
        for run in self.cancelled:
            if run in self.parents and run not in self.ended:
                self.wrong.append(f"law 3 one-ending: {run} was cancelled and has no ending")


def check_story(events: Iterable[e.Event], *, complete: bool = True) -> list[str]:
    """Every law that a story breaks, each complaint beginning with the law's name.

    With `complete` the story must also be over: every call answered, every batch closed, every
    cancelled run ended. Without it, a beginning of a story is enough (a crash may cut it anywhere).
    """
    story, told = _Story(), list(events)
    for event in told:
        story.read(event)
    if complete:
        story.close()
    return story.wrong + check_questions(told)
