"""The command line's `budget`: what a run may spend, what it holds, has spent and did not spend.

Read from the journal alone. Money is exact, and summed over the run and all runs below it, which
draw on the same budget (law 20 paid-once).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from endstop.cli import look
from endstop.cli.journal import Call, Story, find_run, opened, read_story
from endstop.core import events as e
from endstop.core.terms import Effect, Limits, Money
from endstop.store.sqlite import SqliteJournal

_ZERO = Decimal(0)

OUTSIDE = "(outside of calls)"
"""Stands for what was paid outside of any call, such as a model's replies, beside the tools."""


@dataclass(slots=True, kw_only=True, eq=False)
class Book:
    """The sums of one tool in one currency."""

    reserved: Decimal = _ZERO
    spent: Decimal = _ZERO
    saved: Decimal = _ZERO


@dataclass(slots=True, kw_only=True, eq=False)
class Books:
    """The sums of a run, with all runs below it: by tool and currency, and the calls that count."""

    limits: Limits | None
    runs: list[str] = field(default_factory=list)
    by_tool: dict[tuple[str, str], Book] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def add(self, story: Story) -> None:
        """Count one run in."""
        self.runs.append(story.row.run)
        reserved = {
            one.event.call: one.event.reserved
            for one in story.events
            if isinstance(one.event, e.CallGranted)
        }
        for one in story.events:
            if isinstance(one.event, e.Noted) and one.event.spent is not None:
                self._book(OUTSIDE, one.event.spent).spent += one.event.spent.amount
        for name, call in story.calls.items():
            tool = call.accepted.tool
            if call.started or (call.granted and call.settled is None) or _may_have_begun(call):
                self.calls[tool] = self.calls.get(tool, 0) + 1
            self._count(tool, call, reserved.get(name))

    def _count(self, tool: str, call: Call, reserved: Money | None) -> None:
        charged, _ = call.charged
        if call.settled is not None and _may_have_begun(call) and not charged and call.cost:
            # It may have begun without a record: what it holds is booked, not given back.
            charged = (call.cost,)
        for money in charged:
            self._book(tool, money).spent += money.amount
        if call.settled is None:
            if reserved is not None:
                self._book(tool, reserved).reserved += reserved.amount
        elif call.cost is not None:
            spent = sum((m.amount for m in charged if m.currency == call.cost.currency), _ZERO)
            self._book(tool, call.cost).saved += max(call.cost.amount - spent, _ZERO)

    def _book(self, tool: str, money: Money) -> Book:
        return self.by_tool.setdefault((tool, money.currency), Book())

    def total(self, currency: str) -> Book:
        """The sums of all tools."""
        found = Book()
        for (_, one), book in self.by_tool.items():
            if one == currency:
                found.reserved += book.reserved
                found.spent += book.spent
                found.saved += book.saved
        return found

    @property
    def currencies(self) -> list[str]:
        """Every currency that is limited or was used."""
        limited = [money.currency for money in self.limits.money] if self.limits else []
        return sorted({*limited, *(currency for _, currency in self.by_tool)})

    def limit(self, currency: str) -> Decimal | None:
        """What may be spent in a currency; None where nothing bounds it."""
        found = [m.amount for m in (self.limits.money if self.limits else ())]
        named = {m.currency: m.amount for m in (self.limits.money if self.limits else ())}
        return named.get(currency, _ZERO if found else None)


def _may_have_begun(call: Call) -> bool:
    ended = call.settled
    return call.granted and ended is not None and ended.effect is not Effect.NONE


def books_of(journal: SqliteJournal, run: str) -> Books:
    """The books of a run, with all runs below it."""
    rows = {row.run: row for row in journal.describe()}
    top = read_story(journal, rows[run])
    openings = (one.event.limits for one in top.events if isinstance(one.event, e.RunOpened))
    books = Books(limits=next(openings, None))
    books.add(top)
    for below in _below(journal, [run]):
        books.add(read_story(journal, rows[below]))
    return books


def _below(journal: SqliteJournal, runs: list[str]) -> Iterator[str]:
    for run in runs:
        children = journal.children(run)
        yield from children
        yield from _below(journal, children)


def show_budget(file: Path, wanted: str, *, as_json: bool) -> None:
    """Show the books of one run."""
    with opened(file) as journal:
        row = find_run(journal.describe(), wanted, file)
        books = books_of(journal, row.run)
    if as_json:
        print(look.document(_data(row.run, books)))
        return
    out = look.console(stderr=False)
    below = len(books.runs) - 1
    out.print(f"run {row.run}" + (f", with {look.plural(below, 'run')} below it" if below else ""))
    if not books.currencies:
        out.print("nothing in it costs anything")
    else:
        _print_money(out, books)
    _print_calls(out, books)


def _print_money(out: Any, books: Books) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True, max_width=40)
    for name in ("limit", "reserved", "spent", "saved", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    for currency in books.currencies:
        for (tool, one), book in books.by_tool.items():
            if one == currency:
                table.add_row(Text(look.words(tool, 40)), "", *_amounts(book, currency), "")
        book, limit = books.total(currency), books.limit(currency)
        left = "" if limit is None else f"{limit - book.spent - book.reserved:f} {currency}"
        bound = "none" if limit is None else f"{limit:f} {currency}"
        total = Text(f"all, in {currency}", style="bold")
        table.add_row(total, bound, *_amounts(book, currency), left)
    out.print(table)


def _amounts(book: Book, currency: str) -> Iterable[str]:
    return (f"{value:f} {currency}" for value in (book.reserved, book.spent, book.saved))


def _print_calls(out: Any, books: Books) -> None:
    limits = books.limits
    total = sum(books.calls.values())
    of = f" of {limits.calls}" if limits is not None and limits.calls is not None else ""
    out.print(f"calls started: {total}{of}")
    for tool, limit in limits.tool_calls if limits is not None else ():
        out.print(f"  {look.words(tool, 40)}: {books.calls.get(tool, 0)} of {limit}")


def _data(run: str, books: Books) -> dict[str, Any]:
    limits = books.limits
    money = []
    for currency in books.currencies:
        limit = books.limit(currency)
        book = books.total(currency)
        money.append(
            {
                "currency": currency,
                "limit": None if limit is None else f"{limit:f}",
                "left": None if limit is None else f"{limit - book.spent - book.reserved:f}",
                **_book_data(book),
                "tools": {
                    tool: _book_data(one)
                    for (tool, named), one in books.by_tool.items()
                    if named == currency
                },
            }
        )
    return {
        "run": run,
        "runs": books.runs,
        "money": money,
        "calls": books.calls,
        "calls_limit": None if limits is None else limits.calls,
        "tool_calls_limits": {} if limits is None else dict(limits.tool_calls),
    }


def _book_data(book: Book) -> dict[str, str]:
    return {
        "reserved": f"{book.reserved:f}",
        "spent": f"{book.spent:f}",
        "saved": f"{book.saved:f}",
    }
