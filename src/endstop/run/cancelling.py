"""The caller's handle on a cancel that a blocking runtime has accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endstop.core.state import CallState
from endstop.run.results import CallResult, CancelReport

if TYPE_CHECKING:
    from endstop.run.blocking import BlockingRuntime


class BlockingCancellation:
    """A cancel that was accepted; `wait()` says what ended and how."""

    def __init__(
        self,
        runtime: BlockingRuntime,
        target: str,
        accepted: bool,
        opened: list[CallState],
        already: list[CallResult],
    ) -> None:
        self.target = target
        self.accepted = accepted
        self._runtime = runtime
        self._opened = opened
        self._already = already
        self._promises = [runtime.engine.promise(call.id) for call in opened]

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
            ended=tuple(
                self._runtime.engine.result(call)
                for call, promise in zip(self._opened, self._promises, strict=True)
                if promise.done
            ),
            already_over=tuple(self._already),
        )
