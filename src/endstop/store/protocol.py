"""What the runtime asks of a journal: ordered events of a run, appended with an expected number.

A journal records and reads; it decides nothing and knows no rule but three: numbers of a run have
no gap, an append with the wrong expected number is refused (law 3 one-ending, the fence), and a
call has at most one ending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from endstop.core.events import Event
from endstop.store.shelf import Shelf


class Durability(IntEnum):
    """What an append must survive before its ticket is done (design §7)."""

    BUFFERED = 0
    """Nothing: it is recorded soon, nobody waits."""
    PROCESS = 1
    """The death of this process: committed."""
    MACHINE = 2
    """The death of the machine: committed and flushed to stable storage."""


class Ticket(Protocol):
    """The promise of a journal that an append will be as durable as was asked."""

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """Call back once, from any thread, with None or the error; at once if already decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One event as the journal keeps it: `seq` counts from 1 in its run, `at_s` is wall time."""

    run: str
    seq: int
    at_s: float
    event: Event


class Journal(Protocol):
    """The ordered record of runs."""

    def append(
        self, run: str, expected_seq: int, events: Sequence[Event], durability: Durability
    ) -> Ticket | None:
        """Record events after number `expected_seq` of a run.

        Returns None where they are already as durable as asked. A stale writer gets `StaleWriter`,
        raised or through the ticket, and nothing of the append is kept; a journal that has failed
        or was closed raises `JournalError`. Never waits for a file.
        """

    def read(self, run: str, after_seq: int = 0) -> Iterator[Recorded]:
        """The events of a run in order, from the one after `after_seq`."""

    def runs(self) -> list[str]:
        """The ids of all runs, oldest first."""

    def orphans(self) -> list[str]:
        """Runs without an ending whose driver is not alive any more (law 16 survives-restart)."""

    def adopt(self, run: str) -> bool:
        """Become the driver of an orphan; false if somebody else was faster."""

    def release(self, run: str) -> None:
        """Let go of a run that this journal drives: whoever comes may adopt it.

        Nothing of it may be appended by this journal before it is adopted again.
        """

    def shelf(self) -> Shelf:
        """Small durable records beside the runs, for what is no run's history."""

    def labelled(self, labels: Mapping[str, str]) -> list[str]:
        """The runs that were opened with all of these labels, newest first."""

    def last_at(self, run: str) -> float | None:
        """The wall time of the last event of a run; None for an unknown one."""

    def driver(self, run: str) -> str | None:
        """Who drives a run, in words for an error message; None where nobody is known to."""

    def close(self) -> None:
        """Write what is buffered and let go: runs that have not ended become orphans.

        Idempotent. Raises `JournalError` where appends were lost that no ticket could tell of.
        """
