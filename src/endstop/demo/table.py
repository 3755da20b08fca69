"""The demo's books: one row per call, and what it all came to. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from endstop.core import events as e
from endstop.core.terms import Effect, Money
from endstop.demo.watch import Narrator
from endstop.run.results import CallResult

_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One call: what was asked and what came of it. `cost` is what it would have cost."""

    call_id: str
    model_id: str
    tool: str
    arguments: dict[str, Any]
    label: str
    started: bool
    outcome: str
    reason: str
    effect: str
    stopped_by: str | None
    ran_s: float
    spent: Decimal
    cost: Decimal
    text: str

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.outcome == "succeeded"

    @property
    def saved(self) -> Decimal:
        """What was not paid because the call never started."""
        return _ZERO if self.started else self.cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One model reply and its answer."""

    title: str
    format: str
    said: str
    rows: tuple[Row, ...]
    messages: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim, whether it holds, and what was seen in the world. `name` is one word for it."""

    name: str
    claim: str
    holds: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole story. `directory` is the scratch directory, kept or not."""

    scenes: tuple[Scene, ...]
    checks: tuple[Check, ...]
    seconds: float
    stop_s: float
    directory: str
    kept: bool

    @property
    def ok(self) -> bool:
        """Whether every claim holds."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The calls of all scenes."""
        return tuple(row for scene in self.scenes for row in scene.rows)

    def totals(self) -> dict[str, Any]:
        """How many calls came to what, and the money."""
        rows = self.rows
        return {
            "calls": len(rows),
            "succeeded": sum(row.ok for row in rows),
            "stopped": sum(row.stopped_by is not None for row in rows),
            "never_started": sum(not row.started for row in rows),
            "unknown": sum(row.effect == Effect.UNKNOWN for row in rows),
            "spent": sum((row.spent for row in rows), _ZERO),
            "saved": sum((row.saved for row in rows), _ZERO),
        }

    def data(self) -> dict[str, Any]:
        """The report as data for JSON; amounts are text, exact."""
        totals = {
            name: str(value) if isinstance(value, Decimal) else value
            for name, value in self.totals().items()
        }
        return {
            "ok": self.ok,
            "totals": totals,
            "currency": "USD",
            "seconds": round(self.seconds, 3),
            "stop_seconds": round(self.stop_s, 3),
            "checks": [asdict(check) for check in self.checks],
            "scenes": [
                {
                    "title": scene.title,
                    "format": scene.format,
                    "calls": [_row_data(row) for row in scene.rows],
                    "messages": list(scene.messages),
                }
                for scene in self.scenes
            ],
            "directory": self.directory,
            "kept": self.kept,
        }


def _row_data(row: Row) -> dict[str, Any]:
    data = asdict(row)
    return {**data, "spent": str(row.spent), "cost": str(row.cost), "saved": str(row.saved)}


def rows_of(results: Iterable[CallResult], narrator: Narrator) -> tuple[Row, ...]:
    """The rows of a batch: its results, and what the recorded events say of cost and start."""
    started = narrator.started()
    costs: dict[str, Decimal] = {}
    for event in narrator.events:
        if isinstance(event, e.CallAccepted | e.ApprovalAsked) and event.cost is not None:
            costs[event.call] = event.cost.amount
    return tuple(
        Row(
            call_id=one.call_id,
            model_id=one.model_id,
            tool=one.tool,
            arguments=dict(one.arguments or {}),
            label=narrator.labels[one.call_id],
            started=one.call_id in started,
            outcome=str(one.outcome),
            reason=str(one.reason),
            effect=str(one.effect),
            stopped_by=None if one.stopped_by is None else str(one.stopped_by),
            ran_s=one.ran_s,
            spent=_sum(one.spent),
            cost=costs.get(one.call_id, _ZERO),
            text=one.text,
        )
        for one in results
    )


def _sum(spent: Iterable[Money]) -> Decimal:
    return sum((money.amount for money in spent), _ZERO)
