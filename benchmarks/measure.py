"""How things are measured: in pairs, in turn, with the same collector for both sides.

CPU is the time of all threads of this process, so that work moved to another thread still counts.
A machine that does other things can only make a sample slower: of several, the best is kept. The
median over the pairs is kept beside it; where the two disagree much, the machine was busy.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One timed section, per call."""

    cpu_us: float
    wall_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What is measured and its floor, over the same rounds."""

    ours: Sample
    floor: Sample
    ratio: float
    wall_ratio: float
    ratio_median: float
    rounds: int


class Stopwatch:
    """Times the sections that a side of a pair enters, and nothing around them."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.wall_s = 0.0

    def __enter__(self) -> Stopwatch:
        self._wall = perf_counter()
        self._cpu = process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.cpu_s += process_time() - self._cpu
        self.wall_s += perf_counter() - self._wall

    def sample(self, calls: int) -> Sample:
        """What one of `calls` calls took."""
        return Sample(cpu_us=self.cpu_s / calls * 1e6, wall_us=self.wall_s / calls * 1e6)


Side = Callable[[], Sample]


def tidy() -> None:
    """Start every sample with an empty young heap; the collector stays on during it."""
    gc.collect()


def best(samples: list[Sample]) -> Sample:
    """The least of each number; they need not come from one sample."""
    return Sample(cpu_us=min(s.cpu_us for s in samples), wall_us=min(s.wall_us for s in samples))


def in_turn(rounds: int, *sides: Side) -> list[list[Sample]]:
    """Sample each side in turn: a, b, a, b …; the first turn warms up and is not kept."""
    kept: list[list[Sample]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, samples in zip(sides, kept, strict=True):
            tidy()
            sample = side()
            if turn:
                samples.append(sample)
    return kept


def compare(floors: list[Sample], ours: list[Sample]) -> Pair:
    """What the samples of one side are beside those of its floor."""
    low, high = best(floors), best(ours)
    return Pair(
        ours=high,
        floor=low,
        ratio=high.cpu_us / low.cpu_us,
        wall_ratio=high.wall_us / low.wall_us,
        ratio_median=statistics.median(
            a.cpu_us / b.cpu_us for a, b in zip(ours, floors, strict=True)
        ),
        rounds=len(ours),
    )


def interleave(floor: Side, ours: Side, rounds: int) -> Pair:
    """Measure floor, ours, floor, ours …"""
    return compare(*in_turn(rounds, floor, ours))
