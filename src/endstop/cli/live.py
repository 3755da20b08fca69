"""The command line's views of a run: a table that lives on a terminal, or plain lines elsewhere.

A view shows what the board says and decides nothing (law 18 audience-free). Both write to standard
error: standard output belongs to the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from endstop.cli import look
from endstop.cli.board import Board, Row
from endstop.cli.output import complain, line
from endstop.core.terms import Outcome, Phase

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

PHASE_STYLE = {
    Phase.PREPARING: "dim",
    Phase.AWAITING_APPROVAL: "bold yellow",
    Phase.QUEUED: "yellow",
    Phase.GRANTED: "cyan",
    Phase.RUNNING: "bold cyan",
    Phase.STOPPING: "bold magenta",
}
LASTING_S = 0.25
"""Phases that are usually over at once are told of in plain lines only once they last so long."""

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR = 10
_STATE_MIN = len("succeeded")
_TIME = len("1000 ms")


class View(Protocol):
    """What the watcher tells a view."""

    refresh_s: float

    def start(self) -> None: ...
    def changed(self, row: Row, now: float) -> None: ...
    def refresh(self, now: float) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class Silent:
    """Shows nothing."""

    refresh_s = 1.0

    def start(self) -> None:
        """Nothing."""

    def changed(self, row: Row, now: float) -> None:
        """Nothing."""

    def refresh(self, now: float) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """Plain lines: one per change of phase, and a sign of life now and then."""

    refresh_s = LASTING_S

    def __init__(self, board: Board, began: float, heartbeat_s: float | None) -> None:
        self._board = board
        self._began = began
        self._heartbeat_s = heartbeat_s

    def start(self) -> None:
        """Nothing: the first line is the first change."""

    def changed(self, row: Row, now: float) -> None:
        """Tell of a phase at once where it is one of those that count."""
        if not row.passing:
            self._tell(row, now)

    def refresh(self, now: float) -> None:
        """Tell of passing phases that do not pass, and that what is quiet is still there."""
        for row in self._board.open:
            if row.passing and now - row.since >= LASTING_S:
                self._tell(row, now)
            if self._heartbeat_s is not None and now - row.heartbeat_at >= self._heartbeat_s:
                self._beat(row, now)

    def _tell(self, row: Row, now: float) -> None:
        said = f"{row.state}|{'' if row.phase is Phase.RUNNING else row.detail}"
        if row.waits_for.startswith("a human"):
            said += row.waits_for
        if said != row.shown:
            row.shown = said
            self._line(row, now, row.state, row.detail)

    def _beat(self, row: Row, now: float) -> None:
        how_long = look.seconds(row.ran_s if row.phase is Phase.RUNNING else now - row.since)
        share = f"{row.fraction:.0%}" if row.fraction is not None else ""
        detail = ", ".join(part for part in (how_long, share, row.detail) if part)
        self._line(row, now, f"still {row.state}", detail)

    def _line(self, row: Row, now: float, state: str, detail: str) -> None:
        row.heartbeat_at = now
        ran = look.seconds(row.ran_s) if row.settled is not None and row.ran_s else ""
        spent = look.amounts(row.spent) if row.settled is not None else ""
        rest = ", ".join(part for part in (ran, spent, look.words(detail, 160)) if part)
        told = f"{now - self._began:9.2f} s  #{row.number} {look.words(row.tool, 32)}: {state}"
        line(f"{told} ({rest})" if rest else told)

    def say(self, text: str) -> None:
        """One line of the program itself."""
        complain(text)

    def close(self) -> None:
        """Nothing: what was said stays."""


class Table:
    """A table that is drawn anew some times a second, with a footer and at most one question."""

    refresh_s = 0.1

    def __init__(
        self,
        board: Board,
        out: Console,
        began: float,
        question: Callable[[], RenderableType | None],
    ) -> None:
        from rich.live import Live

        self._board = board
        self._out = out
        self._began = began
        self._question = question
        self._said = ""
        self._live = Live(console=out, auto_refresh=False, transient=True)

    def start(self) -> None:
        """Take the terminal's lower lines."""
        self._live.start()

    def changed(self, row: Row, now: float) -> None:
        """Nothing: the next drawing shows it."""

    def refresh(self, now: float) -> None:
        """Draw."""
        self._live.update(self._drawing(now), refresh=True)

    def say(self, text: str) -> None:
        """What the footer says from now on."""
        self._said = text

    def close(self) -> None:
        """Give the terminal back; the table is gone, what is true is printed afterwards."""
        self._live.stop()

    def _drawing(self, now: float) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        rows, hidden = self._visible()
        widths = self._widths(rows)
        parts: list[RenderableType] = [self._row(row, now, widths) for row in rows]
        if hidden:
            parts.append(Text(f"  … and {hidden}", style="dim"))
        footer = Text()
        footer.append(f"  {look.seconds(now - self._began)} · ", style="dim")
        said = self._said or "Ctrl-C stops the run"
        footer.append(said, style="bold magenta" if self._said else "dim")
        parts.append(footer)
        asked = self._question()
        if asked is not None:
            parts.append(asked)
        return Group(*parts)

    def _widths(self, rows: list[Row]) -> tuple[int, int, int, int]:
        """How wide numbers, calls, states and amounts are."""
        number = len(str(len(self._board.rows)))
        longest = max((len(_call_words(row)) for row in rows), default=0)
        money = max((len(_money_words(row)) for row in rows), default=0)
        state = max((len(row.state) for row in rows), default=_STATE_MIN)
        call = min(longest, max(16, self._out.width // 3))
        return number, call, max(state, _STATE_MIN), money

    def _visible(self) -> tuple[list[Row], str]:
        """The rows that fit: open calls first, the rest is counted."""
        rows = list(self._board.rows.values())
        room = max(3, self._out.size.height - (12 if self._question() is not None else 4))
        if len(rows) <= room:
            return rows, ""
        urgent = sorted(rows, key=lambda row: (row.settled is not None, row.passing))
        kept = set(urgent[:room])
        left = [row for row in rows if row not in kept]
        ended = look.counted(row.settled.outcome for row in left if row.settled is not None)
        still = sum(row.settled is None for row in left)
        said = ", ".join(part for part in (ended, f"{still} waiting" if still else "") if part)
        return [row for row in rows if row in kept], said

    def _row(self, row: Row, now: float, widths: tuple[int, int, int, int]) -> Text:
        from rich.cells import set_cell_size
        from rich.text import Text

        sign, style = self._sign(row, now)
        number, call, state, money = widths
        took = row.ran_s if row.ran_s or row.settled is not None else now - row.since
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{sign} ", style=style)
        text.append(f"{row.number:>{number}} ", style="dim")
        shown = set_cell_size(_call_words(row), call)
        text.append(shown[: len(row.tool)], style="bold")
        text.append(f"{shown[len(row.tool) :]}  ", style="dim")
        text.append(f"{row.state:<{state}} ", style=style)
        text.append(f"{look.seconds(took) if took else '':>{_TIME}}", style="dim")
        if money:
            text.append(f"  {_money_words(row):>{money}}", style="yellow")
        text.append("  ")
        if row.settled is None and row.fraction is not None:
            full = round(row.fraction * _BAR)
            text.append("━" * full, style="cyan")
            text.append("━" * (_BAR - full), style="dim")
            text.append(f" {row.fraction:.0%} ", style="cyan")
        failed = row.settled is not None and row.settled.outcome is not Outcome.SUCCEEDED
        text.append(look.words(row.detail, 200), style="" if failed else "dim")
        text.truncate(self._out.width - 1, overflow="ellipsis")
        return text

    def _sign(self, row: Row, now: float) -> tuple[str, str]:
        if row.settled is not None:
            return look.SIGN[row.settled.outcome], look.OUTCOME_STYLE[row.settled.outcome]
        style = PHASE_STYLE[row.phase]
        if row.phase in (Phase.RUNNING, Phase.STOPPING):
            return _SPINNER[int((now - self._began) * 10) % len(_SPINNER)], style
        return ("?" if row.phase is Phase.AWAITING_APPROVAL else "·"), style


def _call_words(row: Row) -> str:
    return look.words(f"{row.tool} {look.arguments(row.arguments)}", 80)


def _money_words(row: Row) -> str:
    if row.settled is not None or row.spent:
        return look.amounts(row.charged[0])
    return look.amount(row.cost) if row.cost is not None else ""
