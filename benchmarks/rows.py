"""What a benchmark hands back: one row of numbers beside its floor. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured thing.

    `cpu_us` and `wall_us` are microseconds per call, `ratio` and `wall_ratio` how many times the
    floor that is. `value` and `unit` are for what has no floor. `target` is the most that `judged`
    may be, and `met` whether it is; both are None where nothing was promised.
    """

    name: str
    mode: str
    n: int
    journal: str | None = None
    resources: str | None = None
    effect: str | None = None
    cpu_us: float | None = None
    wall_us: float | None = None
    floor: str | None = None
    floor_cpu_us: float | None = None
    floor_wall_us: float | None = None
    ratio: float | None = None
    wall_ratio: float | None = None
    ratio_median: float | None = None
    value: float | None = None
    unit: str | None = None
    target: float | None = None
    goal: float | None = None
    met: bool | None = None
    rounds: int = 1
    executed: int = 0
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row as it is printed, one object per line."""
        found = asdict(self)
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}


def plain(
    name: str,
    mode: str,
    n: int,
    value: float,
    unit: str,
    *,
    target: float | None = None,
    **rest: Any,
) -> Row:
    """A row for something that is a number by itself, with no floor beside it."""
    met = None if target is None else value <= target
    return Row(name=name, mode=mode, n=n, value=value, unit=unit, target=target, met=met, **rest)
