"""The command line's views of a run: a table that lives on a terminal, or plain lines elsewhere.

A view shows what the board says and decides nothing (law 18 audience-free). Both write to standard
error: standard output belongs to the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from endstop.cli import look
from endstop.cli.board import Board, Row
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

_PASSING = frozenset({Phase.PREPARING, Phase.QUEUED, Phase.GRANTED})
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR = 10


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

    def __init__(self, board: Board, out: Console, began: float, heartbeat_s: float | None) -> None:
        self._board = board
        self._out = out
        self._began = began
        self._heartbeat_s = heartbeat_s

    def start(self) -> None:
        """Nothing: the first line is the first change."""

    def changed(self, row: Row, now: float) -> None:
        """Tell of a phase at once where it is one of those that count."""
        if row.phase not in _PASSING:
            self._tell(row, now)

    def refresh(self, now: float) -> None:
        """Tell of passing phases that do not pass, and that what is quiet is still there."""
        for row in self._board.open:
            if row.phase in _PASSING and now - row.since >= LASTING_S:
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
        line = f"{now - self._began:9.2f} s  #{row.number} {look.words(row.tool, 32)}: {state}"
        self._out.print(f"{line} ({rest})" if rest else line, soft_wrap=True)

    def say(self, text: str) -> None:
        """One line of the program itself."""
        self._out.print(f"endstop: {text}", soft_wrap=True)

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
        self._footer = "Ctrl-C stops the run"
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
        self._footer = text

    def close(self) -> None:
        """Give the terminal back; the table is gone, what is true is printed afterwards."""
        self._live.stop()

    def _drawing(self, now: float) -> RenderableType:
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, style="dim")
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=44)
        grid.add_column(no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        rows, hidden = self._visible()
        for row in rows:
            grid.add_row(*self._cells(row, now))
        parts: list[RenderableType] = [grid]
        if hidden:
            parts.append(Text(f"  … and {hidden}", style="dim"))
        footer = Text(f"  {look.seconds(now - self._began)} · ", style="dim")
        footer.append(self._footer, style="bold magenta" if "top" in self._footer[:8] else "dim")
        parts.append(footer)
        asked = self._question()
        if asked is not None:
            parts.append(asked)
        return Group(*parts)

    def _visible(self) -> tuple[list[Row], str]:
        """The rows that fit: open calls first, the rest is counted."""
        rows = list(self._board.rows.values())
        room = max(3, self._out.size.height - (12 if self._question() is not None else 4))
        if len(rows) <= room:
            return rows, ""
        urgent = sorted(rows, key=lambda row: (row.settled is not None, row.phase in _PASSING))
        kept = set(urgent[:room])
        left = [row for row in rows if row not in kept]
        ended = look.counted(row.settled.outcome for row in left if row.settled is not None)
        still = sum(row.settled is None for row in left)
        said = ", ".join(part for part in (ended, f"{still} waiting" if still else "") if part)
        return [row for row in rows if row in kept], said

    def _cells(self, row: Row, now: float) -> list[Text]:
        from rich.text import Text

        if row.settled is None:
            sign, style = self._sign(row, now), PHASE_STYLE[row.phase]
        else:
            outcome = row.settled.outcome
            sign, style = look.SIGN[outcome], look.OUTCOME_STYLE[outcome]
        tool = Text(look.words(row.tool, 32), style="bold")
        shown = look.arguments(row.arguments)
        if shown:
            tool.append(f" {shown}", style="not bold dim")
        took = row.ran_s if row.ran_s or row.settled is not None else now - row.since
        return [
            Text(sign, style=style),
            Text(str(row.number)),
            tool,
            Text(row.state, style=style),
            Text(look.seconds(took) if took else "", style="" if row.ran_s else "dim"),
            self._money(row),
            self._detail(row),
        ]

    def _sign(self, row: Row, now: float) -> str:
        if row.phase in (Phase.RUNNING, Phase.STOPPING):
            return _SPINNER[int((now - self._began) * 10) % len(_SPINNER)]
        return "?" if row.phase is Phase.AWAITING_APPROVAL else "·"

    @staticmethod
    def _money(row: Row) -> Text:
        from rich.text import Text

        if row.spent or row.settled is not None:
            return Text(look.amounts(row.spent))
        return Text(look.amount(row.cost) if row.cost is not None else "", style="dim")

    @staticmethod
    def _detail(row: Row) -> Text:
        from rich.text import Text

        text = Text()
        if row.settled is None and row.fraction is not None:
            full = round(row.fraction * _BAR)
            text.append("━" * full, style="cyan")
            text.append("━" * (_BAR - full), style="dim")
            text.append(f" {row.fraction:.0%} ", style="cyan")
        failed = row.settled is not None and row.settled.outcome is not Outcome.SUCCEEDED
        text.append(look.words(row.detail, 160), style="" if failed else "dim")
        return text
