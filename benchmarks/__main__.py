"""Run the benchmarks: `python -m benchmarks [--quick] [--json|--markdown] [NAME…]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

from benchmarks import (
    delegation,
    footprint,
    journal,
    noop,
    parked,
    reading,
    recovery,
    serving,
    stopping,
    table,
)
from benchmarks.rows import Row

BENCHMARKS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "noop": noop.noop,
    "noop-read-only": noop.noop_read_only,
    "noop-one-key": noop.noop_one_key,
    "noop-undeclared": noop.noop_undeclared,
    "noop-sqlite": journal.noop_sqlite,
    "linear": noop.linear,
    "read-reply": reading.read_reply_rows,
    "delegate": delegation.delegated,
    "waiters": stopping.waiters,
    "cancel-coroutine": stopping.cancel_coroutine,
    "cancel-thread": stopping.cancel_thread,
    "cancel-tree": stopping.cancel_tree,
    "process-call": stopping.process_call,
    "recovery": recovery.recovery,
    "import": footprint.import_time,
    "install": footprint.install_size,
    "memory": footprint.memory,
    "parked": parked.parked,
    "serving": serving.serving,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure what was named, or everything, and print each row when it is there."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="What a call costs, each beside its floor."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; rougher numbers")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one JSON object per line")
    shape.add_argument("--markdown", action="store_true", help="the table for the documents")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    if options.markdown:
        print(*table.markdown_heading(), sep="\n")
    elif not options.json:
        print(table.heading())
    for name in options.names or BENCHMARKS:
        for row in BENCHMARKS[name](options.quick):
            if options.json:
                print(json.dumps(row.as_json()), flush=True)
            elif options.markdown:
                print(table.markdown(row), flush=True)
            else:
                print(*table.lines(row), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
