"""The command `endstop demo`: draws the story that `endstop.demo` tells, and its proof.

It draws and nothing else: what is true of a claim was decided before it came here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from endstop.demo.story import CALM, FAST, JOURNAL, Story
from endstop.demo.table import Report, Row, Scene
from endstop.demo.watch import Line, Mood

RULE = 100
WHO, WHO_NARROW = 34, 24
REFRESH_PER_S = 8

STYLES = {
    Mood.TITLE: ("", "bold"),
    Mood.SAY: (" ", "default"),
    Mood.BEGIN: (">", "cyan"),
    Mood.WAIT: ("~", "dim"),
    Mood.WORK: (".", "dim"),
    Mood.MONEY: ("$", "yellow"),
    Mood.HUMAN: ("?", "magenta"),
    Mood.STOP: ("!", "bold red"),
    Mood.GOOD: ("+", "green"),
    Mood.NEVER: ("o", "blue"),
    Mood.BAD: ("x", "red"),
}
EFFECT_STYLES = {"done": "green", "none": "blue", "unknown": "bold yellow"}


def demo(*, keep: bool, fast: bool, as_json: bool) -> NoReturn:
    """Tell the story and prove it; leaves with 0 if every claim holds, with 1 otherwise.

    With `fast` its pauses are short, with `keep` the scratch directory stays, with `as_json`
    nothing is printed but the report.
    """
    pace = FAST if fast else CALM
    try:
        if as_json:
            report = asyncio.run(Story(lambda line: None, pace=pace, keep=keep).tell())
            typer.echo(json.dumps(report.data(), indent=2))
        else:
            report = _draw(Drawing(_console()), pace=pace, keep=keep)
    except OSError as problem:
        typer.echo(f"endstop demo: the story could not be told: {problem}", err=True)
        raise typer.Exit(1) from problem
    except KeyboardInterrupt:
        typer.echo("endstop demo: stopped before its end; nothing was proved", err=True)
        raise typer.Exit(130) from None
    raise typer.Exit(0 if report.ok else 1)


class _Console(Console):
    """A console whose reader may go away: the story is then told to its end, unheard."""

    def on_broken_pipe(self) -> None:
        """Go on without output. The base class would leave the program from any thread."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _console() -> Console:
    console = _Console(highlight=False)
    # What is piped has no width: a log that wraps at 80 columns is hard to read and to search.
    return console if console.is_terminal else _Console(highlight=False, width=160)


def _draw(drawing: Drawing, **how: Any) -> Report:
    story = Story(drawing.line, **how)
    with drawing.live(story):
        report = asyncio.run(story.tell())
    drawing.report(report)
    return report


class Drawing:
    """Draws lines as they come, a live view of open calls on a terminal, and the report."""

    def __init__(self, console: Console) -> None:
        self.console = console
        plain = not (console.encoding or "").lower().startswith("utf")
        self.holds, self.fails = ("ok", "NO") if plain else ("✓", "✗")
        self.narrow = console.width < RULE
        self.who = WHO_NARROW if self.narrow else WHO

    @contextlib.contextmanager
    def live(self, story: Story) -> Iterator[None]:
        """Show the open calls below the lines while the story is told; only on a terminal."""
        if not self.console.is_terminal:
            yield
            return
        view = _OpenCalls(story, self.who)
        with Live(view, console=self.console, refresh_per_second=REFRESH_PER_S, transient=True):
            yield

    def line(self, line: Line) -> None:
        """Draw one line of the story."""
        if line.mood is Mood.TITLE:
            self._title(line.text)
            return
        mark, style = STYLES[line.mood]
        text = Text(no_wrap=False)
        text.append(f"{line.at_s:6.2f} s ", "dim")
        text.append(f"{mark} ", style)
        if line.who:
            text.append(f"{_cut(line.who, self.who):<{self.who}} ", "bold")
        text.append(line.text, style)
        self.console.print(text)

    def report(self, report: Report) -> None:
        """Draw the table, the messages and the proof."""
        self._title("What ran of the two replies, what did not, what is unknown")
        self.console.print(self._table(report))
        self._totals(report)
        stopped = report.scenes[-1]
        self._title(f"What the model reads of the second reply ({stopped.format})")
        self._messages(stopped)
        self._title("Proof: the claims, compared with the world")
        self._proof(report)

    def _title(self, text: str) -> None:
        self.console.print()
        rule = Rule(Text(text, "bold"), align="left", characters="-")
        self.console.print(rule, width=min(self.console.width, RULE))

    def _table(self, report: Report) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for name in ("id", "call", "outcome", "effect")[self.narrow :]:
            table.add_column(name, no_wrap=True)
        for name in ("ran", "spent", "saved"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in report.rows:
            table.add_row(*self._cells(row)[self.narrow :])
        return table

    def _cells(self, row: Row) -> tuple[Text, ...]:
        how = row.stopped_by if row.started else "unstarted"
        return (
            Text(row.call_id, "dim"),
            Text(_cut(row.label, self.who), "bold"),
            Text(row.outcome if how is None else f"{row.outcome}, {how}", _style(row)),
            Text(row.effect, EFFECT_STYLES[row.effect]),
            Text(f"{row.ran_s:.2f} s" if row.started else "-", "dim"),
            Text(f"{row.spent}" if row.spent else "-", "yellow"),
            Text(f"{row.saved}" if row.saved else "-", "green"),
        )

    def _totals(self, report: Report) -> None:
        totals = report.totals()
        self.console.print(
            f"{totals['calls']} calls: {totals['succeeded']} succeeded, {totals['stopped']} were "
            f"stopped, {totals['never_started']} never started; of {totals['unknown']} the effect "
            "is unknown."
        )
        self.console.print(
            f"Spent [yellow]{totals['spent']} USD[/yellow], saved [green]{totals['saved']} USD"
            "[/green]: the paid calls that the stop kept from starting."
        )

    def _messages(self, scene: Scene) -> None:
        for row in scene.rows:
            lines = row.text.splitlines() or [""]
            head = Text(f"{row.model_id:<10} ", "dim")
            head.append(row.label, "bold")
            self.console.print(head)
            more = [Text(f"(and {len(lines) - 2} more lines)", "dim")] if len(lines) > 2 else []
            body = [Text(line) for line in lines[:2]]
            self.console.print(Padding(Group(*body, *more), (0, 0, 0, 11), expand=False))

    def _proof(self, report: Report) -> None:
        for check in report.checks:
            mark, style = (self.holds, "green") if check.holds else (self.fails, "bold red")
            self.console.print(Text.assemble((f"{mark} ", style), check.claim))
            self.console.print(Padding(Text(check.seen, "dim"), (0, 0, 0, 2), expand=False))
        false = sum(not check.holds for check in report.checks)
        total = len(report.checks)
        self.console.print()
        if report.ok:
            self.console.print(
                f"[bold green]All {total} claims hold[/], in {report.seconds:.1f} s."
            )
        else:
            self.console.print(f"[bold red]{false} of {total} claims do not hold.[/]")
        if report.kept:
            where = report.directory
            self.console.print(
                f"Kept: {where}\nTo see what was recorded: endstop journal {where}/{JOURNAL}",
                soft_wrap=True,
                markup=False,
            )


class _OpenCalls:
    """The calls that are open at the moment of drawing."""

    def __init__(self, story: Story, who: int) -> None:
        self._story = story
        self._who = who

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2))
        found = self._story.calls()
        for one in found:
            table.add_row(
                Text(one.call_id, "dim"),
                Text(_cut(one.who, self._who), "bold"),
                Text(one.state),
                Text(f"{one.ran_s:.1f} s" if one.ran_s else "", "cyan"),
                Text(_cut(one.waits, self._who), "dim"),
            )
        return Group(Text(""), table) if found else Group()


def _style(row: Row) -> str:
    if row.ok:
        return "green"
    return "red" if row.started else "blue"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
