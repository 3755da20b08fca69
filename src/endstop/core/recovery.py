"""Recovery: what a journal says of a run whose driver is gone (law 16 survives-restart).

Pure: from the recorded events of a run to the events that make it honest again. Nothing is run
again here (law 10 no-blind-retry) and nothing is guessed. A call that may have begun is *lost*,
unless a further attempt does no harm or its tool can be asked; what had not begun stays as it is.
Both can be resumed, and are never stored as a failure (law 15 record-first). A run that was
cancelled is not resumed: it ends here, whoever opens its journal.

When may a body have begun? An effectful or `once` call is recorded as granted before its body
begins, so without that record it did not begin. A read-only or idempotent call does not wait for
its record: it may have begun as soon as it was accepted. For a read-only one that changes nothing;
an idempotent one is *unknown*, and safe to run again with the same effect key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from endstop.core import events as e
from endstop.core.books import add_money
from endstop.core.settling import may_run_again, run_end, unstarted_outcome
from endstop.core.terms import REFERENCE, Effect, EffectClass, Money, Outcome, Reason

_WAITS = frozenset({EffectClass.EFFECTFUL, EffectClass.ONCE})


def waits_for_record(effect: EffectClass) -> bool:
    """Whether a body of this class may only begin once its grant is recorded (design §7)."""
    return effect in _WAITS


class Unfinished:
    """What the recorded events of one run leave open."""

    __slots__ = (
        "_attempts",
        "_batches",
        "_begun",
        "_cancelled",
        "_clean",
        "_closing",
        "_commits",
        "_declared",
        "_interrupted",
        "_left",
        "_spent",
        "_started",
        "_stopping",
        "ended",
        "open",
        "opened",
        "references",
        "run",
        "seq",
        "settled",
    )

    def __init__(self, run: str) -> None:
        self.run = run
        self.seq = 0
        self.ended = False
        self.open: dict[str, e.CallAccepted] = {}
        self.settled: dict[str, e.CallSettled] = {}
        self.opened: e.RunOpened | None = None
        self.references: dict[str, Any] = {}
        self._interrupted = False
        self._cancelled: Reason | None = None
        self._closing = False
        self._declared: Outcome | None = None
        self._batches: dict[str, Reason | None] = {}
        self._stopping: set[str] = set()
        self._begun: set[str] = set()
        self._started: set[str] = set()
        # Whether the last driver let go of the run itself, with nothing running.
        self._clean = False
        self._commits: dict[str, bool | None] = {}
        self._left: dict[str, Effect] = {}
        self._spent: dict[str, tuple[Money, ...]] = {}
        self._attempts: dict[str, int] = {}

    def read(self, events: Iterable[e.Event]) -> None:
        """Take in recorded events, in order."""
        for event in events:
            self.seq += 1
            self._interrupted = isinstance(event, e.RunInterrupted)
            match event:
                case e.RunOpened():
                    self.opened = event
                case e.RunCancelled():
                    self._cancelled = self._cancelled or event.reason
                case e.RunClosing():
                    self._closing = True
                    self._declared = self._declared or event.outcome
                case e.BatchOpened():
                    self._batches[event.batch] = None
                case e.BatchCancelled():
                    self._batches[event.batch] = self._batches[event.batch] or event.reason
                case e.BatchClosed():
                    del self._batches[event.batch]
                case e.StopRequested():
                    self._stopping.add(event.call)
                case e.CallRetried():
                    self._retried(event)
                case e.CallAccepted():
                    self.open[event.call] = event
                case e.Noted(kind=kind, call=str(call)) if kind == REFERENCE and call in self.open:
                    self.references[call] = event.body.get("reference")
                case e.CallGranted() | e.CallStarted():
                    self._begun.add(event.call)
                    if isinstance(event, e.CallStarted):
                        self._started.add(event.call)
                case e.RunInterrupted(clean=True):
                    # It was there to see that no worker had claimed what was only granted.
                    self._clean = True
                    self._begun &= self._started
                case e.RunResumed():
                    self._clean = False
                case e.CallSpent() if event.call in self.open:
                    before = self._spent.get(event.call, ())
                    self._spent[event.call] = add_money(before, event.money)
                case e.CommitBegan():
                    self._commits[event.call] = None
                case e.CommitEnded():
                    self._commits[event.call] = event.done
                case e.CallSettled():
                    assert event.call in self.open, (
                        f"{event.call} ends without having been accepted"
                    )
                    del self.open[event.call]
                    self.settled[event.call] = event
                case e.RunEnded():
                    self.ended = True
                case _:
                    pass

    def _retried(self, event: e.CallRetried) -> None:
        self._begun.discard(event.call)
        self._started.discard(event.call)
        if event.reason is not Reason.DRIVER_LOST:
            # What that attempt began is over; the next one begins something else.
            self.references.pop(event.call, None)
        self._left[event.call] = event.effect
        self._attempts[event.call] = event.attempt
        self._commits.pop(event.call, None)

    def may_have_begun(self, call: str) -> bool:
        """Whether the body of an open call may have begun."""
        effect = self.open[call].contract.effect
        return call in self._begun or (effect is EffectClass.IDEMPOTENT and not self._clean)

    @property
    def is_marked(self) -> bool:
        """Whether nothing is to be settled: it has ended, or is marked as interrupted already."""
        return self.ended or self._interrupted

    @property
    def begun(self) -> list[str]:
        """The open calls whose body may have begun, by what is recorded of them."""
        return [call for call in self.open if call in self._begun]

    def may_go_on(self, call: str) -> bool:
        """Whether an open call may be resumed: it has not begun, or a further attempt is harmless.

        Never one that was being stopped, and nothing of what was cancelled (law 10).
        """
        accepted = self.open[call]
        if self._cancelled or self._batches[accepted.batch] or call in self._stopping:
            return False
        contract = accepted.contract
        if call not in self._begun or contract.reconciles or may_run_again(contract):
            return True
        return self.may_reattach(call)

    def may_reattach(self, call: str) -> bool:
        """Whether a body can go on with what an open call began: that repeats nothing (law 10)."""
        return self.open[call].contract.reattaches and call in self.references

    def closing(self) -> list[e.Event]:
        """The events that settle what cannot be resumed, and mark the run as interrupted.

        A run that was cancelled ends with them, as does one that was closed and has nothing open.
        """
        if self.is_marked:
            # Marked already, and nobody has driven it since: whoever opens it adds nothing.
            return []
        lost = [call for call in self.open if not self.may_go_on(call)]
        found = self.losing(lost)
        if self._cancelled or (self._closing and len(lost) == len(self.open)):
            found += [e.BatchClosed(run=self.run, batch=batch) for batch in self._batches]
            return [*found, run_end(self.run, self._declared, self._cancelled)]
        return [*found, e.RunInterrupted(run=self.run, clean=self._clean)]

    def losing(self, calls: Iterable[str]) -> list[e.Event]:
        """The endings of open calls that nobody will take up again."""
        return [self._ending(call) for call in calls]

    def _ending(self, call: str) -> e.CallSettled:
        outcome, reason = Outcome.LOST, Reason.DRIVER_LOST
        cancelled = self._cancelled or self._batches[self.open[call].batch]
        if cancelled and not self.may_have_begun(call) and call not in self._attempts:
            # Nobody began it, and that is known.
            outcome, reason = unstarted_outcome(cancelled), cancelled
        return e.CallSettled(
            run=self.run,
            call=call,
            outcome=outcome,
            reason=reason,
            effect=self._effect(call),
            spent=self._spent.get(call, ()),
            retried=self._attempts.get(call, 0),
        )

    def _effect(self, call: str) -> Effect:
        effect = self.open[call].contract.effect
        if self._commits.get(call):
            return Effect.DONE
        if effect is EffectClass.READ_ONLY:
            return Effect.NONE
        # A commit point is not waited for on disk: without its record it may still have passed.
        if self.may_have_begun(call):
            return Effect.UNKNOWN
        return self._left.get(call, Effect.NONE)
