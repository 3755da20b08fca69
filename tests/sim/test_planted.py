"""Bugs that the drivers once had or could have, planted again: the seeds must see each.

A planted bug is a change at run time; what it changes is the code that is tested elsewhere as it
is. Few seeds are enough, and the test says how few.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from endstop.core import gate, settling
from endstop.core import inputs as i
from endstop.run.engine import Engine
from endstop.run.fence import Refused
from endstop.run.runtime import Runtime
from endstop.testing.simworker import SimWorker
from endstop.work.coroutine import CoroutineWorker
from tests.sim.seeds import broken_laws

SEEDS = 150

Plant = Callable[[pytest.MonkeyPatch], None]


def stale_alarm(patch: pytest.MonkeyPatch) -> None:
    """The blocking driver is not told of timers that come after one that was taken back."""
    patch.setattr(Engine, "next_due", lambda self: self._earliest())


def refused_is_recorded(patch: pytest.MonkeyPatch) -> None:
    """What the journal refused is acted on as if it were recorded."""
    patch.setattr(Refused, "then", lambda self, callback: callback(None))


def claims_of_refused(patch: pytest.MonkeyPatch) -> None:
    """A body begins although the record of its start was refused."""
    patch.setattr(Engine, "_turned_away", lambda self, said: False)


def nobody_claims(patch: pytest.MonkeyPatch) -> None:
    """A worker runs the body whatever the core answers to its claim."""
    init = SimWorker.__init__

    def made(self: SimWorker, kind: Any, tell: Any, *rest: Any) -> None:
        init(self, kind, lambda said: tell(said) or isinstance(said, i.Claimed), *rest)

    patch.setattr(SimWorker, "__init__", made)


def gate_without_cancel(patch: pytest.MonkeyPatch) -> None:
    """A call that is through the gate is not stopped by a cancel."""
    stop_call = settling.stop_call

    def stops(call: Any, *rest: Any) -> Any:
        return [] if call.phase == "granted" else stop_call(call, *rest)

    patch.setattr(settling, "stop_call", stops)
    patch.setattr(gate, "forbidden", lambda call: None)


def no_ask(patch: pytest.MonkeyPatch) -> None:
    """The timer of the grace is never armed again after the ask: nobody is abandoned."""
    patch.setattr(settling, "last_rungs", lambda call, now: [])


def native_cancel_unheard(patch: pytest.MonkeyPatch) -> None:
    """The async driver hears no native cancel of whoever waits for it."""

    async def until(self: Runtime, promise: Any, on_cancel: Any) -> bool:
        while not promise.done:
            waiter = asyncio.get_running_loop().create_future()
            promise.then(lambda waiter=waiter: waiter.done() or waiter.set_result(None))
            await waiter
        return False

    patch.setattr(Runtime, "_until", until)


def lost_late_end(patch: pytest.MonkeyPatch) -> None:
    """A coroutine that ends late tells nobody: what it held stays taken for ever."""
    init = CoroutineWorker.__init__

    def made(self: CoroutineWorker, tell: Any, loop: Any) -> None:
        def tells(said: i.Input) -> bool:
            alive = isinstance(said, i.BodyEnded) and said.how == "raised"
            return not alive and bool(tell(said))

        init(self, tells, loop)

    patch.setattr(CoroutineWorker, "__init__", made)


PLANTS: list[Plant] = [
    stale_alarm,
    refused_is_recorded,
    claims_of_refused,
    nobody_claims,
    gate_without_cancel,
    no_ask,
    native_cancel_unheard,
    lost_late_end,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            if broken_laws(seed):
                return
        except AssertionError:
            return
    pytest.fail(f"{plant.__name__} went unseen in {SEEDS} seeds: {plant.__doc__}")
