"""The cost of a call whose record goes to a file, beside the barest way to write the same rows.

The floor takes the rows that our own run wrote, and writes them to a second file with the same
schema and pragmas, in as many transactions of the same sizes. Encoding, waiting, waking and every
law are what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import Connection
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import noop
from benchmarks.measure import Pair, Sample, Side, Stopwatch, best, compare, in_turn
from benchmarks.rows import Row, beside
from endstop.store.opening import connect, open_for_writing
from endstop.store.recorder import Recorder
from endstop.store.sqlite import SqliteJournal

BUSY_S = 5.0
FLOOR = "SQLite group commit"
TARGET = 1.5
INSERT = "INSERT INTO events (run, seq, at_s, kind, call, body) VALUES (?, ?, ?, ?, ?, ?)"
READ = "SELECT run, seq, at_s, kind, call, body FROM events WHERE run = ? ORDER BY seq"
NEWEST = "SELECT run FROM runs ORDER BY id DESC LIMIT 1"


class Groups:
    """How many events of each run every transaction took."""

    def __init__(self) -> None:
        self.sizes: dict[str, list[int]] = {}

    def note(self, group: Any) -> None:
        """A transaction begins with these appends."""
        taken: dict[str, int] = {}
        for append in group:
            taken[append.run] = taken.get(append.run, 0) + len(append.events)
        for run, size in taken.items():
            if size:
                self.sizes.setdefault(run, []).append(size)


@contextmanager
def watched() -> Iterator[Groups]:
    """Note the groups of every SQLite journal; one small call per transaction."""
    groups, record = Groups(), Recorder.record

    def noting(self: Recorder, group: Any) -> Any:
        groups.note(group)
        return record(self, group)

    Recorder.record = noting  # type: ignore[method-assign]
    try:
        yield groups
    finally:
        Recorder.record = record  # type: ignore[method-assign]


class Bare:
    """The floor: rows that exist already, committed group by group."""

    def __init__(self, connection: Connection, source: Path, groups: Groups, n: int) -> None:
        self._connection = connection
        self._source = source
        self._groups = groups
        self._calls = n * noop.batches_in_a_sample(n)
        self._seen = ""
        self.transactions = 0

    def sample(self) -> Sample:
        """Write the rows of the newest run of ours once more, into our own file."""
        parts = self._newest()
        execute, many = self._connection.execute, self._connection.executemany
        watch = Stopwatch()
        with watch:
            for rows in parts:
                execute("BEGIN IMMEDIATE")
                many(INSERT, rows)
                execute("COMMIT")
        self.transactions = len(parts)
        return watch.sample(self._calls)

    def _newest(self) -> list[list[tuple[Any, ...]]]:
        with closing(connect(self._source, "ro", BUSY_S)) as reader:
            run = reader.execute(NEWEST).fetchone()[0]
            rows = reader.execute(READ, (run,)).fetchall()
        if run == self._seen:
            raise AssertionError("the floor was asked twice for one run of ours")
        self._seen = run
        # The first transaction opened the run and the last closed it: outside of our clock.
        sizes = self._groups.sizes[run]
        if sum(sizes) != len(rows):
            raise AssertionError(f"{sum(sizes)} events were recorded, {len(rows)} rows are there")
        parts, start = [], 0
        for size in sizes:
            parts.append(rows[start : start + size])
            start += size
        settled = sum(row[3] == "call_settled" for row in rows)
        if settled != self._calls:
            raise AssertionError(f"{settled} of {self._calls} calls have their ending in the file")
        if any(row[4] is not None for row in (*parts[0], *parts[-1])):
            raise AssertionError("a transaction holds rows from both sides of the clock")
        return parts[1:-1]


def measure(mode: str, n: int, rounds: int, effect: str) -> tuple[Pair, float, int, int]:
    """The pair, what ours takes with the memory journal, and rows and transactions per sample."""
    with (
        TemporaryDirectory(prefix="endstop-bench-") as folder,
        watched() as groups,
        closing(open_for_writing(Path(folder) / "bare.db", BUSY_S)) as connection,
        closing(SqliteJournal(Path(folder) / "runs.db")) as journal,
        noop.sides(mode, n, resources="none", effect=effect, journal=journal) as (_, ours),
        noop.sides(mode, n, resources="none", effect=effect) as (_, in_memory),
    ):
        bare = Bare(connection, Path(folder) / "runs.db", groups, n)

        def flushed(side: Side) -> Sample:
            sample = side()
            journal.flush()
            return sample

        flushed(ours)
        # Ours comes after the floor in each turn: the floor repeats what ours wrote a turn before.
        floors, memory, mine = in_turn(rounds, bare.sample, in_memory, lambda: flushed(ours))
        rows = sum(groups.sizes[bare._seen])
        return compare(floors, mine), best(memory).cpu_us, rows, bare.transactions


def noop_sqlite(quick: bool) -> Iterator[Row]:
    """The no-op call through the SQLite journal."""
    rounds = noop.QUICK_ROUNDS if quick else noop.ROUNDS
    for mode in ("async", "threaded", "blocking"):
        effects = ("effectful",) if quick and mode != "async" else ("effectful", "read_only")
        for effect in effects:
            for n in noop.SIZES if mode == "async" and effect == "effectful" else (100, 1000):
                pair, memory_us, rows, groups = measure(mode, n, rounds, effect)
                added_us = pair.ours.cpu_us - memory_us
                calls = n * noop.batches_in_a_sample(n)
                yield beside(
                    pair,
                    name="noop-sqlite",
                    mode=mode,
                    n=n,
                    floor=FLOOR,
                    target=TARGET if n >= 100 else None,
                    journal="sqlite",
                    resources="none",
                    effect=effect,
                    added_us=added_us,
                    added_ratio=added_us / pair.floor.cpu_us,
                    executed=calls * (rounds + 2),
                    note=f"{rows / calls:.1f} rows and {groups / calls:.3f} transactions per call; "
                    f"the journal adds {added_us:.1f} µs, {added_us / pair.floor.cpu_us:.2f} × "
                    "the floor",
                )
