"""Forgetting: a run that is over here leaves memory; the journal keeps it.

It has its ending, or was let go for somebody else to take up. Nothing here decides which; whoever
waits for a run that was let go is told so, and nobody is left waiting (law 16 survives-restart).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from endstop.core.state import RunState

if TYPE_CHECKING:
    from endstop.run.engine import Engine


def forget(engine: Engine, run_id: str) -> None:
    """See `Engine.forget`."""
    with engine.lock:
        run = engine.state.runs.get(run_id)
        if run is None or not run.ended:
            return
        if run.let_go and run_id not in engine.fences:
            # Whoever waits for it is told first, when the journal has it.
            return
        for batch in run.batches:
            for call in batch.calls:
                if not call.alive:
                    engine.state.calls.pop(call.id, None)
                    engine.plans.pop(call.id, None)
            if batch.id not in engine._recording:
                engine._promises.pop(batch.id, None)
        engine._leaving.add(run_id)
        if not any(call.alive for batch in run.batches for call in batch.calls):
            engine._leaving.remove(run_id)
            del engine.state.runs[run_id]
            engine.fences.pop(run_id, None)
            # A run, its batches and their calls know one another; the collector need not find out
            # that nobody else knows them.
            for batch in run.batches:
                batch.calls = []
            run.batches = []


def let_go(engine: Engine, run_id: str, error: Exception) -> None:
    """A run was let go: break off its hooks, forget it, tell `error` to whoever waits for it."""
    with engine.lock:
        run = engine.state.runs.get(run_id)
        if run is None or not run.let_go:
            return
        # What an abandoned worker may still say of it is not recorded: somebody else may drive it.
        run.fenced = True
        engine.fences[run_id] = error
        plans = [plan for call in _calls(run) if (plan := engine.plans.get(call)) is not None]
        names = [run_id, *(batch.id for batch in run.batches), *_calls(run)]
    for plan in plans:
        if plan.hook_task is not None and engine.driver is not None:
            engine.driver.stop_hook(plan)
    # Before anybody is told: whoever hears of it may take the run up again at once.
    waiting = [promise for name in names if (promise := engine._promises.pop(name, None))]
    forget(engine, run_id)
    for promise in waiting:
        promise.keep(error)


def _calls(run: RunState) -> Iterator[str]:
    for batch in run.batches:
        for call in batch.calls:
            yield call.id
