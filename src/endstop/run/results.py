"""What a caller reads of a call, a batch and a cancel. Values only; nothing here acts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from endstop.core.events import CallSettled
from endstop.core.terms import Earlier, Effect, Flag, Money, Outcome, Reason, StoppedBy
from endstop.tools.observation import Observation, observe


class CallResult:
    """How one call ended: its one honest answer (laws 4 one-answer and 5 honest-effect)."""

    __slots__ = ("__dict__", "_settled", "arguments", "earlier", "model_id", "tool")

    def __init__(
        self,
        settled: CallSettled,
        model_id: str,
        tool: str,
        arguments: dict[str, Any] | None,
        earlier: Earlier | None = None,
    ) -> None:
        """`earlier` is the same call issued before, of which it is not known what it did."""
        self.earlier = earlier
        self._settled = settled
        self.model_id = model_id
        self.tool = tool
        self.arguments = arguments

    @property
    def call_id(self) -> str:
        """The runtime's own id of the call: `RUN/BATCH.INDEX`."""
        return self._settled.call

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self._settled.outcome

    @property
    def reason(self) -> Reason:
        """Why it ended so."""
        return self._settled.reason

    @property
    def effect(self) -> Effect:
        """What may be true of the world now."""
        return self._settled.effect

    @property
    def value(self) -> Any:
        """What the body returned, as JSON-safe data."""
        return self._settled.value

    @property
    def error(self) -> str | None:
        """What went wrong, in words."""
        return self._settled.error

    @property
    def output(self) -> Any:
        """What a stopped body had produced so far."""
        return self._settled.output

    @property
    def stopped_by(self) -> StoppedBy | None:
        """The rung of the stop ladder that ended it, if one did."""
        return self._settled.stopped_by

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What else is true of the ending."""
        return self._settled.flags

    @property
    def survivors(self) -> tuple[str, ...]:
        """Processes of the call that could not be killed (law 11 whole-tree)."""
        return self._settled.survivors

    @property
    def spent(self) -> tuple[Money, ...]:
        """Money that the call has spent, as far as it is known."""
        return self._settled.spent

    @property
    def ran_s(self) -> float:
        """Seconds of running time; waits for a human are not counted."""
        return self._settled.ran_s

    @property
    def retried(self) -> int:
        """How many attempts were over before this ending (law 10 no-blind-retry)."""
        return self._settled.retried

    @property
    def alive(self) -> bool:
        """Whether its worker was still running when the call was answered (law 9 on-the-books)."""
        return self._settled.alive

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self._settled.outcome is Outcome.SUCCEEDED

    @cached_property
    def observation(self) -> Observation:
        """What the model reads of it."""
        settled = self._settled
        return observe(
            settled,
            call=settled.call,
            model_id=self.model_id,
            tool=self.tool,
            earlier=self.earlier,
        )

    @property
    def text(self) -> str:
        """The words that the model reads."""
        return self.observation.text

    @property
    def is_error(self) -> bool:
        """Whether the message formats mark the answer as an error."""
        return self.observation.is_error

    def __repr__(self) -> str:
        return f"<CallResult {self.call_id} {self.tool}: {self.outcome}/{self.reason}>"


class BatchResult(Sequence[CallResult]):
    """The answers to the calls of one model reply, in request order (law 4 one-answer)."""

    __slots__ = ("_results", "batch_id")

    def __init__(self, batch_id: str, results: list[CallResult]) -> None:
        self.batch_id = batch_id
        self._results = results

    @overload
    def __getitem__(self, index: int) -> CallResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[CallResult]: ...
    def __getitem__(self, index: int | slice) -> CallResult | list[CallResult]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[CallResult]:
        return iter(self._results)

    @property
    def observations(self) -> list[Observation]:
        """What the model reads, in request order."""
        return [result.observation for result in self._results]

    def __repr__(self) -> str:
        return f"<BatchResult {self.batch_id}: {len(self)} calls>"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReport:
    """What a cancel did: which calls it ended and how, and which were over before it came.

    `accepted` is false where the target was over already or had been cancelled as strongly before;
    `over` is false where the ending was not there within the time that was waited.
    """

    target: str
    accepted: bool
    over: bool
    ended: tuple[CallResult, ...] = ()
    already_over: tuple[CallResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One line of a listing: a call that is open, or abandoned and still running (law 9)."""

    call_id: str
    tool: str
    phase: str
    abandoned: bool
    age_s: float
    ran_s: float
    waits_for: str
    where: str = ""
    stack: tuple[str, ...] = ()
