"""Recovery: what a journal says of a run whose driver is gone (law 16 survives-restart).

Pure: from the recorded events of a run to the events that make it honest again. Nothing is run
again (law 10 no-blind-retry) and nothing is guessed. A call that may have begun is *lost*; what had
not begun stays as it is, so that it can be resumed, and is never stored as a failure (law 15
record-first).

When may a body have begun? An effectful or `once` call is recorded as granted before its body
begins, so without that record it did not begin. A read-only or idempotent call does not wait for
its record: it may have begun as soon as it was accepted. For a read-only one that changes nothing;
an idempotent one is *unknown*, and safe to run again with the same effect key.
"""

from __future__ import annotations

from collections.abc import Iterable

from endstop.core import events as e
from endstop.core.terms import Contract, Effect, EffectClass, Outcome, Reason

_WAITS = frozenset({EffectClass.EFFECTFUL, EffectClass.ONCE})


def waits_for_record(effect: EffectClass) -> bool:
    """Whether a body of this class may only begin once its grant is recorded (design §7)."""
    return effect in _WAITS


class Unfinished:
    """What the recorded events of one run leave open."""

    __slots__ = ("_begun", "_commits", "_interrupted", "ended", "open", "run", "seq", "settled")

    def __init__(self, run: str) -> None:
        self.run = run
        self.seq = 0
        self.ended = False
        self.open: dict[str, e.CallAccepted] = {}
        self.settled: dict[str, e.CallSettled] = {}
        self._interrupted = False
        self._begun: set[str] = set()
        self._commits: dict[str, bool | None] = {}

    def read(self, events: Iterable[e.Event]) -> None:
        """Take in recorded events, in order."""
        for event in events:
            self.seq += 1
            self._interrupted = isinstance(event, e.RunInterrupted)
            match event:
                case e.CallAccepted():
                    self.open[event.call] = event
                case e.CallGranted() | e.CallStarted():
                    self._begun.add(event.call)
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

    def may_have_begun(self, call: str) -> bool:
        """Whether the body of an open call may have begun."""
        effect = self.open[call].contract.effect
        return call in self._begun or effect is EffectClass.IDEMPOTENT

    def closing(self) -> list[e.Event]:
        """The events that settle what may have begun and mark the run as interrupted."""
        if self.ended or self._interrupted:
            # Marked already, and nobody has driven it since: whoever opens it adds nothing.
            return []
        found: list[e.Event] = [
            e.CallSettled(
                run=self.run,
                call=call,
                outcome=Outcome.LOST,
                reason=Reason.DRIVER_LOST,
                effect=self._effect(call, accepted.contract),
            )
            for call, accepted in self.open.items()
            if self.may_have_begun(call)
        ]
        found.append(e.RunInterrupted(run=self.run))
        return found

    def _effect(self, call: str, contract: Contract) -> Effect:
        if self._commits.get(call):
            return Effect.DONE
        if contract.effect is EffectClass.READ_ONLY:
            return Effect.NONE
        # A commit point is not waited for on disk: without its record it may still have passed.
        return Effect.UNKNOWN
