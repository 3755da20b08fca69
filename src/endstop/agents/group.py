"""Groups of handles: several delegated calls that are waited for together.

A group waits for all of its members before it says what became of any: one that fails leaves
nobody pending (law 14 isolated-siblings). Values come in submission order, not in that of ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

from endstop.agents.errors import DelegationFailed, HandleCancelled
from endstop.agents.handle import BaseHandle, BlockingHandle, Handle
from endstop.core.terms import Mode
from endstop.errors import CallerError
from endstop.run.results import CallResult

Member = TypeVar("Member", bound=BaseHandle)


class BaseGroup(Generic[Member]):
    """What the groups of both drivers share."""

    def __init__(self, handles: Sequence[Member]) -> None:
        self.handles = tuple(handles)
        _check(self.handles)

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.handles)

    def __getitem__(self, index: int) -> Member:
        return self.handles[index]

    @property
    def done(self) -> bool:
        """Whether every member has its ending."""
        return all(handle.done for handle in self.handles)

    def cancel(self, mode: Mode | str = Mode.INTERRUPT) -> bool:
        """Stop every member that is open; false if none was. See `Handle.cancel`."""
        stopped = [handle.cancel(mode) for handle in self.handles]
        return any(stopped)

    def _disown(self) -> None:
        for handle in self.handles:
            if not handle.detached:
                handle.cancel()

    def _values(self, answers: list[CallResult]) -> list[Any]:
        """The values in order. Raises for the first that did not succeed, and names the others."""
        values, wrong = [], []
        for handle, answer in zip(self.handles, answers, strict=True):
            try:
                values.append(handle.value_of(answer))
            except (DelegationFailed, HandleCancelled) as error:
                wrong.append(error)
        if wrong:
            for other in wrong[1:]:
                wrong[0].add_note(f"and {other}")
            raise wrong[0]
        return values


class Group(BaseGroup[Handle]):
    """Handles on an async runtime: `values = await group`."""

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self._gathered().__await__()

    async def _gathered(self) -> list[Any]:
        return self._values(await self.answered())

    async def answered(self) -> list[CallResult]:
        """Wait for the answer of every member, whatever it is; in submission order.

        If the task that waits is cancelled, so are the members (not the detached ones), and
        CancelledError is raised when they are over.
        """
        if not self.handles:
            return []
        for handle in self.handles:
            handle.send()
        runtime = self.handles[0]._base
        cancelled = False
        if not self.done:
            parked = runtime._parking.begin()
            for handle in self.handles:
                if not (cancelled and handle.detached):
                    cancelled = await handle.until_over(self._disown) or cancelled
            if parked is not None:
                cancelled = await runtime._go_on(parked) or cancelled
        for handle in self.handles:
            cancelled = await handle.settle() or cancelled
        if cancelled:
            raise asyncio.CancelledError
        return [await handle.answered() for handle in self.handles]


class BlockingGroup(BaseGroup[BlockingHandle]):
    """Handles on a blocking runtime: `values = group.result()`."""

    def result(self, timeout_s: float | None = None) -> list[Any]:
        """The values in submission order. Raises for the first member that did not succeed.

        Raises TimeoutError, and stops nothing, if not all are over within `timeout_s`.
        """
        return self._values(self.answered(timeout_s))

    def answered(self, timeout_s: float | None = None) -> list[CallResult]:
        """Wait for the answer of every member, whatever it is; in submission order."""
        for handle in self.handles:
            handle.send()
        clock = self.handles[0]._base.engine.clock if self.handles else None
        give_up = None if timeout_s is None or clock is None else clock() + timeout_s
        for handle in self.handles:
            left = None if give_up is None or clock is None else max(give_up - clock(), 0.0)
            if not handle.wait(left):
                raise TimeoutError(f"{handle.id} ({handle.agent}) is not over in {timeout_s} s")
        return [handle.answered() for handle in self.handles]


def gather(*handles: Handle) -> Group:
    """Several handles as a group: `a, b = await gather(first, second)`.

    Raises CallerError for one that is given twice and for handles of different runtimes.
    """
    return Group(handles)


def _check(handles: Sequence[BaseHandle]) -> None:
    seen: set[str] = set()
    for handle in handles:
        if not isinstance(handle, BaseHandle):
            raise CallerError(f"a group takes handles, not {type(handle).__name__}")
        if handle.id in seen:
            raise CallerError(f"handle {handle.id} is given twice to one group")
        if handle._base is not handles[0]._base:
            raise CallerError(f"handle {handle.id} belongs to another runtime than {handles[0].id}")
        seen.add(handle.id)
