"""The command line's look: how times, money, endings and foreign text are shown.

Only formatting. What a model or a tool wrote reaches a terminal through `words`, never raw: it may
hold control codes.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from endstop.cli.output import nobody_reads
from endstop.core.events import CallSettled
from endstop.core.payload import dumps
from endstop.core.terms import Effect, Flag, Money, Outcome, StoppedBy
from endstop.core.text import scrub

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

OUTCOME_STYLE = {
    Outcome.SUCCEEDED: "green",
    Outcome.FAILED: "red",
    Outcome.REJECTED: "yellow",
    Outcome.CANCELLED: "magenta",
    Outcome.TIMED_OUT: "red",
    Outcome.LOST: "bold red",
}
EFFECT_STYLE = {Effect.NONE: "dim", Effect.DONE: "green", Effect.UNKNOWN: "bold yellow"}
SIGN = {
    Outcome.SUCCEEDED: "✓",
    Outcome.FAILED: "✗",
    Outcome.REJECTED: "⊘",
    Outcome.CANCELLED: "■",
    Outcome.TIMED_OUT: "⧖",
    Outcome.LOST: "?",
}
TABLE_COLUMNS = 120
"""A narrower terminal has no room for a table that leaves nothing out."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_RAW_IN_JSON = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def console(*, stderr: bool) -> Console:
    """A console that never guesses markup, emoji or links out of foreign text.

    A reader that goes away silences it. The base class would end the program, in the middle of a
    run (law 18 audience-free).
    """
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            nobody_reads(2 if stderr else 1)

    stream = sys.stderr if stderr else sys.stdout
    # What is piped has no width: a log that wraps at 80 columns is hard to read and to search.
    wide = None if stream.isatty() else 160
    return Quiet(file=stream, markup=False, emoji=False, highlight=False, width=wide)


def words(text: str, limit: int = 80) -> str:
    """Foreign text as one line that is safe on a terminal, at most `limit` characters."""
    line = _CONTROL.sub(" ", scrub(text[: 4 * limit])).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def lines(text: str) -> str:
    """Foreign text with its line breaks, safe on a terminal."""
    return "\n".join(_CONTROL.sub(" ", one) for one in scrub(text).splitlines())


def document(value: Any) -> str:
    """A value as indented JSON that is safe on a terminal."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return _RAW_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def arguments(value: dict[str, Any] | None, limit: int = 60) -> str:
    """The arguments of a call, short: `path=notes.md, by=line`."""
    if not value:
        return ""
    parts = []
    for key, one in value.items():
        shown = one if isinstance(one, str) else dumps(one)
        parts.append(f"{key}={words(shown, 40)}")
    return words(", ".join(parts), limit)


def seconds(value: float) -> str:
    """A duration, as precise as it is interesting."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 99.5:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def amount(value: Money) -> str:
    """An amount as people write it."""
    return f"{value.amount:f} {value.currency}"


def total(parts: Iterable[Money]) -> tuple[Money, ...]:
    """The sum in each currency."""
    sums: dict[str, Decimal] = {}
    for part in parts:
        sums[part.currency] = sums.get(part.currency, Decimal(0)) + part.amount
    return tuple(Money(amount=sums[name], currency=name) for name in sorted(sums))


def amounts(parts: Iterable[Money]) -> str:
    """The sum in each currency, in words; empty where nothing was spent."""
    return " + ".join(amount(part) for part in total(parts))


def money_data(parts: Iterable[Money]) -> list[dict[str, str]]:
    """Amounts as JSON: text, because a JSON number would not be exact."""
    return [{"amount": f"{part.amount:f}", "currency": part.currency} for part in parts]


def ending_note(ended: CallSettled) -> str:
    """One line of truth about an ending, beside its outcome, reason and effect."""
    parts = []
    if ended.stopped_by is StoppedBy.ASKED:
        parts.append("stopped when asked")
    elif ended.stopped_by is StoppedBy.KILLED:
        parts.append("killed")
    elif ended.stopped_by is StoppedBy.ABANDONED or ended.alive:
        parts.append("could not be stopped and may still be running")
    elif ended.outcome in (Outcome.REJECTED, Outcome.CANCELLED):
        parts.append("never started")
    if Flag.CANCEL_REQUESTED in ended.flags:
        parts.append("finished although it was being stopped")
    if Flag.OVERRAN in ended.flags:
        parts.append("finished after its deadline")
    if ended.survivors:
        parts.append(f"survivors: {words(', '.join(ended.survivors), 200)}")
    if ended.error and ended.stopped_by is None:
        parts.append(words(ended.error, 200))
    return "; ".join(parts)


class Truth(NamedTuple):
    """What is true of one call, ready to be shown; `outcome` is None where it has no ending."""

    number: str
    tool: str
    outcome: Outcome | None
    reason: str
    effect: Effect | None
    ran: str
    spent: str
    note: str

    def ending(self) -> Text:
        """The outcome in its colour."""
        from rich.text import Text

        if self.outcome is None:
            return Text("no ending", style="bold yellow")
        shown = f"{SIGN[self.outcome]} {self.outcome.replace('_', ' ')}"
        return Text(shown, style=OUTCOME_STYLE[self.outcome])

    def effects(self) -> Text:
        """The effect in its colour."""
        from rich.text import Text

        effect = self.effect
        return Text("") if effect is None else Text(effect, style=EFFECT_STYLE[effect])


def print_truth(out: Console, rows: Sequence[Truth]) -> None:
    """Print what is true of each call: a table where there is room, else a paragraph for each."""
    out.print()
    if out.width >= TABLE_COLUMNS:
        out.print(_table(rows))
        return
    for row in rows:
        _print_paragraph(out, row)
    out.print()


def _print_paragraph(out: Console, row: Truth) -> None:
    from rich.padding import Padding
    from rich.text import Text

    head = Text.assemble(f"{row.number} ", (words(row.tool, 64), "bold"), ": ", row.ending())
    if row.reason and row.reason != "ok":
        head.append(f" ({row.reason.replace('_', ' ')})")
    if row.effect is not None:
        head.append_text(Text.assemble(", effect ", row.effects()))
    for name, value in (("ran", row.ran), ("spent", row.spent)):
        if value:
            head.append(f", {name} {value}")
    out.print(head)
    if row.note:
        out.print(Padding(Text(row.note), (0, 0, 0, len(row.number) + 3)))


def _table(rows: Sequence[Truth]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    spent = any(row.spent for row in rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("tool", no_wrap=True, max_width=32)
    table.add_column("outcome", no_wrap=True)
    table.add_column("reason", no_wrap=True)
    table.add_column("effect", no_wrap=True)
    table.add_column("ran", justify="right", no_wrap=True)
    if spent:
        table.add_column("spent", justify="right", no_wrap=True)
    table.add_column("what happened", overflow="fold", ratio=1)
    for row in rows:
        cells: list[Text] = [
            Text(row.number),
            Text(words(row.tool, 64)),
            row.ending(),
            Text(row.reason),
            row.effects(),
            Text(row.ran, style="dim"),
        ]
        if spent:
            cells.append(Text(row.spent))
        table.add_row(*cells, Text(row.note))
    return table


def charge(parts: tuple[Money, ...], declared: bool) -> str:
    """What a call has cost; marked where nobody reported it and the declaration stands for it."""
    return f"{amounts(parts)} (declared)" if declared else amounts(parts)


def truth(number: str, tool: str, ended: CallSettled, spent: str) -> Truth:
    """What is true of a call that has its ending."""
    return Truth(
        number=number,
        tool=tool,
        outcome=ended.outcome,
        reason=str(ended.reason),
        effect=ended.effect,
        ran=seconds(ended.ran_s) if ended.ran_s else "",
        spent=spent,
        note=ending_note(ended),
    )


def counted(outcomes: Iterable[Outcome]) -> str:
    """How many ended how: `2 succeeded, 1 cancelled`."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[one]} {one.replace('_', ' ')}" for one in Outcome if counts[one])


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
