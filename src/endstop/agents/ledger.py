"""The ledger: every delegated call that nobody has taken yet, by the turn that it belongs to.

A handle leaves when its answer was taken, or when it was cancelled and there is a verdict about
the peer. Whoever closes a turn closes the ledger: what is left was dropped, is stopped, waited for
and named (law 17 children-settle). Nothing here waits; closing does.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from endstop.agents.errors import DroppedHandles
from endstop.errors import NotFound
from endstop.run.base import BaseRuntime
from endstop.run.engine import Engine

if TYPE_CHECKING:
    from endstop.agents.handle import BaseHandle

log = logging.getLogger("endstop.agents")

_making = threading.Lock()


class Ledger:
    """The handles of one runtime; `owner` is the run, or the call, whose code delegated."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._handles: dict[str, dict[str, BaseHandle]] = {}
        self._ordinals: dict[str, int] = {}

    def enter(self, handle: BaseHandle) -> None:
        """A call was delegated."""
        with self._lock:
            self._handles.setdefault(handle.owner, {})[handle.id] = handle

    def leave(self, handle: BaseHandle) -> None:
        """Its answer was taken, or it was cancelled with a verdict."""
        with self._lock:
            mine = self._handles.get(handle.owner)
            if mine is not None:
                mine.pop(handle.id, None)
                if not mine:
                    del self._handles[handle.owner]

    def open(self, owner: str | None = None) -> list[BaseHandle]:
        """The handles that nobody has taken, of one owner or of all, in submission order."""
        with self._lock:
            if owner is not None:
                return list(self._handles.get(owner, {}).values())
            return [handle for mine in self._handles.values() for handle in mine.values()]

    def dropped(self, owner: str) -> list[BaseHandle]:
        """Close the books of an owner: stops and returns what nobody took.

        What was cancelled, by itself or with its owner, was not dropped: nobody is blamed for it,
        and it stays readable.
        """
        left = self.open(owner)
        dropped = [handle for handle in left if not handle.excused]
        for handle in left:
            handle.finalise()
            self.leave(handle)
        return dropped

    def ordinal(self, owner: str) -> int:
        """The next number below an owner; ids come out the same when a run is driven again."""
        with self._lock:
            number = self._ordinals.get(owner, 0)
            self._ordinals[owner] = number + 1
        return number

    def forget(self, owner: str) -> None:
        """An owner is over and delegates no more."""
        with self._lock:
            self._ordinals.pop(owner, None)

    def closed(self, run_id: str) -> None:
        """See `run.submitted.Books`; raises DroppedHandles. The run may go on to end without it."""
        if run_id in self._engine.state.runs:
            self.forget_run(run_id)
        left = self.dropped(run_id)
        if left:
            raise dropped_error(run_id, left)

    def body_is_over(self, call: str) -> None:
        """Close the books of a body that has returned; raises DroppedHandles, which fails it."""
        left = self.dropped(call)
        if left:
            raise dropped_error(call, left)

    def forget_run(self, run_id: str) -> None:
        """Let the engine forget a closed run once it is over; its handles remember their calls."""
        engine = self._engine
        engine.promise(run_id).then(lambda: engine.forget(run_id))


def ledger_of(runtime: BaseRuntime) -> Ledger:
    """The ledger of a runtime, from its first delegated call on."""
    with _making:
        if runtime.books is None:
            runtime.books = Ledger(runtime.engine)
        assert isinstance(runtime.books, Ledger), "a runtime has one ledger"
        return runtime.books


def dropped_error(owner: str, left: list[BaseHandle]) -> DroppedHandles:
    """Name what was dropped."""
    return DroppedHandles(owner, [(one.id, one.agent, one.sent) for one in left])


def watch_owner(runtime: BaseRuntime, ledger: Ledger, owner: str) -> None:
    """Forget an owner's numbers when it is over."""
    try:
        runtime.engine.promise(owner).then(lambda: ledger.forget(owner))
    except NotFound:
        ledger.forget(owner)
