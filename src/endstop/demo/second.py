"""The demo's second act: a limit of money, two sub-agents, and a program that is killed.

It has a workspace, a service and journals of its own, beside those of the first act, so that
the books of each can be compared with a ledger. No outcome is known here; see `proof_second.py`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from endstop.agents.agent import Task
from endstop.agents.delegate import close_turn, delegate, open_handles
from endstop.agents.errors import DroppedHandles, HandleCancelled
from endstop.agents.handle import Handle
from endstop.agents.local import LocalAgent
from endstop.config import Config, Timeouts
from endstop.core import events as e
from endstop.core.terms import Limits, Money, ToolCall
from endstop.demo import child, world
from endstop.demo.human import with_package
from endstop.demo.service import CURRENCY, Charge, ImageService
from endstop.demo.tools import CARRY, DESK, SHOP
from endstop.demo.watch import Mood, Narrator
from endstop.errors import EndstopError
from endstop.run.handles import Run
from endstop.run.results import BatchResult, CallResult
from endstop.run.runtime import Runtime

FOLDER = "second"
BOOK = "second.db"
ALBUM, TOUR = "album", "tour"
PIER, HARBOUR = "tour/pier.svg", "tour/harbour.svg"
LIMIT = Money(amount=Decimal("0.10"), currency=CURRENCY)
ALBUM_PROMPTS = ("spring", "summer", "autumn")
SET_S = 20.0
HEARD_S = 2.0

Shown = Callable[[Runtime], AbstractContextManager[None]]
Until = Callable[[Callable[[], bool], float], Awaitable[bool]]


@dataclass(slots=True, kw_only=True)
class Act:
    """What the second act has seen so far; the proof reads it."""

    directory: Path
    service: ImageService
    narrator: Narrator
    bound_s: float
    config: Config
    shown: Shown
    until: Until
    album: BatchResult | None = None
    kept: Any = None
    verdict: str = ""
    stop_s: float = 0.0
    taken_back: int = 0
    dropped: tuple[str, ...] = ()
    open_handles: int = 0
    open_calls: int = 0
    killed: world.Process | None = None
    exit_code: int | None = None
    before_the_kill: list[Charge] = field(default_factory=list)
    resumed: tuple[CallResult, ...] = ()

    def charges(self, run: str) -> list[Charge]:
        """What the ledger has of a run and of the runs below it."""
        return [one for one in self.service.read_ledger() if one.key.startswith(run)]

    def orders(self, run: str) -> int:
        """How many orders of a run the ledger has, however often each was charged."""
        return len({one.key for one in self.charges(run)})


def open_act(
    top: Path,
    narrator: Narrator,
    *,
    unit_s: float,
    grace_s: float,
    kill_s: float,
    charges: int,
    shown: Shown,
    until: Until,
) -> Act:
    """The workspace and the service of the second act."""
    directory = top / FOLDER
    directory.mkdir()
    service = ImageService(
        directory / "ledger.jsonl", draft_s=0.2 * unit_s, print_s=60.0, charges=charges
    )
    return Act(
        directory=directory,
        service=service,
        narrator=narrator,
        bound_s=grace_s + kill_s,
        config=Config(timeouts=Timeouts(grace_s=grace_s, kill_s=kill_s)),
        shown=shown,
        until=until,
    )


async def play(act: Act) -> None:
    """Tell the three scenes of the second act."""
    desk = {"directory": str(act.directory), "service": act.service.address, "pace_s": 0.0}
    token = DESK.set(desk)
    try:
        # Started early, since a program takes a while until it works; its scene is the last one.
        with _program(act) as process:
            async with _runtime(act, BOOK) as runtime:
                with act.shown(runtime):
                    await _budget(act, runtime)
                    await _delegation(act, runtime)
            say = act.narrator.say
            say("5. A program that is killed in the middle, and its heir", mood=Mood.TITLE)
            await _kill(act, process)
        await _crash(act)
    finally:
        DESK.reset(token)


async def _heard(act: Act, results: Iterable[CallResult]) -> None:
    """Let the narrator tell these endings first: it hears of them a little later."""
    ids = {one.call_id for one in results}

    def told() -> bool:
        return ids <= {one.call for one in act.narrator.events if isinstance(one, e.CallSettled)}

    await act.until(told, HEARD_S)


def _runtime(act: Act, journal: str) -> Runtime:
    where = str(act.directory / journal)
    hear = [act.narrator.hear]
    return Runtime(SHOP, journal=where, config=act.config, observers=hear, carry=CARRY)


# -- the third scene


async def _budget(act: Act, runtime: Runtime) -> None:
    say = act.narrator.say
    say("3. A run with a limit of money", mood=Mood.TITLE)
    say(f"the run may spend {LIMIT.amount} {LIMIT.currency}; the model asks for three pictures")
    calls = [
        ToolCall(
            model_id=f"album_{number}",
            tool="generate_image",
            arguments={"prompt": prompt, "path": f"album/{prompt}.svg"},
        )
        for number, prompt in enumerate(ALBUM_PROMPTS, 1)
    ]
    async with runtime.run(ALBUM, limits=Limits(money=(LIMIT,))) as run:
        act.album = await run.execute(calls)
    await _heard(act, act.album)
    for one in act.album:
        if one.outcome != "succeeded":
            say(f"the model reads of {one.model_id}: {' '.join(one.text.split())}")


# -- the fourth scene


def _agent(name: str, path: str, quality: str) -> LocalAgent:
    async def draw(task: Task, run: Run) -> str:
        arguments = {"prompt": task.prompt, "path": path, "quality": quality}
        asked = ToolCall(model_id="draw", tool="generate_image", arguments=arguments)
        [result] = await run.execute([asked])
        return result.text

    return LocalAgent(name=name, fn=draw)


async def _delegation(act: Act, runtime: Runtime) -> None:
    say = act.narrator.say
    say("4. Two sub-agents, and a stop of the run that they work for", mood=Mood.TITLE)
    sketcher, painter = _agent("sketcher", PIER, "draft"), _agent("painter", HARBOUR, "print")
    async with runtime.run(TOUR) as run:
        sketch = delegate(sketcher, "the pier", run=run)
        await act.until(lambda: sketch.done, SET_S)
        painting = delegate(painter, "the harbour", run=run)
        await act.until(lambda: act.orders(TOUR) > 1, SET_S)
        say(f"{sketch.agent} is done; {painting.agent} has ordered its picture and waits for it")
        refused = act.service.refused
        say("the user presses stop", mood=Mood.STOP)
        began = time.monotonic()
        await run.cancel()
        act.stop_s = time.monotonic() - began
        act.taken_back = act.service.refused - refused
        await _heard(act, [one.answer for one in (sketch, painting) if one.answer is not None])
        await _take(act, sketch, painting)
        try:
            await close_turn(run)
        except DroppedHandles as dropped:
            act.dropped = tuple(dropped.handle_ids)
        act.open_handles = len(open_handles(run))
    act.open_calls = len(runtime.calls())
    say(
        f"{act.stop_s:.2f} s after the stop it is over; open: {act.open_handles} handles, "
        f"{act.open_calls} calls"
    )


async def _take(act: Act, sketch: Handle, painting: Handle) -> None:
    say = act.narrator.say
    act.kept = await sketch
    say(f"the handle of {sketch.agent} still gives: {act.kept}", mood=Mood.GOOD)
    try:
        say(f"the handle of {painting.agent} gives: {await painting}")
    except HandleCancelled as cancelled:
        act.verdict = str(cancelled.proof)
        say(f"the handle of {painting.agent} says: cancelled, {act.verdict}", mood=Mood.BAD)


# -- the fifth scene


async def _crash(act: Act) -> None:
    say = act.narrator.say
    for number, (name, arguments) in enumerate(child.ORDERS):
        act.narrator.introduce(f"{child.RUN}/0.{number}", name, arguments)
    act.service.finish()
    async with _runtime(act, child.CRASH) as runtime:
        with act.shown(runtime):
            say("another program opens the journal and takes up the run")
            try:
                run = await runtime.resume(child.RUN)
            except EndstopError as problem:
                # The other program came to nothing. The proof says so; the story has an end.
                say(f"it cannot: {problem}", mood=Mood.BAD)
                return
            act.resumed = tuple(one for batch in await run.finish() for one in batch)
            run.close()
            await _heard(act, [one for one in act.resumed if one.call_id in act.service.repeated])
    for one in act.resumed:
        who = act.narrator.labels.get(one.call_id, one.tool)
        again = (
            "ran again under its key"
            if one.call_id in act.service.repeated
            else "did not run again"
        )
        say(f"{again}; {one.outcome}, effect {one.effect}", who=who, mood=_mood(one))


def _mood(one: CallResult) -> Mood:
    return Mood.GOOD if one.outcome == "succeeded" else Mood.BAD


async def _kill(act: Act, process: subprocess.Popen[bytes]) -> None:
    """Kill the other program when it is in the middle of its work."""
    say, wanted = act.narrator.say, len(child.ORDERS)
    # The last order begins after the end of the first was recorded: they share an account.
    await act.until(lambda: act.orders(child.RUN) >= wanted or process.poll() is not None, SET_S)
    act.killed = world.look_up(process.pid)
    act.before_the_kill = act.charges(child.RUN)
    pictures = [arguments["path"] for _, arguments in child.ORDERS]
    saved = sum((act.directory / path).exists() for path in pictures)
    say(
        f"a program, pid {process.pid}, works on {wanted} orders: "
        f"{len(act.before_the_kill)} are charged, {saved} delivered"
    )
    process.kill()
    act.exit_code = process.wait()
    say(f"kill -9: it is gone, exit code {act.exit_code}", mood=Mood.STOP)


@contextlib.contextmanager
def _program(act: Act) -> Iterator[subprocess.Popen[bytes]]:
    """Start the other program; whatever happens, it is not left behind."""
    with (act.directory / "child.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", child.__name__, str(act.directory), act.service.address],
            env=with_package(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
