"""The list of scenarios: each is one script that is played against the stock handler and ours.

A script returns what was broken. Ours must break nothing. The stock handler is the control: a row
says which promises it breaks there, so that a script that sees nothing cannot pass unnoticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.wire.harness import Broken, Place, house

Script = Callable[[Place], Awaitable[Broken]]

BOTH = ("memory", "sqlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario: its number in the list, where it is played, and what the stock breaks."""

    number: int
    title: str
    script: Script
    control: tuple[str, tuple[str, ...]]
    """A store of the stock handler, and the promises it breaks there (none: it is good too);
    "a|b" where luck decides which of the two."""
    stores: tuple[str, ...] = BOTH
    alone: bool = False
    """Needs a server of its own: it kills it, or counts what it uses."""


ROWS: list[Row] = []


def row(
    number: int,
    title: str,
    *,
    control: tuple[str, tuple[str, ...]],
    stores: tuple[str, ...] = BOTH,
    alone: bool = False,
) -> Callable[[Script], Script]:
    """Puts a script on the list."""

    def put(script: Script) -> Script:
        ROWS.append(
            Row(
                number=number,
                title=title,
                script=script,
                stores=stores,
                control=control,
                alone=alone,
            )
        )
        return script

    return put


def of(module: str) -> list[Row]:
    """The rows that a module of scripts put on the list."""
    found = [r for r in ROWS if r.script.__module__ == module]
    assert found, f"no rows in {module}"
    return found


Case = tuple[str, str, Row]
"""One row, on a handler ("stock", "endstop") over a store."""


class Playing:
    """Servers that the rows of one file share, and what became of those that were played.

    Most of a row is waiting. All that share a server are therefore played at once, the first time
    that one of them is asked for; each test then looks at its own.
    """

    def __init__(self, folder: Path, wanted: list[Case]) -> None:
        self.folder = folder
        self.wanted = wanted
        self.played: dict[tuple[str, str, str], Broken | BaseException] = {}
        self.stack = contextlib.ExitStack()

    def play(self, row: Row, kind: str, store: str) -> Broken:
        key = (kind, store, row.title)
        if key not in self.played:
            self._play([r for k, s, r in self.wanted if (k, s) == (kind, store)], kind, store)
        broken = self.played[key]
        if isinstance(broken, BaseException):
            raise broken
        return broken

    def _play(self, rows: list[Row], kind: str, store: str) -> None:
        shared: Place | None = None
        places = []
        for row in rows:
            if row.alone:
                places.append(self._place(row.script.__name__, kind, store))
            else:
                shared = shared or self._place("all", kind, store)
                places.append(shared)
        for row, broken in zip(rows, asyncio.run(_together(rows, places)), strict=True):
            self.played[kind, store, row.title] = broken
        for place in places:
            place.house.close()

    def _place(self, name: str, kind: str, store: str) -> Place:
        folder = self.folder / f"{kind}-{store}-{name}"
        folder.mkdir()
        home = self.stack.enter_context(house(kind, folder))
        return Place(house=home, server=home.start(store), store=store, folder=folder)


async def _together(rows: list[Row], places: list[Place]) -> list[Broken | BaseException]:
    playing = [_bounded(r, place) for r, place in zip(rows, places, strict=True)]
    return await asyncio.gather(*playing, return_exceptions=True)


async def _bounded(row: Row, place: Place) -> Broken:
    async with asyncio.timeout(100):
        return await row.script(place)


@contextlib.contextmanager
def playing(folder: Path, wanted: list[Case]) -> Iterator[Playing]:
    made = Playing(folder, wanted)
    with made.stack:
        yield made


def ours(module: str) -> pytest.MarkDecorator:
    """Every row of a module on every store of ours."""
    cases = [("endstop", store, r) for r in of(module) for store in r.stores]
    names = [f"{r.number}-{r.script.__name__}-{store}" for _, store, r in cases]
    return pytest.mark.parametrize("case", cases, ids=names)


def controls(module: str) -> pytest.MarkDecorator:
    """The control of every row of a module."""
    cases = [("stock", r.control[0], r) for r in of(module)]
    names = [f"{r.number}-{r.script.__name__}" for _, _, r in cases]
    return pytest.mark.parametrize("case", cases, ids=names)


def holds(servers: Playing, case: Case) -> None:
    kind, store, row = case
    broken = servers.play(row, kind, store)
    assert not broken, f"row {row.number} ({row.title}) on {store}: {dict(broken)}"


def fails_on_stock(servers: Playing, case: Case) -> None:
    kind, store, row = case
    promises = row.control[1]
    broken = servers.play(row, kind, store)
    missing = [p for p in promises if not set(p.split("|")) & set(broken)]
    assert not missing, f"the control broke {dict(broken)}, and not {missing}"
    assert bool(promises) == bool(broken), f"the control was expected to be good: {dict(broken)}"
