"""`python -m tests.wire.compare [ROW …]`: each scenario on the stock handler and on ours, a table.

The tests assert the part of it that is sure on any machine; this prints all of it, with what was
seen. With numbers, only those rows.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from pathlib import Path

from tests.wire.harness import Broken, house
from tests.wire.race import race
from tests.wire.rows import ROWS, Case, Row, playing

MODULES = ("rows_cancel", "rows_ending", "rows_alone", "rows_scale")
RACES = 400


def cases(row: Row) -> list[Case]:
    """Where a row is played: on the control's store, and on all of ours."""
    return [("stock", row.control[0], row), *(("endstop", store, row) for store in row.stores)]


def told(broken: Broken | None, problem: BaseException | None) -> str:
    if problem is not None:
        return f"could not be played: {type(problem).__name__}: {problem}"
    if not broken:
        return "ok"
    return "; ".join(f"{name}: {seen}" for name, seen in broken.items()).replace("|", "/")[:300]


def line(number: int, title: str, kind: str, store: str, seen: str) -> None:
    print(f"| {number} | {title} | {kind} | {store} | {seen} |", flush=True)


def play_rows(folder: Path, wanted: list[Row]) -> None:
    for row in wanted:
        for kind, store, _ in cases(row):
            inside = Path(tempfile.mkdtemp(dir=folder))
            with playing(inside, [(kind, store, row)]) as servers:
                broken, problem = None, None
                try:
                    broken = servers.play(row, kind, store)
                except Exception as raised:
                    problem = raised
            line(row.number, row.title, kind, store, told(broken, problem))


def play_races(folder: Path) -> None:
    for kind in ("stock", "endstop"):
        for store in ("memory", "sqlite"):
            with house(kind, Path(tempfile.mkdtemp(dir=folder))) as home:
                tally = asyncio.run(race(home.start(store), RACES))
            seen = f"{len(tally.wrong)} of {RACES} disagree" if tally.wrong else "ok"
            line(9, f"{RACES} races of cancel and completion", kind, store, seen)


def main(arguments: list[str]) -> None:
    for name in MODULES:
        importlib.import_module(f"tests.wire.{name}")
    numbers = {int(argument) for argument in arguments}
    wanted = sorted(ROWS, key=lambda row: row.number)
    print("| row | scenario | handler | store | seen |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        play_rows(Path(folder), [r for r in wanted if not numbers or r.number in numbers])
        if not numbers or 9 in numbers:
            play_races(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
