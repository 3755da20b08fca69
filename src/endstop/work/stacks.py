"""Where a thread is, for listings (law 9 on-the-books)."""

from __future__ import annotations

import sys
import traceback


def stack_of(thread: int) -> tuple[str, ...]:
    """The lines that a thread is in, the innermost first; none where there is no such thread."""
    frame = sys._current_frames().get(thread)
    stack = traceback.extract_stack(frame) if frame is not None else []
    return tuple(f"{one.filename}:{one.lineno} in {one.name}" for one in reversed(stack))
