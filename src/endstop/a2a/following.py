"""Following: the tasks that another server drives, read from the journal while somebody looks.

One thread, only while there is something to follow, ten looks a second. A followed task has a view
like any other, so whoever waits for it or watches it sees no difference. Nothing here changes a
task.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic

from endstop.a2a.live import Hall
from endstop.a2a.livetask import LiveTask
from endstop.errors import EndstopError
from endstop.store.protocol import Journal

log = logging.getLogger("endstop.a2a")

LOOK_S = 0.1
"""How often the journal is looked at."""
UNUSED_S = 30.0
"""How long a task is followed that nobody waits for or watches."""


class Follower:
    """Feeds the views of tasks that are driven elsewhere."""

    def __init__(self, journal: Journal, hall: Hall) -> None:
        self._journal = journal
        self._hall = hall
        self._tasks: dict[str, tuple[LiveTask, float]] = {}
        self._lock = threading.Lock()
        self._nudge = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def follow(self, task: LiveTask) -> LiveTask:
        """Follow a task from what its view has on; the one that is followed already, if any."""
        with self._lock:
            known = self._tasks.get(task.id)
            if known is not None:
                task = known[0]
            self._tasks[task.id] = task, monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._work, name="endstop-a2a-follow", daemon=True
                )
                self._thread.start()
        return task

    def known(self, task_id: str) -> LiveTask | None:
        """The task of this id, where it is followed."""
        known = self._tasks.get(task_id)
        return known[0] if known is not None else None

    def release(self, task: LiveTask) -> None:
        """Follow a task no more: it is over, or driven here from now on."""
        with self._lock:
            if self.known(task.id) is task:
                del self._tasks[task.id]

    def nudge(self) -> None:
        """Look now; from any thread."""
        self._nudge.set()

    def close(self) -> None:
        """Follow nothing more."""
        with self._lock:
            self._closed = True
            self._tasks.clear()
        self._nudge.set()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._thread = None
                    return
                tasks = list(self._tasks.values())
            for task, since in tasks:
                try:
                    self._look(task, since)
                except EndstopError as error:
                    if self._closed:
                        return
                    log.warning("task %s cannot be followed: %s", task.id, error)
            self._nudge.wait(LOOK_S)
            self._nudge.clear()

    def _look(self, task: LiveTask, since: float) -> None:
        recorded = list(self._journal.read(task.id, task.view.seq))
        if self.known(task.id) is not task:
            # It is driven here since: the observer tells of it.
            return
        self._hall.catch_up(task, recorded)
        with self._hall.lock:
            used = bool(task.waiters or task.streams)
        if task.view.over:
            self.release(task)
        elif used:
            with self._lock:
                if self.known(task.id) is task:
                    self._tasks[task.id] = task, monotonic()
        elif monotonic() - since > UNUSED_S:
            self.release(task)
