"""The command line's questions: calls that need approval, and what running bodies ask.

They are put to the human one at a time. Silence is never consent (law 13 one-approval): a call is
approved by a key and Enter, or by `--yes`, and by nothing else. A question whose call is over is
withdrawn.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from endstop.cli import look
from endstop.cli.board import Row
from endstop.cli.keys import Keyboard, Line
from endstop.core.events import QuestionAsked
from endstop.core.payload import dumps, read_arguments
from endstop.core.terms import Phase
from endstop.errors import CallerError
from endstop.run.base import BaseRuntime

if TYPE_CHECKING:
    from rich.console import RenderableType

_CHOICES = "[a]pprove   [r]eject   [e]dit the arguments   [w]rite the result yourself"
_PROMPTS = {
    "approve": "Enter to approve, Esc to go back",
    "reject": "reason for the model (may be empty), Enter to reject, Esc to go back",
    "edit": "the arguments as JSON, Enter to run with them, Esc to go back",
    "respond": "the result that the model shall read, Enter to give it, Esc to go back",
}
_KEYS = {"a": "approve", "r": "reject", "e": "edit", "w": "respond"}


class Desk:
    """Where calls wait for the human's answer, first come first served."""

    def __init__(self, runtime: BaseRuntime, terminal: int, put: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._keyboard = Keyboard(terminal, put)
        # By call for approvals, by their own id for questions.
        self._waiting: dict[str, tuple[Row, QuestionAsked | None]] = {}
        self._mode = ""
        self._line = Line()
        self._problem = ""
        self._by = _who()

    def changed(self, row: Row, *, approvals: bool = True) -> None:
        """A call has changed: it may need an answer now, or none any more."""
        now: dict[str, QuestionAsked | None] = {}
        if row.phase is Phase.AWAITING_APPROVAL and approvals:
            now[row.call] = None
        elif row.phase is Phase.RUNNING:
            now.update(row.questions)
        first = next(iter(self._waiting), None)
        for key in [key for key, (of, _) in self._waiting.items() if of is row and key not in now]:
            del self._waiting[key]
        for key, question in now.items():
            self._waiting[key] = (row, question)
            self._keyboard.open()
        if first is not None and first not in self._waiting:
            self._next()

    def _next(self) -> None:
        self._mode, self._problem, self._line = "", "", Line()
        if self._waiting:
            # What was typed for one call is no answer for another.
            self._keyboard.forget()
        else:
            self._keyboard.close()

    def close(self) -> None:
        """Ask no more."""
        self._waiting.clear()
        self._keyboard.close()

    def key(self, key: str) -> None:
        """The human has pressed a key."""
        first = next(iter(self._waiting.values()), None)
        if first is None:
            return
        row, question = first
        if question is not None:
            self._tell(key, question)
        elif not self._mode:
            self._choose(key, row)
        elif key == "escape":
            self._mode, self._problem = "", ""
        elif key == "enter":
            self._answer(row)
        elif self._mode != "approve":
            self._line.key(key)

    def _tell(self, key: str, question: QuestionAsked) -> None:
        """A key of the answer to what a body asks."""
        if key == "escape":
            self._line, self._problem = Line(), ""
        elif key != "enter":
            self._line.key(key)
        else:
            try:
                # Over or not: if it is, its withdrawal is on the way.
                self._runtime.answer(question.question, self._line.text, by=self._by)
            except CallerError as error:
                self._line, self._problem = Line(), str(error)

    def _choose(self, key: str, row: Row) -> None:
        self._mode = _KEYS.get(key.lower(), "")
        self._line = Line(dumps(row.arguments or {}) if self._mode == "edit" else "")

    def _answer(self, row: Row) -> None:
        runtime, text = self._runtime, self._line.text
        match self._mode:
            case "approve":
                runtime.approve(row.call, by=self._by)
            case "reject":
                runtime.reject(row.call, text, by=self._by)
            case "respond":
                runtime.respond(row.call, text, by=self._by)
            case _:
                self._edit(row, text)

    def _edit(self, row: Row, text: str) -> None:
        arguments, problem = read_arguments(text)
        if problem is None and arguments is not None:
            try:
                self._runtime.edit(row.call, arguments, by=self._by)
            except CallerError as error:
                problem = str(error)
        self._problem = problem or ""

    def drawing(self) -> RenderableType | None:
        """The question, or None."""
        first = next(iter(self._waiting.values()), None)
        if first is None:
            return None
        row, question = first
        if question is not None:
            return self._asked(row, question)
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        about = Text(f"#{row.number} {look.words(row.tool)}", style="bold")
        if row.cost is not None:
            about.append(f"  costs {look.amount(row.cost)}", style="yellow")
        lines: list[Any] = [about]
        for name, value in (row.arguments or {}).items():
            shown = value if isinstance(value, str) else dumps(value)
            lines.append(Text(f"  {look.words(name, 40)}: {look.words(shown, 400)}"))
        if self._problem:
            lines.append(Text(look.words(self._problem, 300), style="red"))
        if self._mode:
            lines.append(Text(_PROMPTS[self._mode], style="dim"))
        if self._mode in ("reject", "edit", "respond"):
            lines.append(self._edited())
        elif not self._mode:
            lines.append(Text(_CHOICES, style="bold"))
        title = Text(f"may this call run?{self._more()}")
        return Panel(Group(*lines), title=title, title_align="left", border_style="yellow")

    def _asked(self, row: Row, question: QuestionAsked) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        lines: list[Any] = [Text(look.words(question.text, 600), style="bold")]
        if question.choices:
            known = look.words(", ".join(question.choices), 600)
            lines.append(Text(f"  one of: {known}", style="dim"))
        if self._problem:
            lines.append(Text(look.words(self._problem, 300), style="red"))
        hidden = ", which is not shown," if question.secret else ""
        lines.append(Text(f"the answer{hidden} and Enter; Esc to begin anew", style="dim"))
        lines.append(self._edited(hide=question.secret))
        title = Text(f"#{row.number} {look.words(row.tool)} asks{self._more()}")
        return Panel(Group(*lines), title=title, title_align="left", border_style="yellow")

    def _more(self) -> str:
        return f", {len(self._waiting) - 1} more waiting" if len(self._waiting) > 1 else ""

    def _edited(self, *, hide: bool = False) -> Any:
        from rich.text import Text

        text = Text("> ")
        if hide:
            # Not even its length.
            return text
        line = self._line
        text.append(line.text[: line.at])
        text.append(line.text[line.at : line.at + 1] or " ", style="reverse")
        text.append(line.text[line.at + 1 :])
        return text


def _who() -> str:
    try:
        return f"{getpass.getuser()} at the terminal"
    except (OSError, KeyError, ImportError):
        return "somebody at the terminal"
