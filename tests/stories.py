"""Stories for tests of the core: short ways to say what is asked, and a state to say it to."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.state import CallState, State
from endstop.core.terms import Claim, Contract, How, Isolation, Limits, Mode, Money, Phase
from endstop.testing.laws import check_state, check_story

Kind = TypeVar("Kind")


def eur(amount: str) -> Money:
    """So many euros."""
    return Money(amount=Decimal(amount), currency="EUR")


PLAIN = Contract(deadline_s=20.0, grace_s=3.0, commit_s=5.0, kill_s=2.0, start_s=None)
CALM = Contract(deadline_s=None, grace_s=3.0, commit_s=5.0, kill_s=2.0, start_s=None)


def contract(base: Contract = CALM, **changed: Any) -> Contract:
    """The contract `base` with some of its fields changed."""
    names = Contract.__slots__
    return Contract(**{name: getattr(base, name) for name in names} | changed)


def asked(*claims: Claim, terms: Contract = CALM, **fields: Any) -> i.Asked:
    """One call of a batch."""
    known = {"model_id": "m", "tool": "t", "arguments": {}, "contract": terms, "claims": claims}
    return i.Asked(**known | fields)


def x(resource: str, wait_s: float | None = None) -> Claim:
    """An exclusive claim."""
    return Claim(resource=resource, wait_s=wait_s)


def s(resource: str, wait_s: float | None = None) -> Claim:
    """A shared claim."""
    return Claim(resource=resource, shared=True, wait_s=wait_s)


def begin(*calls: i.Asked, limits: Limits | None = None, **batch: Any) -> tuple[i.Input, ...]:
    """One run, one batch."""
    return (i.OpenRun(run="r", limits=limits), i.SubmitBatch(run="r", calls=calls, **batch))


class Story:
    """A state, what happened to it, and the time; every step is checked against the laws."""

    def __init__(self, slots: dict[Isolation, int | None] | None = None) -> None:
        self.state = State(slots)
        self.events: list[e.Event] = []
        self.now = 0.0

    def say(self, *inputs: i.Input) -> list[e.Event]:
        """Put inputs to the state; returns what followed."""
        found: list[e.Event] = []
        for said in inputs:
            found += step(self.state, said, self.now)
            wrong = check_state(self.state)
            assert not wrong, (said, wrong)
        self.events += found
        wrong = check_story(self.events, complete=False)
        assert not wrong, wrong
        return found

    def at(self, now: float) -> list[e.Event]:
        """Let time pass until `now`; everything that is due on the way happens when it is due."""
        found: list[e.Event] = []
        while (due := self.state.timers.next_due()) is not None and due <= now:
            self.now = due
            found += self.say(i.Tick())
        self.now = now
        return found

    def start(self, *calls: str) -> None:
        """Let workers claim these calls; their bodies begin."""
        for call in calls:
            self.say(i.Claimed(call=call))
            assert self.call(call).phase is Phase.RUNNING, f"{call} is {self.call(call).phase}"

    def end(self, *calls: str, how: How = How.RETURNED) -> None:
        """Let the bodies of these calls end."""
        for call in calls:
            self.say(i.BodyEnded(call=call, how=how))

    def cancel(self, target: str, mode: Mode = Mode.INTERRUPT) -> list[e.Event]:
        """Cancel a run, a batch or a call."""
        return self.say(i.Cancel(target=target, mode=mode))

    def call(self, call: str) -> CallState:
        """The state of a call."""
        return self.state.calls[call]

    def phases(self, run: str = "r") -> list[Phase]:
        """The phases of a run's calls in request order."""
        return [c.phase for b in self.state.runs[run].batches for c in b.calls]

    def ending(self, call: str) -> e.CallSettled:
        """The ending of a call."""
        settled = self.call(call).settled
        assert settled is not None, f"{call} is {self.call(call).phase}"
        return settled

    def told(self, kind: type[Kind]) -> list[Kind]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def over(self) -> None:
        """Nothing more will come: the whole story keeps the laws."""
        wrong = check_story(self.events)
        assert not wrong, wrong
