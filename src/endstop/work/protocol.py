"""What the runtime asks of a place where bodies run, and what such a place may tell it.

A worker starts a body, asks it to stop, kills it and proves that it is gone; it decides nothing.
All its methods may be called from any thread and must not block. It reports with `tell`, which
returns whether the core took the input: a worker tells `Claimed` immediately before the body and
runs the body only if that returned true (law 1 one-door).
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from endstop.core.inputs import Input
from endstop.core.record import record
from endstop.core.terms import Contract, Isolation

if TYPE_CHECKING:
    from endstop.tools.tool import Tool

Tell = Callable[[Input], bool]
"""Gives one input to the core; true if something happened because of it. Safe from any thread."""


class Job:
    """One call, ready to be claimed and run once it is granted.

    `arguments` are the final JSON arguments, `kwargs` the same after validation, ready to be given
    to the function. `context` is the caller's: every kind of worker runs the body in it. A worker
    reads a job and never changes it.
    """

    __slots__ = (
        "arguments",
        "call",
        "context",
        "contract",
        "effect_key",
        "kwargs",
        "run",
        "tool",
    )

    def __init__(
        self,
        *,
        call: str,
        run: str,
        tool: Tool,
        arguments: dict[str, Any],
        kwargs: dict[str, Any],
        contract: Contract,
        context: contextvars.Context,
        effect_key: str,
    ) -> None:
        self.call = call
        self.run = run
        self.tool = tool
        self.arguments = arguments
        self.kwargs = kwargs
        self.contract = contract
        self.context = context
        self.effect_key = effect_key


@record
class Sight:
    """Where a body is right now, for listings (law 9 on-the-books)."""

    call: str
    where: str
    stack: tuple[str, ...] = ()
    pid: int | None = None


class Worker(Protocol):
    """One kind of place where bodies run."""

    kind: Isolation

    def start(self, job: Job) -> None:
        """Begin towards the body: claim, run, tell `BodyEnded`; or tell `StartFailed`."""

    def ask(self, call: str) -> None:
        """Ask a body to stop; a no-op for a call that is not here (law 2 right-target)."""

    def kill(self, call: str) -> None:
        """Kill a body's whole tree and tell `BodyEnded` with the proof; a no-op if it is over."""

    def answer(self, call: str, question: str, text: str) -> None:
        """Give a body the answer to its question; a no-op for a call that is not here."""

    def look(self, call: str) -> Sight | None:
        """Where a body is, or None if it is not here."""

    def close(self) -> None:
        """Stop taking work; never waits for a wedged body (law 6 bounded-stop)."""
