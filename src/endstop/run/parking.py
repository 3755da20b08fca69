"""Bodies that wait for calls of their own: a parent that waits for its children holds no slot.

A body that runs a batch on its own runtime is parked while it waits (law 12 no-leaked-lock), else
parents could hold every slot that their children need. It may wait for several batches at once, so
the waits are counted: it is parked with the first one and stands in line again after the last.
Nothing here waits; the driver does.
"""

from __future__ import annotations

import threading

from endstop.core import inputs as i
from endstop.core.terms import Isolation
from endstop.errors import CallerError
from endstop.run.engine import Engine
from endstop.run.promise import Promise
from endstop.tools.context import current
from endstop.work.thread import ThreadWorker


class Parking:
    """The bodies of one runtime that wait for batches of their own."""

    def __init__(self, engine: Engine, threads: ThreadWorker) -> None:
        self._engine = engine
        self._threads = threads
        self._lock = threading.Lock()
        self._waits: dict[str, int] = {}

    def begin(self) -> str | None:
        """The body that runs here is about to wait; returns its call, None outside of bodies."""
        try:
            name = current().call_id
        except CallerError:
            return None
        call = self._engine.state.calls.get(name)
        if call is None:
            return None
        with self._lock:
            self._waits[name] = self._waits.get(name, 0) + 1
            first = self._waits[name] == 1
        if call.contract.isolation is Isolation.THREAD:
            # Its thread does nothing meanwhile, and the child needs one.
            self._threads.lend(1)
        if first:
            self._engine.tell(i.ParkBegan(call=name))
        return name

    def end(self, name: str) -> Promise | None:
        """One wait is over; returns what to wait for before the body may go on, if anything."""
        call = self._engine.state.calls.get(name)
        with self._lock:
            left = self._waits[name] - 1
            assert left >= 0, "a wait ends once"
            if left:
                self._waits[name] = left
            else:
                del self._waits[name]
        if call is None or call.contract.isolation is Isolation.THREAD:
            self._threads.lend(-1)
        if left:
            return None
        promise = self._engine.unparked(name)
        if self._engine.tell(i.ParkEnded(call=name)):
            return promise
        self._engine.go_on(name)
        return None

    def resumed(self, name: str) -> None:
        """The body has a slot again; if it began to wait meanwhile, it gives that back."""
        with self._lock:
            waits = name in self._waits
        if waits:
            self._engine.tell(i.ParkBegan(call=name))
