"""The fence: what becomes of a run whose appends the journal does not take any more.

Another driver owns it, or the file is unusable. What was decided here is then not recorded: nothing
of it starts, nothing of it is shown, and nobody is left waiting for it (laws 3 and 15).
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Refused:
    """The ticket of an append that was not taken."""

    __slots__ = ("_error",)

    def __init__(self, error: Exception) -> None:
        self._error = error

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        """See `store.protocol.Ticket`."""
        callback(self._error)


def on_a_thread(function: Callable[[], object]) -> None:
    """Run a function outside of the step that is under way."""
    threading.Thread(target=function, name="endstop-fence", daemon=True).start()
