"""Calls that are handed in and not waited for yet: the seam for handles of delegated calls.

A batch is submitted at once, so that its calls have their ids, can be cancelled and get their
answers whoever forgets them. A deferred call is accepted and nothing more: it stays in `preparing`
until it is sent, asks no hook and holds nothing. Nothing here waits; a driver does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from endstop.core.state import CallState
from endstop.core.terms import ToolCall
from endstop.errors import EndstopError
from endstop.run.promise import Promise

if TYPE_CHECKING:
    from endstop.run.base import BaseRuntime, BatchTerms
    from endstop.run.plans import Plan
    from endstop.tools.tool import Tool

here: ContextVar[BaseRuntime] = ContextVar("endstop_runtime")
"""The runtime whose body runs here."""


class Recalled:
    """A call that is taken up, and the reference that its lost attempt noted.

    For one attempt only: should that fail, the next one begins something else.
    """

    __slots__ = ("_call", "_reference")

    def __init__(self, call: str, reference: Any) -> None:
        self._call = call
        self._reference = reference

    def take(self, call: str) -> tuple[Any] | None:
        """The reference, once, and for its own call only; None where there is none."""
        if call != self._call:
            return None
        self._call = ""
        return (self._reference,)


recalled: ContextVar[Recalled | None] = ContextVar("endstop_recalled", default=None)
"""What the body that runs here may go on with."""


class Books(Protocol):
    """Keeps what was submitted until somebody takes it; told of every run that is closed."""

    def closed(self, run_id: str) -> None:
        """No further batch of a run will come. Raises for what nobody took."""


class Own(NamedTuple):
    """The tool of a call that does not come from a model, and whether the call is sent later."""

    tool: Tool
    deferred: bool = False


class Submitted:
    """A batch that was handed in: its calls, and the promises that they are over."""

    def __init__(
        self,
        runtime: BaseRuntime,
        run_id: str,
        calls: Iterable[ToolCall],
        terms: BatchTerms,
        own: Sequence[Own],
    ) -> None:
        self.run_id = run_id
        self._runtime = runtime
        self._lock = threading.Lock()
        engine = runtime.engine
        self.batch_id, unprepared = runtime._submit(run_id, calls, terms, own)
        self.calls: list[CallState] = engine.calls_of(self.batch_id)
        self.promises: list[Promise] = [engine.promise(call.id) for call in self.calls]
        self._unsent: dict[str, Plan] = dict(unprepared)
        for call, one in zip(self.calls, own, strict=True):
            if not one.deferred:
                self.send(call.id)

    def is_sent(self, call_id: str) -> bool:
        """Whether a call was sent, or never needs to be."""
        return call_id not in self._unsent

    def send(self, call_id: str) -> bool:
        """Let a deferred call go on, once; false if it was sent before."""
        with self._lock:
            plan = self._unsent.pop(call_id, None)
        if plan is None:
            return False
        self._runtime._begin_preparing(call_id, self.run_id, plan)
        return True


def close_after(close: Callable[[], None], error: BaseException | None) -> None:
    """Close a run at the end of its block; an error that is under way is not replaced."""
    try:
        close()
    except EndstopError as problem:
        if error is None:
            raise
        error.add_note(f"and closing the run: {problem}")
