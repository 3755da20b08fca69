"""Testing: simulate your own tools, stopped at every point, in every order that a seed draws.

Public test tool: `simulate` runs the calls of one reply with your tools on a real driver, on a
virtual clock; `simulate_stops` runs them again and again, stopped after each event. What your tools
wait for must be on that clock: `asyncio.sleep`, `ctx.sleep()`, `hang()`. Nothing here waits for
real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from endstop.config import Config
from endstop.core.terms import Limits, Mode, ToolCall
from endstop.errors import CallerError
from endstop.run.base import check_calls
from endstop.testing.simjournal import Trouble
from endstop.testing.simulator import Asking, Driver, Interrupt, Settings, Sim, Simulated
from endstop.testing.simworker import PLAIN_FATE, Fate
from endstop.tools.tool import Tool

RUN = "run"
"""The id of the one run of `simulate`; its calls are `run/0.0`, `run/0.1` and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated: the tools, the calls of one reply, and how they are run.

    `terms` are those of `Run.execute`. `fates` says, by the name of a tool, what else happens to
    bodies that run in threads or processes: slow starts, lost workers, kills that fail. `answers`
    is called with the simulation and the event when a call asks for approval (`ApprovalAsked`) and
    when a body asks a human (`QuestionAsked`).
    """

    tools: Sequence[Tool]
    calls: Sequence[ToolCall]
    terms: Mapping[str, Any] = field(default_factory=dict)
    config: Config | None = None
    before: Sequence[Callable[..., Any]] = ()
    limits: Limits | None = None
    fates: Mapping[str, Fate] = field(default_factory=dict)
    answers: Callable[[Sim, Any], None] | None = None


def simulate(
    tools: Iterable[Tool],
    calls: Iterable[ToolCall],
    *,
    seed: int = 0,
    driver: Driver = "async",
    shuffle: bool = True,
    stop: Interrupt | None = None,
    stop_at_s: float | None = None,
    commit_s: float | None = None,
    trouble: Trouble | None = None,
    **plan: Any,
) -> Simulated:
    """Run the calls of one reply to their end; returns what came of it, after checking every law.

    `stop` stops at a point (`Interrupt`), `stop_at_s` stops the run at a virtual instant.
    `commit_s` makes the journal slow, `trouble` makes it fail. `plan` is what `Plan` takes beside
    tools and calls. The same arguments give the same trace.

    Raises AssertionError, naming law and settings, where a law is broken, and CallerError for what
    is no tool or no call.
    """
    settings = Settings(
        seed=seed,
        driver=driver,
        shuffle=shuffle,
        commit_s=commit_s,
        trouble=trouble,
        interrupt=stop,
    )
    return _play(_plan(tools, calls, plan), settings, stop_at_s)


def simulate_stops(
    tools: Iterable[Tool],
    calls: Iterable[ToolCall],
    *,
    seeds: Iterable[int] = range(3),
    target: str = RUN,
    mode: Mode = Mode.INTERRUPT,
    driver: Driver = "async",
    **plan: Any,
) -> Iterator[Simulated]:
    """The same calls stopped after each event in turn, for each seed; see `simulate`.

    The first of each seed is not stopped. `target` is a run, a batch or a call.
    """
    what = _plan(tools, calls, plan)
    for seed in seeds:
        whole = _play(what, Settings(seed=seed, driver=driver, shuffle=True), None)
        yield whole
        for point in range(1, len(whole.trace) + 1):
            interrupt = Interrupt(target=target, mode=mode, after_event=point)
            settings = Settings(seed=seed, driver=driver, shuffle=True, interrupt=interrupt)
            yield _play(what, settings, None)


def _plan(tools: Iterable[Tool], calls: Iterable[ToolCall], plan: dict[str, Any]) -> Plan:
    unknown = plan.keys() - set(Plan.__slots__)
    if unknown:
        known = ", ".join(sorted(Plan.__slots__))
        raise CallerError(f"simulate() knows no `{min(unknown)}`; a plan has: {known}")
    return Plan(tools=list(tools), calls=check_calls(calls), **plan)


def _play(plan: Plan, settings: Settings, stop_at_s: float | None) -> Simulated:
    sim = Sim(
        settings,
        tools=lambda _: plan.tools,
        config=plan.config,
        before=plan.before,
        fate=lambda job: plan.fates.get(job.tool.name, PLAIN_FATE),
        answer=plan.answers,
    )
    asking = Asking(run=RUN, batches=[(plan.calls, dict(plan.terms))], limits=plan.limits)
    stops = [] if stop_at_s is None else [(stop_at_s, RUN, Mode.INTERRUPT)]
    return sim.play([asking], stops=stops).check()
