"""One scene of the kill matrix: a run that comes to a certain phase and stays there.

It is played in a process of its own, which is killed, and taken up by an heir. What really happened
is told by a file to which the bodies append one line at a time, so that neither the killed process
nor the journal needs to be believed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from endstop import BlockingRuntime, Config, Context, Limits, Money, Runtime, ToolCall, tool
from endstop.core.events import CallSettled, Event
from endstop.core.terms import Isolation
from endstop.run.hooks import HookCall
from endstop.tools.reconcile import LostCall, Reconciled
from endstop.tools.tool import Tool

PHASES = (
    "preparing",
    "approval",
    "queued",
    "granted",
    "before commit",
    "after commit",
    "unrecorded",
    "stopping",
    "spending",
)
EFFECTS = ("read_only", "idempotent", "effectful", "once")
RUN = "r"
OVER, TARGET = f"{RUN}/0.0", f"{RUN}/1.0"
"""The call that is over before, and the one that is in the phase; the one behind it must wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is played, where, and with which tool in the middle."""

    phase: str
    effect: str
    driver: str
    journal: str
    log: str
    reconciles: bool = False

    def note(self, word: str, call: str, key: str) -> None:
        """Append one line to the file; one write is one line, whoever else writes."""
        line = f"{word} {call} {key}\n".encode()
        file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, line)
        finally:
            os.close(file)


def calls(*names: str) -> list[ToolCall]:
    """Calls of these tools."""
    return [ToolCall(model_id=name, tool=name, arguments={}) for name in names]


def config() -> Config:
    """A short ladder, whatever lies around the checkout."""
    return Config.load(directory="/", environ={}, grace_s=0.2, kill_s=0.5)


def tools(scene: Scene, hold: Callable[[str], None]) -> list[Tool]:
    """The tools of a scene. `hold` is called where a phase is reached; in the heir it returns."""

    @tool(effect="effectful", resources=["x:1"], cost="1 EUR")
    def first(ctx: Context) -> str:
        scene.note("begin", ctx.call_id, ctx.effect_key)
        scene.note("end", ctx.call_id, ctx.effect_key)
        return "first"

    def it(ctx: Context) -> str:
        scene.note("begin", ctx.call_id, ctx.effect_key)
        hold("queued")
        hold("before commit")
        hold("stopping")
        with ctx.commit():
            scene.note("end", ctx.call_id, ctx.effect_key)
            ctx.spend("2", "EUR")
        hold("after commit")
        hold("spending")
        return "it"

    @tool(effect="effectful", resources=["x:1"], cost="1 EUR")
    def last(ctx: Context) -> str:
        scene.note("begin", ctx.call_id, ctx.effect_key)
        scene.note("end", ctx.call_id, ctx.effect_key)
        return "last"

    def ask(lost: LostCall) -> Reconciled:
        done = f"end {lost.call_id} " in _read(scene.log)
        return Reconciled(done, "it" if done else None)

    middle = tool(
        effect=scene.effect,
        resources=["x:1"],
        cost="2 EUR",
        commits=True,
        timeout=60,
        approval="always" if scene.phase == "approval" else "never",
        reconcile=ask if scene.reconciles else None,
    )(it)
    return [first, middle, last]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


LIMITS = Limits(money=(Money(amount=Decimal(100), currency="EUR"),), calls=10)


def play(scene: Scene, reached: Callable[[], None]) -> None:
    """Play a scene up to its phase, say so, and stay there; never returns by itself."""
    stays = threading.Event()

    def hold(phase: str) -> None:
        if phase == scene.phase:
            reached()
            stays.wait()

    def hook(call: HookCall) -> None:
        if call.tool == "it":
            hold("preparing")

    made = tools(scene, hold)
    options: dict[str, Any] = {"journal": scene.journal, "config": config()}
    if scene.phase == "preparing":
        options["before"] = [hook]
    if scene.driver == "blocking":
        runtime = BlockingRuntime(made, **options)
        _arrange(runtime, scene, reached)
        run = runtime.run(RUN, limits=LIMITS)
        run.execute(calls("first"))
        run.execute(calls("it", "last"))
        return

    async def drive() -> None:
        async with Runtime(made, **options) as runtime:
            _arrange(runtime, scene, reached)
            run = runtime.run(RUN, limits=LIMITS)
            await run.execute(calls("first"))
            await run.execute(calls("it", "last"))

    asyncio.run(drive())


def _arrange(runtime: Any, scene: Scene, reached: Callable[[], None]) -> None:
    """What cannot be arranged from inside a body."""
    engine = runtime.engine
    match scene.phase:
        case "approval":
            runtime.observe(lambda event: reached() if _is(event, "ApprovalAsked") else None)
        case "granted":
            worker = engine.workers[Isolation.THREAD]
            start = worker.start

            def hold_back(job: Any) -> None:
                # Granted and recorded; the worker never comes to claim it.
                if job.call == TARGET:
                    reached()
                else:
                    start(job)

            worker.start = hold_back
        case "unrecorded":
            append = engine.journal.append

            def lose(run: str, seq: int, events: Sequence[Event], durability: Any) -> Any:
                if any(isinstance(one, CallSettled) and one.call == TARGET for one in events):
                    reached()
                    threading.Event().wait()
                return append(run, seq, events, durability)

            engine.journal.append = lose
        case "stopping":
            runtime.observe(
                lambda event: (
                    threading.Thread(target=lambda: runtime.cancel(RUN), daemon=True).start()
                    if _is(event, "CallStarted") and event.call == TARGET
                    else None
                )
            )
        case _:
            pass


def _is(event: object, name: str) -> bool:
    return type(event).__name__ == name
