"""The demo's narrator: recorded events become short lines. It watches and decides nothing.

Events may come from any thread; the runtime shows them one at a time and in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from endstop.core import events as e
from endstop.core.terms import Effect, Isolation, Outcome, Phase, StoppedBy, Verdict
from endstop.run.results import CallView


class Mood(StrEnum):
    """What kind of news a line is; whoever draws it picks a colour by it."""

    TITLE = "title"
    SAY = "say"
    BEGIN = "begin"
    WAIT = "wait"
    WORK = "work"
    MONEY = "money"
    HUMAN = "human"
    STOP = "stop"
    GOOD = "good"
    NEVER = "never"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the story: seconds since it began, whom it is about, and what happened."""

    at_s: float
    who: str
    text: str
    mood: Mood


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A call that is open at the moment of looking."""

    call_id: str
    who: str
    state: str
    ran_s: float
    waits: str


Say = Callable[[Line], None]

SUBJECTS = ("prompt", "path", "directory")
WHERE = {Isolation.PROCESS: " in a process of its own", Isolation.THREAD: " on a thread"}
STOPPED = {
    StoppedBy.ASKED: "stopped when asked",
    StoppedBy.KILLED: "killed with its whole process tree",
    StoppedBy.ABANDONED: "could not be stopped: abandoned, and kept on the books",
}


def label(tool: str, arguments: dict[str, Any] | None) -> str:
    """A call in two or three words."""
    found = next((arguments[name] for name in SUBJECTS if arguments and name in arguments), "")
    return f"{tool} {found}".strip()


class Narrator:
    """Hears every event, keeps them all, and says some of them."""

    def __init__(self, say: Say, hide: str) -> None:
        self.events: list[e.Event] = []
        self.labels: dict[str, str] = {}
        self.isolation: dict[str, Isolation] = {}
        self._say = say
        self._hide = hide
        self._began = time.monotonic()
        # Lines come from several threads; they are said in the order of their times.
        self._saying = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self._began

    def say(self, text: str, *, who: str = "", mood: Mood = Mood.SAY) -> None:
        """Say a line of one's own."""
        with self._saying:
            self._say(Line(at_s=self.elapsed_s, who=who, text=self._short(text), mood=mood))

    def introduce(self, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        """Name a call that another program accepted: the event with its name was not heard here."""
        self.labels[call_id] = label(tool, arguments)

    def show(self, view: CallView) -> Open:
        """An open call for a live view."""
        waits = "a yes from a human" if view.waits_for == "approval" else view.waits_for
        return Open(
            call_id=view.call_id,
            who=self.labels.get(view.call_id, view.tool),
            state="abandoned" if view.abandoned else view.phase.replace("_", " "),
            ran_s=view.ran_s,
            waits=f"waits for {self._short(waits)}" if waits else "",
        )

    def _short(self, text: str) -> str:
        return text.replace(f"{self._hide}/", "").replace(self._hide, ".")

    def over(self) -> int:
        """How many batches were seen to their end."""
        return sum(isinstance(event, e.BatchClosed) for event in self.events)

    def say_waits(self, views: list[CallView]) -> None:
        """Say of each call that has not begun what it waits for."""
        for view in views:
            if view.phase == Phase.QUEUED and view.waits_for:
                who = self.labels.get(view.call_id, view.tool)
                self.say(f"waits for {view.waits_for}", who=who, mood=Mood.WAIT)

    def hear(self, event: object) -> None:
        """Take one recorded event; what else an observer is shown is not for this story."""
        if not isinstance(event, e.Event):
            return
        self.events.append(event)
        if isinstance(event, e.CallAccepted):
            self.labels[event.call] = label(event.tool, event.arguments)
            self.isolation[event.call] = event.contract.isolation
        words = self._words(event)
        if words is not None:
            call: str = getattr(event, "call", None) or ""
            self.say(words[0], who=self.labels.get(call, call), mood=words[1])

    def started(self) -> set[str]:
        """The calls whose body began."""
        return {event.call for event in self.events if isinstance(event, e.CallStarted)}

    def _words(self, event: e.Event) -> tuple[str, Mood] | None:
        match event:
            case e.CallStarted():
                isolation = self.isolation.get(event.call)
                return f"starts{WHERE.get(isolation, '') if isolation else ''}", Mood.BEGIN
            case e.ApprovalAsked():
                return "needs a yes from a human, and holds nothing meanwhile", Mood.HUMAN
            case e.ApprovalAnswered():
                verdict = "yes" if event.verdict is Verdict.APPROVE else str(event.verdict)
                return f"{event.by} says {verdict}", Mood.HUMAN
            case e.CallSpent():
                return f"charged {event.money.amount} {event.money.currency}", Mood.MONEY
            case e.CallProgressed():
                return event.message, Mood.WORK
            case e.RunCancelled():
                return f"the run is cancelled ({event.reason})", Mood.STOP
            case e.AskSent():
                return f"is asked to stop, within {event.grace_s:g} s", Mood.STOP
            case e.KillSent():
                return "did not stop: the kill goes to its whole tree", Mood.STOP
            case e.CallSettled():
                return _ending(event)
            case e.LateEnd():
                return f"its worker has ended at last ({event.how}); the answer stands", Mood.WORK
            case _:
                return None


def _ending(event: e.CallSettled) -> tuple[str, Mood]:
    if event.outcome is Outcome.SUCCEEDED:
        return f"done after {event.ran_s:.2f} s", Mood.GOOD
    if event.stopped_by is not None:
        effect = "" if event.effect is Effect.NONE else f", effect {event.effect}"
        return f"{STOPPED[event.stopped_by]}{effect}", Mood.BAD
    if event.effect is Effect.NONE:
        return f"never started ({event.reason})", Mood.NEVER
    return f"{event.outcome} ({event.reason}), effect {event.effect}", Mood.BAD
