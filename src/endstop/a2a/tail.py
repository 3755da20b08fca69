"""What a task's stream shows behind a number, read from the journal as it grows.

For whoever follows a task without a stream of its own, such as the outbox of push notifications.
The same projection as everywhere, so that no two of them can disagree. Waits for the journal's
file: not for an event loop's thread.
"""

from __future__ import annotations

from collections import deque

from a2a.types import StreamResponse

from endstop.a2a.states import ARTIFACT_SHOWN, STATUS_SHOWN
from endstop.a2a.task import TaskView
from endstop.store.protocol import Journal

PAGE = 100
"""Changes read ahead at once."""

Change = tuple[int, StreamResponse]


class Tail:
    """One task, followed from any number on; remembers where it is, so that going on is cheap."""

    def __init__(self, journal: Journal, task_id: str) -> None:
        self._journal = journal
        self._task_id = task_id
        self._start_over()

    def _start_over(self) -> None:
        self._view = TaskView(self._task_id)
        # Read, and not known to be delivered.
        self._pending: deque[Change] = deque()
        self._dropped = 0

    @property
    def over(self) -> bool:
        """Whether the task's ending is among what was read, so that nothing follows it."""
        return self._view.over

    def page(self, after: int) -> list[Change]:
        """The next changes behind a number, in order; empty where it is up to date."""
        if after < self._dropped:
            self._start_over()
        pending = self._pending
        while pending and pending[0][0] <= after:
            pending.popleft()
        self._dropped = max(self._dropped, after)
        if not pending:
            self._read(after)
        return list(pending)

    def _read(self, after: int) -> None:
        for recorded in self._journal.read(self._task_id, self._view.seq):
            shown = self._view.apply(recorded.event, recorded.at_s)
            assert self._view.seq == recorded.seq, "a run's numbers have no gap"
            if recorded.seq <= after:
                continue
            self._pending.extend((recorded.seq, one) for one in _responses(self._view, shown))
            if len(self._pending) >= PAGE:
                return


def _responses(view: TaskView, shown: int) -> list[StreamResponse]:
    if view.seq == 1:
        # Whoever is there from the beginning is shown the task first, as in a stream.
        return [StreamResponse(task=view.task())]
    found = []
    if shown & ARTIFACT_SHOWN:
        found.append(StreamResponse(artifact_update=view.artifact_update()))
    if shown & STATUS_SHOWN:
        found.append(StreamResponse(status_update=view.status_update()))
    return found
