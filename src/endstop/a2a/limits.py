"""The bounds of a task: how large, how many, how long. Values only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from endstop.errors import CallerError


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """What one task, one message and one reader may take; sizes in bytes, times in seconds.

    `message_bytes` bounds a message to the task, `event_bytes` one event of its executor,
    `task_bytes` all that an executor may add to a task. `messages` bounds how many messages may
    wait while the executor works, `behind` how many updates a reader may be behind before its
    stream ends with an error (law 18 audience-free). `first_event_s` is how long a stream waits for
    the executor's first word before it shows the task as it stands.
    """

    message_bytes: int = 4 * 1024 * 1024
    event_bytes: int = 6 * 1024 * 1024
    task_bytes: int = 128 * 1024 * 1024
    messages: int = 100
    behind: int = 10_000
    behind_bytes: int = 16 * 1024 * 1024
    first_event_s: float = 0.5
    courtesy_s: float = 5.0

    def __post_init__(self) -> None:
        check_above_zero(self)


def check_above_zero(limits: Any) -> None:
    """Raise CallerError where a field of these limits is not a number above 0."""
    for one in fields(limits):
        value = getattr(limits, one.name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            name = f"{type(limits).__name__}: {one.name}"
            raise CallerError(f"{name} is a number above 0, not {value!r}")
