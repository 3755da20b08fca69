"""The A2A server beside the SDK's own: the same executor, web server and clients.

What is judged is our server as `endstop serve` runs it, with its bounds and its journal, beside the
SDK's default handler behind the SDK's routes. A row that is not judged is our handler alone, behind
the same routes: what one gets who changes one line of a server. Each side is a process of its own;
clients and server share the machine's cores. Every value is ours as a share of the stock server's:
the time for each message, the time to the first event, the memory. The stock server runs as it
comes, with its tracing decorators on, which cost time even where nobody traces; rows that say so
compare with one that has them off. Ours has them off.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from benchmarks.rows import Row, plain

CLIENTS = {1: 200, 32: 600, 256: 1_000}
"""So many connections, and how many messages they send together; on SQLite a third of them."""

STREAMS = 300
RUNNING, QUICK_RUNNING = 1_000, 300
WARM = 60
SENDS = {"memory": 0.25, "sqlite": 0.1}
"""The most of the stock server's time for a message that ours may take."""

HALF = 0.5
TRACING = "OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"
UNIT = "of stock"


@dataclass(frozen=True, slots=True)
class Server:
    """One server process."""

    port: int
    process: subprocess.Popen[str]

    def held(self) -> dict[str, int]:
        """What it holds now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def _server(kind: str, store: str, *, tracing: bool = False) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        place = "memory" if store == "memory" else str(Path(folder) / f"{kind}.db")
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.served", kind, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The stock server tells there of each connection that a client closes.
            stderr=subprocess.DEVNULL,
            env={**os.environ, TRACING: str(tracing).lower()},
            text=True,
        )
        try:
            assert process.stdout is not None
            yield Server(int(process.stdout.readline()), process)
        finally:
            process.kill()
            process.communicate()


def serving(quick: bool) -> Iterator[Row]:
    """Blocking sends at 1, 32 and 256 clients, streams, and the memory of tasks that run."""
    for store in ("memory", "sqlite"):
        share = (3 if quick else 1) * (3 if store == "sqlite" else 1)
        with (
            _server("stock", store, tracing=True) as stock,
            _server("stock", store) as untraced,
            _server("endstop", store) as ours,
            _server("swapped", store) as swapped,
        ):
            for one in (stock, untraced, ours, swapped):
                asyncio.run(load.sends(one.port, 4, WARM))
            for clients, total in CLIENTS.items():
                n = max(total // share, clients)
                yield _sends(stock, ours, store, clients, n)
            n = CLIENTS[32] // share
            yield _sends(untraced, ours, store, 32, n, "tracing off", judged=False)
            yield _sends(stock, swapped, store, 32, n, "the SDK's routes", judged=False)
            yield _streams(stock, ours, store, STREAMS // share)
    yield from _running(QUICK_RUNNING if quick else RUNNING)


def _sends(
    stock: Server,
    ours: Server,
    store: str,
    clients: int,
    total: int,
    how: str = "",
    *,
    judged: bool = True,
) -> Row:
    theirs = asyncio.run(load.sends(stock.port, clients, total))
    mine = asyncio.run(load.sends(ours.port, clients, total))
    return plain(
        "serve-send",
        f"{clients} clients{', ' if how else ''}{how}",
        total,
        theirs.per_second / mine.per_second,
        UNIT,
        target=SENDS[store] if judged else None,
        journal=store,
        executed=total,
        note=f"{mine.per_second:.0f}/s, p50 {mine.at(0.5):.1f} ms, p99 {mine.at(0.99):.1f} ms; "
        f"stock {theirs.per_second:.0f}/s, {theirs.at(0.5):.1f}, {theirs.at(0.99):.1f} ms",
    )


def _streams(stock: Server, ours: Server, store: str, total: int) -> Row:
    theirs = asyncio.run(load.streams(stock.port, 32, total))
    mine = asyncio.run(load.streams(ours.port, 32, total))
    return plain(
        "serve-first-event",
        "32 streams",
        total,
        mine.at(0.5) / theirs.at(0.5),
        UNIT,
        target=HALF,
        journal=store,
        executed=total,
        note=f"p50 {mine.at(0.5):.1f} ms, p99 {mine.at(0.99):.1f} ms, {mine.per_second:.0f}/s; "
        f"stock {theirs.at(0.5):.1f}, {theirs.at(0.99):.1f} ms, {theirs.per_second:.0f}/s",
    )


def _running(n: int) -> Iterator[Row]:
    """What tasks cost that run and do nothing: memory, and the loop's own tasks."""
    grown: dict[str, float] = {}
    tasks: dict[str, int] = {}
    for kind in ("stock", "endstop"):
        with _server(kind, "memory", tracing=kind == "stock") as one:
            asyncio.run(load.sends(one.port, 4, WARM))
            before = one.held()
            asyncio.run(load.sends(one.port, 8, n, text="wait", wait=False))
            after = one.held()
            grown[kind] = (after["resident"] - before["resident"]) / n / 1024
            tasks[kind] = after["tasks"] - before["tasks"]
    yield plain(
        "serve-memory",
        "running tasks",
        n,
        grown["endstop"] / grown["stock"],
        UNIT,
        target=HALF,
        journal="memory",
        executed=n,
        note=f"{grown['endstop']:.1f} KB a task and {tasks['endstop']} asyncio tasks of the "
        f"server's loop; stock {grown['stock']:.1f} KB and {tasks['stock']}",
    )
