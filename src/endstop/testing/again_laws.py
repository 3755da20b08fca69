"""What must be true where a call is made again of which it is not known what it did (law 10).

Public test tools; only reads.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.core.again import key_of
from endstop.core.terms import Earlier, Effect, EffectClass, Reason

_HARMLESS = frozenset({EffectClass.READ_ONLY, EffectClass.IDEMPOTENT})


class AgainLaws:
    """Reads events one by one; keeps of every run which of its calls are unknown, by what they
    asked for."""

    def __init__(self, wrong: list[str]) -> None:
        self.wrong = wrong
        self.unknown: dict[str, dict[str, Earlier]] = {}
        self.asked: dict[str, e.CallAccepted] = {}
        self.keys: dict[str, str] = {}
        self.alive: set[str] = set()

    def read(self, event: e.Event) -> None:
        """Read one more event."""
        match event:
            case e.RunOpened():
                self.unknown[event.run] = {one.key: one for one in event.inherited}
            case e.CallAccepted():
                self.asked[event.call] = event
                self.keys[event.call] = key_of(event.tool, event.arguments)
            case e.ApprovalAsked() | e.CallQueued() if event.arguments is not None:
                if event.call in self.asked:
                    tool = self.asked[event.call].tool
                    self.keys[event.call] = key_of(tool, event.arguments)
            case e.CallGranted() if event.call in self.asked:
                self._granted(event)
            case e.CallSettled() if event.call in self.asked:
                self._settled(event)
            case e.LateEnd():
                self.alive.discard(event.call)
            case e.RunInterrupted():
                # What had hung died with its driver, or belongs to nobody here any more.
                mine = f"{event.run}/"
                self.alive = {call for call in self.alive if not call.startswith(mine)}
            case _:
                pass

    def _expected(self, run: str, call: str) -> Earlier | None:
        if self.asked[call].contract.effect in _HARMLESS:
            return None
        return self.unknown.get(run, {}).get(self.keys[call])

    def _granted(self, event: e.CallGranted) -> None:
        expected = self._expected(event.run, event.call)
        if event.earlier != expected:
            told = None if event.earlier is None else event.earlier.call
            known = None if expected is None else expected.call
            self.wrong.append(
                f"law 10 no-blind-retry: {event.call} was told of {told}, what is known is {known}"
            )
        if expected is not None and expected.call in self.alive:
            self.wrong.append(
                f"law 10 no-blind-retry: {event.call} was granted while {expected.call} runs"
            )

    def _settled(self, event: e.CallSettled) -> None:
        if event.reason is Reason.EARLIER_ATTEMPT_ALIVE:
            expected = self._expected(event.run, event.call)
            # One of a run that this story does not tell of may be alive for all that is known.
            told = expected is not None and expected.call in self.asked
            if expected is None or (told and expected.call not in self.alive):
                self.wrong.append(
                    f"law 10 no-blind-retry: {event.call} was refused, and no earlier one runs"
                )
        if event.alive:
            self.alive.add(event.call)
        if event.alive or event.effect is Effect.UNKNOWN:
            mark = Earlier(
                key=self.keys[event.call],
                call=event.call,
                outcome=event.outcome,
                effect=event.effect,
            )
            self.unknown.setdefault(event.run, {})[mark.key] = mark
