"""The command line's ear: what a model says, shown while it says it. Decides nothing.

On a terminal the reply that is under way stands below the calls, and what is over stays above them;
elsewhere a reply is a line. The last word is the answer, and is not shown twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from endstop.adapters.reply import read_reply
from endstop.agents.endings import Began, LoopEvent, Replied, Spoke, Voided
from endstop.cli import look
from endstop.cli.output import line
from endstop.core.events import Noted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

TAIL_CHARS = 4_000
TAIL_LINES = 6
LINE_CHARS = 400


class Ear(Protocol):
    """What the watcher tells of a model."""

    def heard(self, event: LoopEvent, after_s: float) -> None: ...
    def drawing(self) -> RenderableType | None: ...


class Deaf:
    """Shows nothing."""

    def heard(self, event: LoopEvent, after_s: float) -> None:
        """Nothing."""

    def drawing(self) -> None:
        """Nothing."""


class Plain:
    """One line for each reply that goes on, and for each that does not count."""

    def heard(self, event: LoopEvent, after_s: float) -> None:
        """Tell of a reply once it is whole."""
        match event:
            case Replied() if event.calls and event.text:
                said = look.words(event.text, LINE_CHARS)
                line(f"{after_s:9.2f} s  turn {event.turn}: {said}")
            case Voided():
                why = look.words(event.why, LINE_CHARS)
                line(f"{after_s:9.2f} s  turn {event.turn}: its reply does not count: {why}")
            case _:
                pass

    def drawing(self) -> None:
        """Nothing: lines are not drawn anew."""


class Live:
    """The reply that is under way, word by word."""

    def __init__(self, out: Console, model: str) -> None:
        self._out = out
        self._model = model
        self._turn = 0
        self._text = ""
        self._thinking = ""
        self._waits = False

    def heard(self, event: LoopEvent, after_s: float) -> None:
        """Take in what the model says."""
        from rich.text import Text

        match event:
            case Began():
                self._turn, self._text, self._thinking, self._waits = event.turn, "", "", True
            case Spoke():
                self._text = (self._text + event.text)[-TAIL_CHARS:]
                self._thinking = (self._thinking + event.thinking)[-TAIL_CHARS:]
            case Replied():
                self._waits = False
                if event.calls and event.text:
                    self._out.print(Text(look.words(event.text, LINE_CHARS * 10)))
            case Voided():
                self._waits = False
                why = look.words(event.why, LINE_CHARS)
                self._out.print(Text(f"the reply of turn {event.turn} does not count: {why}"))

    def drawing(self) -> RenderableType | None:
        """What it has said of this reply so far, the end of it; None while it says nothing."""
        from rich.console import Group
        from rich.text import Text

        if not self._waits:
            return None
        head = Text(f"  turn {self._turn} · {look.words(self._model, 60)}", style="dim")
        parts: list[RenderableType] = [head]
        if self._text:
            parts.append(Text(_tail(self._text), overflow="fold"))
        elif self._thinking:
            parts.append(Text(_tail(self._thinking), style="dim italic", overflow="fold"))
        return Group(*parts)


def _tail(text: str) -> str:
    lines = [look.words(one, 1_000) for one in text.splitlines()[-TAIL_LINES:]]
    return "\n".join(lines)


def replied(note: Noted, turn: int) -> Replied:
    """A reply as it is recorded."""
    reply = read_reply(note.body["body"], note.body.get("format"))
    return Replied(run=note.run, turn=turn, text=reply.text, calls=len(reply.calls))
