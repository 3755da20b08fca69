"""The command line's look: how times, money, endings and foreign text are shown.

Only formatting. What a model or a tool wrote reaches a terminal through `words`, never raw: it may
hold control codes.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from endstop.cli.output import nobody_reads
from endstop.core.events import CallSettled
from endstop.core.payload import dumps
from endstop.core.terms import Effect, Flag, Money, Outcome, StoppedBy
from endstop.core.text import scrub
from endstop.run.results import CallResult

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

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


def truth_table(rows: Sequence[Sequence[Any]], *, spent: bool) -> Table:
    """The table of (number, tool, outcome, reason, effect, ran, spent, what happened)."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

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
    for number, tool, outcome, reason, effect, ran, money, note in rows:
        ended = Text("no ending", style="bold yellow")
        if outcome is not None:
            ended = Text(f"{SIGN[outcome]} {outcome}", style=OUTCOME_STYLE[outcome])
        cells: list[RenderableType] = [
            str(number),
            Text(words(tool, 64)),
            ended,
            Text(str(reason)),
            Text(str(effect or ""), style=EFFECT_STYLE.get(effect, "")),
            Text(ran, style="dim"),
        ]
        if spent:
            cells.append(Text(money))
        table.add_row(*cells, Text(note))
    return table


def charge(parts: tuple[Money, ...], declared: bool) -> str:
    """What a call has cost; marked where nobody reported it and the declaration stands for it."""
    return f"{amounts(parts)} (declared)" if declared else amounts(parts)


def results_table(
    results: Sequence[CallResult], charged: Mapping[str, tuple[tuple[Money, ...], bool]]
) -> Table:
    """The truth about each call of a batch, in request order."""
    rows = [
        (
            number,
            result.tool,
            result.outcome,
            result.reason,
            result.effect,
            seconds(result.ran_s) if result.ran_s else "",
            charge(*charged.get(result.call_id, (result.spent, False))),
            ending_note(result._settled),
        )
        for number, result in enumerate(results, 1)
    ]
    return truth_table(rows, spent=any(row[6] for row in rows))


def counted(outcomes: Iterable[Outcome]) -> str:
    """How many ended how: `2 succeeded, 1 cancelled`."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[one]} {one.replace('_', ' ')}" for one in Outcome if counts[one])


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
