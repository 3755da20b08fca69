"""What a benchmark hands back: one row of numbers beside its floor. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measure import Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured thing.

    `cpu_us` and `wall_us` are microseconds per call, `ratio` and `wall_ratio` how many times the
    floor that is. `added_us` is what a journal adds to the CPU of the same call without it, and
    `added_ratio` how many times the floor that is. `value` and `unit` are for what has no floor.
    `target` is the most that `ratio` (or `value`) may be, `goal` what it should be, and `met`
    whether it keeps the target; all None where nothing was promised.
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
    added_us: float | None = None
    added_ratio: float | None = None
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


def beside(
    pair: Pair,
    *,
    name: str,
    mode: str,
    n: int,
    floor: str,
    target: float | None = None,
    **rest: Any,
) -> Row:
    """A row for what was measured beside a floor, judged by its CPU."""
    return Row(
        name=name,
        mode=mode,
        n=n,
        cpu_us=pair.ours.cpu_us,
        wall_us=pair.ours.wall_us,
        floor=floor,
        floor_cpu_us=pair.floor.cpu_us,
        floor_wall_us=pair.floor.wall_us,
        ratio=pair.ratio,
        wall_ratio=pair.wall_ratio,
        ratio_median=pair.ratio_median,
        target=target,
        met=None if target is None else pair.ratio <= target,
        rounds=pair.rounds,
        **rest,
    )


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
