"""Testing: stories, which are runs of scripted tool calls drawn from a seed.

A story is data: tools with their contracts, bodies with what they do step by step, hooks, answers
of humans, and stops at instants. `simulator.py` plays it on a driver. Nothing here runs anything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from endstop.core.terms import Isolation, Limits, Mode, Money, Verdict
from endstop.testing.simworker import PLAIN_FATE, Fate


class Act(StrEnum):
    """One step of a body."""

    WORK = "work"
    HANG = "hang"
    PROGRESS = "progress"
    HUMAN = "human"
    COMMIT = "commit"
    COMMIT_FAILS = "commit_fails"
    SPEND = "spend"
    STOP_RUN = "stop_run"
    STOP_BATCH = "stop_batch"
    STOP_ITSELF = "stop_itself"
    CHILD = "child"


class End(StrEnum):
    """How a body ends when nobody stops it."""

    RETURN = "return"
    RAISE = "raise"
    CANCELLED_ERROR = "cancelled_error"
    FUTURES_CANCELLED = "futures_cancelled"
    EXIT = "exit"
    JUNK = "junk"


class OnStop(StrEnum):
    """What a body does when it is asked to stop."""

    STOP = "stop"
    RETURN = "return"
    IGNORE = "ignore"
    BREAK = "break"


class HookDoes(StrEnum):
    """What a before-hook does with one call."""

    PASS = "pass"
    BLOCK = "block"
    REWRITE = "rewrite"
    RAISE = "raise"
    JUNK = "junk"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookScript:
    """A before-hook's way with one call, after `wait_s`."""

    does: HookDoes = HookDoes.PASS
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What one body does: steps with their seconds, its end, and its way with a stop."""

    steps: tuple[tuple[Act, float], ...] = ()
    end: End = End.RETURN
    on_stop: OnStop = OnStop.STOP
    cleanup_s: float = 0.0
    fate: Fate = PLAIN_FATE
    children: tuple[Child, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool: its name, its kind of worker and what it declares."""

    name: str
    kind: Isolation
    contract: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScript:
    """One call: the tool, a resource key, the body, and what hook and human do with it."""

    tool: str
    key: str
    body: Body
    hook: HookScript | None = None
    verdict: Verdict = Verdict.APPROVE
    answer_s: float = 1.0
    model_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A run of one call that a body starts and waits for."""

    call: CallScript
    detached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScript:
    """The calls of one reply and how they are run."""

    calls: tuple[CallScript, ...]
    terms: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript:
    """One run: its batches one after the other, beginning at an instant."""

    id: str
    begins_s: float
    batches: tuple[BatchScript, ...]
    limits: Limits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopScript:
    """A cancel at an instant. `target` is a run, `RUN/BATCH` or `RUN/BATCH.INDEX`."""

    at_s: float
    target: str
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that is asked of a runtime in one simulation."""

    seed: int
    tools: tuple[ToolSpec, ...]
    runs: tuple[RunScript, ...]
    stops: tuple[StopScript, ...]
    hooked: bool
    slots: dict[str, int | None]
    timeouts: dict[str, Any]
    closes_s: float | None = None

    def calls(self) -> dict[str, CallScript]:
        """The calls by the number in their arguments; a child's begins with its parent's."""
        scripts = [c for run in self.runs for batch in run.batches for c in batch.calls]
        found: dict[str, CallScript] = {}
        todo = [(str(number), script) for number, script in enumerate(scripts)]
        while todo:
            number, script = todo.pop()
            found[number] = script
            children = enumerate(script.body.children)
            todo += [(f"{number}.{index}", child.call) for index, child in children]
        return found

    def without_stops(self) -> Story:
        """The same story with nobody stopping anything from outside."""
        return replace(self, stops=(), closes_s=None)


def story_of(seed: int, *, children: bool = False) -> Story:
    """The story of a seed; with `children`, bodies start runs of their own and wait for them.

    Only a coroutine can do that under the async driver and only a thread under the blocking one;
    for others such a step is nothing.
    """
    return _Author(seed, children=children).story()


class _Author:
    """Draws a story. Times are drawn from the reals, so that two of them do not fall together."""

    def __init__(self, seed: int, *, children: bool) -> None:
        self.seed = seed
        self.rng = random.Random(f"story {seed}")
        self.depth = 3 if children else 0
        self.hooked = self.rng.random() < 0.4

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def seconds(self, most: float) -> float:
        return self.rng.random() * most

    def story(self) -> Story:
        rng = self.rng
        tools = tuple(self.tool(number) for number in range(rng.randint(1, 4)))
        runs = tuple(self.run(f"r{n}", tools) for n in range(rng.choice((1, 1, 1, 2, 3))))
        stops = tuple(self.stop(runs) for _ in range(rng.choice((0, 1, 1, 2, 3))))
        kinds = ("coroutine", "thread", "process")
        return Story(
            seed=self.seed,
            tools=tools,
            runs=runs,
            stops=stops,
            hooked=self.hooked,
            slots={kind: rng.choice((1, 2, 2, 3, 8)) for kind in kinds},
            timeouts={
                "grace_s": self.seconds(4) + 0.2,
                "kill_s": self.seconds(2) + 0.1,
                "commit_s": self.seconds(5) + 0.2,
                "start_s": self.seconds(5) + 0.5,
                "hooks": self.seconds(5) + 0.2,
            },
            closes_s=self.seconds(20) if self.maybe(0.15) else None,
        )

    def tool(self, number: int) -> ToolSpec:
        rng = self.rng
        kind = rng.choice((Isolation.COROUTINE, Isolation.THREAD, Isolation.PROCESS))
        contract: dict[str, Any] = {
            "effect": rng.choice(("read_only", "idempotent", "effectful", "effectful", "once")),
            "resources": rng.choice((None, [], ["x:{key}"], ["file:/{key}", "y:{key}"])),
        }
        if self.maybe(0.5):
            contract["timeout"] = self.seconds(10) + 0.1
        if self.maybe(0.2):
            contract["idle_timeout"] = self.seconds(5) + 0.1
        if self.maybe(0.3):
            contract["grace"] = self.seconds(3)
        if self.maybe(0.1):
            contract["exclusive"] = True
        if self.maybe(0.3):
            contract["cost"] = "0.10 EUR"
        if self.maybe(0.2):
            contract["approval"] = "always"
        if self.maybe(0.4):
            contract["commits"] = True
        return ToolSpec(name=f"t{number}", kind=kind, contract=contract)

    def run(self, name: str, tools: tuple[ToolSpec, ...]) -> RunScript:
        limits = None
        if self.maybe(0.3):
            money = (Money(amount=_AMOUNT, currency="EUR"),)
            limits = Limits(money=money, calls=self.rng.choice((None, 2, 5)))
        return RunScript(
            id=name,
            begins_s=0.0 if name == "r0" else self.seconds(5),
            batches=tuple(self.batch(tools) for _ in range(self.rng.choice((1, 1, 2)))),
            limits=limits,
        )

    def batch(self, tools: tuple[ToolSpec, ...]) -> BatchScript:
        terms: dict[str, Any] = {}
        if self.maybe(0.4):
            terms["parallel"] = self.rng.choice((1, 1, 2, 3))
        if self.maybe(0.2):
            terms["deadline_s"] = self.seconds(12) + 0.1
        if self.maybe(0.2):
            terms["together"] = True
        if self.maybe(0.3):
            terms["on_failure"] = "stop"
        if self.maybe(0.2):
            terms["timeout_s"] = self.seconds(6) + 0.1
        calls = tuple(self.call(tools) for _ in range(self.rng.choice((0, 1, 2, 2, 3, 4, 5))))
        return BatchScript(calls=calls, terms=terms)

    def call(self, tools: tuple[ToolSpec, ...]) -> CallScript:
        rng = self.rng
        tool = rng.choice(tools)
        name = tool.name if not self.maybe(0.03) else "unknown"
        return CallScript(
            tool=name,
            key=rng.choice(("a", "a", "b", "a/c")),
            body=self.body(tool, tools),
            hook=self.hook() if self.hooked else None,
            verdict=rng.choice((Verdict.APPROVE, Verdict.APPROVE, *Verdict)),
            answer_s=self.seconds(8),
            model_id=rng.choice(("", "same", f"m{rng.randrange(100)}")),
        )

    def hook(self) -> HookScript:
        does = self.rng.choice((HookDoes.PASS, HookDoes.PASS, HookDoes.PASS, *HookDoes))
        return HookScript(does=does, wait_s=0.01 + self.seconds(3 if self.maybe(0.8) else 30))

    def children(self, tools: tuple[ToolSpec, ...]) -> tuple[Child, ...]:
        if not self.depth or self.maybe(0.4):
            return ()
        self.depth -= 1
        try:
            count = self.rng.choice((1, 1, 2))
            return tuple(
                Child(call=self.call(tools), detached=self.maybe(0.2)) for _ in range(count)
            )
        finally:
            self.depth += 1

    def body(self, tool: ToolSpec, tools: tuple[ToolSpec, ...]) -> Body:
        rng = self.rng
        children = self.children(tools)
        acts = [Act.WORK, Act.WORK, Act.WORK, *(act for act in Act if act is not Act.CHILD)]
        steps: list[tuple[Act, float]]
        steps = [(rng.choice(acts), self.seconds(4)) for _ in range(rng.randint(0, 4))]
        if not self.maybe(0.3):
            stops = (Act.STOP_RUN, Act.STOP_BATCH, Act.STOP_ITSELF)
            steps = [(act, s) for act, s in steps if act not in stops]
        steps = [(act, s * 5 if act is Act.HANG else s) for act, s in steps]
        for _ in children:
            steps.insert(rng.randint(0, len(steps)), (Act.CHILD, 0.0))
        return Body(
            steps=tuple(steps),
            children=children,
            end=rng.choice((End.RETURN, End.RETURN, End.RETURN, *End)),
            on_stop=rng.choice((OnStop.STOP, OnStop.STOP, *OnStop)),
            cleanup_s=self.seconds(6) if self.maybe(0.4) else 0.0,
            fate=self.fate(tool) if tool.kind is not Isolation.COROUTINE else PLAIN_FATE,
        )

    def fate(self, tool: ToolSpec) -> Fate:
        rng = self.rng
        return Fate(
            start_s=self.seconds(2) if self.maybe(0.3) else 0.0,
            start_fails=self.maybe(0.04),
            never_starts=self.maybe(0.04),
            lost_after_s=self.seconds(6) if self.maybe(0.06) else None,
            kill_s=None if self.maybe(0.1) else rng.choice((0.0, self.seconds(3))),
        )

    def stop(self, runs: tuple[RunScript, ...]) -> StopScript:
        run = self.rng.choice(runs)
        target = run.id
        if self.maybe(0.6):
            number = self.rng.randrange(len(run.batches))
            target = f"{run.id}/{number}"
            if self.maybe(0.6):
                target += f".{self.rng.randrange(max(1, len(run.batches[number].calls)))}"
        return StopScript(
            at_s=self.seconds(15),
            target=target,
            mode=self.rng.choice((Mode.INTERRUPT, Mode.INTERRUPT, *Mode)),
        )


_AMOUNT = Decimal("0.35")
