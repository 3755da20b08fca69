"""Recovery: how long it takes to take up a large run whose driver is gone.

The journal has 10,000 finished calls and 1,000 unfinished ones, in one run. It is written by the
core itself, call by call, and left behind as a crash leaves it. What is measured is everything from
opening the file to the moment at which the run goes on, and to its last answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.rows import Row, plain
from endstop import BlockingRuntime, Config, tool
from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.state import State
from endstop.core.terms import Contract, How, Isolation
from endstop.store.protocol import Durability
from endstop.store.sqlite import SqliteJournal

BATCH = 100
TARGET_S = 2.0
RUN = "r"


@tool(effect="effectful")
async def work(n: int) -> int:
    """A body that does nothing."""
    return n


def left_behind(path: Path, finished: int, unfinished: int) -> None:
    """Write the journal of a run that was cut off."""
    state = State({Isolation.COROUTINE: 1})
    journal = SqliteJournal(path)
    seq = 0

    def say(said: i.Input) -> None:
        nonlocal seq
        events = [one for one in step(state, said, 0.0) if not isinstance(one, e.TRANSIENT)]
        if events:
            journal.append(RUN, seq, events, Durability.BUFFERED)
            seq += len(events)

    say(i.OpenRun(run=RUN))
    contract = Contract(deadline_s=None, start_s=None)
    for number in range((finished + unfinished) // BATCH):
        asked = tuple(
            i.Asked(model_id="m", tool="work", arguments={"n": n}, contract=contract)
            for n in range(BATCH)
        )
        say(i.SubmitBatch(run=RUN, calls=asked))
        for index in range(BATCH if number < finished // BATCH else 0):
            call = f"{RUN}/{number}.{index}"
            say(i.Claimed(call=call))
            say(i.BodyEnded(call=call, how=How.RETURNED, value=index))
    journal.close()


def recovery(quick: bool) -> Iterator[Row]:
    """Seconds to open and resume, and to the last answer."""
    finished, unfinished = (1_000, 100) if quick else (10_000, 1_000)
    config = Config.load(directory="/", environ={})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        left_behind(path, finished, unfinished)
        began = perf_counter()
        with BlockingRuntime([work], journal=f"sqlite:{path}", config=config) as runtime:
            run = runtime.resume(RUN)
            resumed_s = perf_counter() - began
            results = [one for batch in run.finish() for one in batch]
            all_s = perf_counter() - began
    assert len(results) == finished + unfinished, "every call has its answer"
    assert sum(not one.ok for one in results) == 1, "only the one that had begun is lost"
    note = f"{finished:,} finished and {unfinished:,} unfinished calls in one SQLite run"
    executed = unfinished - 1
    yield plain(
        "recovery",
        "open and resume",
        finished + unfinished,
        resumed_s,
        "s",
        target=TARGET_S,
        journal="sqlite",
        note=note,
    )
    yield plain(
        "recovery",
        "to the last answer",
        finished + unfinished,
        all_s,
        "s",
        journal="sqlite",
        executed=executed,
        note=note,
    )
