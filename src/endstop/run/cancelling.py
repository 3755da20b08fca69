"""The caller's handle on a cancel that a blocking runtime has accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endstop.run.results import CancelReport
from endstop.run.stopping import Accepted

if TYPE_CHECKING:
    from endstop.run.blocking import BlockingRuntime


class BlockingCancellation:
    """A cancel that was accepted; `wait()` says what ended and how."""

    def __init__(
        self,
        runtime: BlockingRuntime,
        target: str,
        cancel: Accepted,
    ) -> None:
        self.target = target
        self.accepted = cancel.accepted
        self._runtime = runtime
        self._opened, self._already, self._ended = cancel.opened, cancel.already, cancel.ended
        self._promises = [runtime.engine.promise(call.id) for call in self._opened]

    def wait(self, timeout_s: float | None = None) -> CancelReport:
        """Wait until what was cancelled is over; the ladder bounds that. At most `timeout_s`."""
        over = True
        for promise in self._promises:
            over = self._runtime._until(promise, timeout_s) and over
        self._runtime._check_owned(self.target, self._opened)
        return CancelReport(
            target=self.target,
            accepted=self.accepted,
            over=over,
            ended=(
                *self._ended,
                *(
                    self._runtime.engine.result(call)
                    for call, promise in zip(self._opened, self._promises, strict=True)
                    if promise.done
                ),
            ),
            already_over=tuple(self._already),
        )
