"""Crashes without a process: a journal that ends anywhere, and a runtime that takes it up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from endstop import BatchResult
from endstop.core import events as e
from endstop.store.memory import MemoryJournal
from endstop.store.protocol import Durability
from endstop.testing.laws import check_state, check_story
from tests.driving import House, patient


def recorded(house: House, run: str = "r") -> list[e.Event]:
    """What a house has recorded of a run so far."""
    return [one.event for one in house.rt.engine.journal.read(run)]


def crashed(events: Sequence[e.Event], run: str = "r") -> MemoryJournal:
    """A journal whose driver is gone after these events."""
    journal = MemoryJournal()
    if events:
        journal.append(run, 0, list(events), Durability.BUFFERED)
    journal.close()
    return journal


def cut_after(events: Iterable[e.Event], kind: type, call: str) -> list[e.Event]:
    """The events up to the first of this kind for this call."""
    found: list[e.Event] = []
    for event in events:
        found.append(event)
        if isinstance(event, kind) and getattr(event, "call", call) == call:
            return found
    raise AssertionError(f"no {kind.__name__} of {call} was recorded")


class Resumed:
    """A run that a house has taken up."""

    def __init__(self, house: House, run: str = "r") -> None:
        # Its observers see only the second half of the story; the journal has all of it.
        house.lawful = False
        self.house = house
        self.id = run
        if house.kind == "blocking":
            self.run: Any = house.rt.resume(run)
        else:
            self.run = house.await_there(house.rt.resume(run))

    def finish(self) -> list[BatchResult]:
        """The answers of all batches; the whole story must be lawful then."""
        limit_s = patient(20.0)
        if self.house.kind == "blocking":
            found: list[BatchResult] = self._on_a_thread().result(limit_s)
        else:
            found = self.house.await_there(self.run.finish())
        self.check()
        return found

    def begin_finish(self) -> Future[list[BatchResult]]:
        """Wait for the answers somewhere else."""
        if self.house.kind == "blocking":
            return self._on_a_thread()
        return asyncio.run_coroutine_threadsafe(self.run.finish(), self.house._loop)

    def _on_a_thread(self) -> Future[list[BatchResult]]:
        import threading

        future: Future[list[BatchResult]] = Future()

        def work() -> None:
            try:
                future.set_result(self.run.finish())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def check(self) -> None:
        """The laws hold for the state, and for the story across the crash."""
        story = recorded(self.house, self.id)
        assert check_story(story, complete=False) == []
        with self.house.rt.engine.lock:
            assert check_state(self.house.state) == []
