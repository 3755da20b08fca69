"""What a caller waits for: a batch with its calls, all batches of a run, the life of a run.

Taken before the wait, because a run may be let go and forgotten before the waiter comes to read the
answers that are owed to it (law 4 one-answer). Nothing here waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from endstop.core.state import CallState
from endstop.errors import NotFound, RunSuspended
from endstop.run.promise import Promise

if TYPE_CHECKING:
    from endstop.run.engine import Engine


class BatchWait(NamedTuple):
    """A batch that is waited for, and its calls."""

    batch: str
    over: Promise
    calls: list[CallState]


def wait_for(engine: Engine, batch: str) -> BatchWait:
    """A batch that was just handed in. Raises RunSuspended where its run was let go meanwhile."""
    try:
        return BatchWait(batch, engine.promise(batch), engine.calls_of(batch))
    except NotFound:
        raise RunSuspended(f"run {batch.partition('/')[0]!r} was suspended") from None


def waits_of(engine: Engine, run_id: str) -> list[BatchWait]:
    """The batches of a run, in order; none where it is not here any more."""
    with engine.lock:
        run = engine.state.runs.get(run_id)
        batches = [batch.id for batch in run.batches] if run is not None else []
    return [wait_for(engine, batch) for batch in batches]


def life_of(engine: Engine, run_id: str) -> Promise:
    """A promise that a run is over here; one that nobody keeps for a run that is not here."""
    life = Promise(engine._promise_lock)
    run = engine.state.runs.get(run_id)
    # Without the engine's lock: one is taken for every run, when it has just been opened.
    return life if run is None or run.ended else engine._promises.setdefault(run_id, life)
