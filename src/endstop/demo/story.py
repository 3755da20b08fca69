"""The demo's story: a model reply that goes well, one that is stopped in the middle, the proof.

It drives the public runtime as any agent loop would, answers for the human, presses stop, and then
looks at the world. No outcome is known here; `proof.py` compares what was claimed with what is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endstop.adapters.reply import Reply, read_reply
from endstop.config import Config, Timeouts
from endstop.core import events as e
from endstop.demo import human, proof, proof_second, proof_third, second, third, world
from endstop.demo.replies import GOES_WELL, IS_STOPPED
from endstop.demo.service import ImageService
from endstop.demo.table import Report, Scene, rows_of
from endstop.demo.tools import BEATS_FILE, CARRY, DESK, PID_FILE, TOOLS
from endstop.demo.watch import Mood, Narrator, Open, Say
from endstop.run.handles import Run
from endstop.run.results import BatchResult, CallView
from endstop.run.runtime import Runtime

JOURNAL = "runs.db"
LEDGER = "ledger.jsonl"
HUMAN = "the human (a script)"
SET_S = 20.0
"""How long the second scene may take until everything that is to be stopped is under way."""

GONE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How slowly the story is told, and the bounds of the stop ladder, all in seconds."""

    unit_s: float = 1.0
    grace_s: float = 1.0
    kill_s: float = 2.0


CALM = Pace()
FAST = Pace(unit_s=0.3, grace_s=0.8)


@dataclass(slots=True, kw_only=True)
class Stage:
    """What the story has seen so far; the proof reads it."""

    directory: Path
    token: str
    pace: Pace
    service: ImageService
    narrator: Narrator
    scenes: list[Scene] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    under_way: bool = False
    daemon: world.Process | None = None
    crowd: list[world.Process] = field(default_factory=list)
    stopped_at_s: float = 0.0
    stop_s: float = 0.0
    still: tuple[dict[str, str], dict[str, str]] | None = None
    answered: human.Answered | None = None
    late_yes: bool = False
    wedged: list[CallView] = field(default_factory=list)
    wedged_frames: list[str] = field(default_factory=list)
    late_ends: list[str] = field(default_factory=list)
    left_open: list[CallView] = field(default_factory=list)
    second: second.Act | None = None
    third: third.Act | None = None


Meddle = Callable[[Stage], None]


class Story:
    """One telling. `charges` and `meddle` are for those who doubt that the proof can fail.

    `say` hears every line, from any thread. `charges` makes the image service charge each order so
    often; without `served` the act of the server is not told; `meddle` is called between the last
    scene and the proof and may do to the world what it likes.
    """

    def __init__(
        self,
        say: Say,
        *,
        pace: Pace = CALM,
        keep: bool = False,
        charges: int = 1,
        served: bool = True,
        meddle: Meddle | None = None,
    ) -> None:
        self._say = say
        self._served = served
        self._pace = pace
        self._keep = keep
        self._charges = charges
        self._meddle = meddle
        self._playing: tuple[Runtime, Narrator] | None = None

    def calls(self) -> list[Open]:
        """The calls that are open now, for whoever draws a live view; from any thread."""
        if self._playing is None:
            return []
        runtime, narrator = self._playing
        return [narrator.show(view) for view in runtime.calls()]

    async def tell(self) -> Report:
        """Tell the story, prove it, clean up. Raises nothing that a failed claim could cause."""
        began = time.monotonic()
        directory = world.make_scratch()
        token = secrets.token_hex(12)
        narrator = Narrator(self._say, str(directory))
        try:
            with _marked(token):
                stage = self._set_up(directory, token, narrator)
                try:
                    await self._scenes(stage)
                    await self._second_act(stage)
                    if self._served:
                        stage.third = await third.play(stage.directory, stage.narrator)
                    if self._meddle is not None:
                        self._meddle(stage)
                finally:
                    stage.service.close()
                    proof.wait_gone(token, GONE_S)
                checks = proof.of_the_stop(stage)
                checks += proof_second.of_the_act(stage.second) if stage.second else []
                checks += proof_third.of_the_act(stage.third) if stage.third else []
                checks += proof.of_what_is_left(stage, directory / JOURNAL)
        finally:
            if not self._keep:
                shutil.rmtree(directory, ignore_errors=True)
        if not self._keep:
            checks.append(proof.of_the_cleaning(directory))
        return Report(
            scenes=tuple(stage.scenes),
            checks=tuple(checks),
            seconds=time.monotonic() - began,
            stop_s=stage.stop_s,
            directory=str(directory),
            kept=self._keep,
        )

    def _set_up(self, directory: Path, token: str, narrator: Narrator) -> Stage:
        world.furnish(directory)
        unit_s = self._pace.unit_s
        service = ImageService(
            directory / LEDGER, draft_s=0.8 * unit_s, print_s=60.0, charges=self._charges
        )
        desk = {"directory": str(directory), "service": service.address, "pace_s": unit_s}
        DESK.set(desk)
        narrator.say(f"a scratch directory: {directory.name}")
        narrator.say(f"a paid image service: http://{service.address}")
        texts = {file.name: file.read_text("utf-8") for file in (directory / "site").glob("*.md")}
        return Stage(
            directory=directory,
            token=token,
            pace=self._pace,
            service=service,
            narrator=narrator,
            texts=texts,
        )

    async def _scenes(self, stage: Stage) -> None:
        pace = self._pace
        config = Config(timeouts=Timeouts(grace_s=pace.grace_s, kill_s=pace.kill_s))
        journal = str(stage.directory / JOURNAL)
        observers = [stage.narrator.hear]
        async with Runtime(
            TOOLS, journal=journal, config=config, observers=observers, carry=CARRY
        ) as runtime:
            with self._shown(runtime, stage.narrator):
                await self._goes_well(runtime, stage)
                await self._is_stopped(runtime, stage)

    @contextlib.contextmanager
    def _shown(self, runtime: Runtime, narrator: Narrator) -> Iterator[None]:
        """Let a live view look at this runtime."""
        self._playing = runtime, narrator
        try:
            yield
        finally:
            self._playing = None

    async def _second_act(self, stage: Stage) -> None:
        pace = self._pace
        act = stage.second = second.open_act(
            stage.directory,
            stage.narrator,
            unit_s=pace.unit_s,
            grace_s=pace.grace_s,
            kill_s=pace.kill_s,
            charges=self._charges,
            shown=lambda runtime: self._shown(runtime, stage.narrator),
            until=world.until,
        )
        try:
            await second.play(act)
        finally:
            act.service.close()

    # -- the first scene

    async def _goes_well(self, runtime: Runtime, stage: Stage) -> None:
        reply = _open(stage, "1. A reply that goes well", GOES_WELL)
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Task[None]] = []

        def answer(event: object) -> None:
            if isinstance(event, e.ApprovalAsked):
                loop.call_soon_threadsafe(answer_soon, event.call)

        def answer_soon(call: str) -> None:
            answers.append(loop.create_task(self._answer(stage, call)))

        end = runtime.observe(answer)
        try:
            async with runtime.run("menu") as run:
                results = await self._watch(runtime, stage, run, reply)
            await asyncio.gather(*answers)
        finally:
            end()
            for one in answers:
                one.cancel()
        await _close(stage, "1. A reply that goes well", reply, results)
        stage.published = world.snapshot(stage.directory / "public")

    async def _answer(self, stage: Stage, call: str) -> None:
        """After a while a human says yes, from another process on the same journal."""
        await asyncio.sleep(self._pace.unit_s)
        stage.answered = await human.approve(call, stage.directory / JOURNAL)
        who = f"the human, pid {stage.answered.pid}"
        stage.narrator.say(f"{who}, was told: {stage.answered.said}", mood=Mood.HUMAN)

    async def _watch(self, runtime: Runtime, stage: Stage, run: Run, reply: Reply) -> BatchResult:
        """Run a reply, and say soon after it was taken in who waits for what."""
        loop = asyncio.get_running_loop()

        def say_waits() -> None:
            stage.narrator.say_waits(runtime.calls())

        def soon(event: object) -> None:
            if isinstance(event, e.BatchOpened):
                later = (0.15 * self._pace.unit_s, say_waits)
                loop.call_soon_threadsafe(loop.call_later, *later)

        end = runtime.observe(soon)
        try:
            return await run.execute(reply.calls)
        finally:
            end()

    # -- the second scene

    async def _is_stopped(self, runtime: Runtime, stage: Stage) -> None:
        title = "2. A reply that is stopped in the middle"
        reply = _open(stage, title, IS_STOPPED)
        narrator = stage.narrator
        async with runtime.run("press") as run:
            working = asyncio.create_task(self._watch(runtime, stage, run, reply))
            await world.until(lambda: _is_under_way(stage, runtime), SET_S)
            await asyncio.sleep(0.5 * self._pace.unit_s)
            _note_the_last_moment(stage, runtime)
            narrator.say("the user presses stop", mood=Mood.STOP)
            stage.stopped_at_s = time.time()
            began = time.monotonic()
            report = await run.cancel()
            stage.stop_s = time.monotonic() - began
            results = await working
            await _close(stage, title, reply, results)
            narrator.say(
                f"{stage.stop_s:.2f} s after the stop it is over: {len(report.ended)} calls were "
                f"ended by it, {len(report.already_over)} were over before"
            )
            await self._afterwards(runtime, stage, results)

    async def _afterwards(self, runtime: Runtime, stage: Stage, results: BatchResult) -> None:
        """After the report: a late yes, a rest in which nothing may move, and a late end."""
        narrator = stage.narrator
        stage.wedged = [view for view in runtime.calls() if view.abandoned]
        stage.wedged_frames = proof.threads_in("fetch_reviews")
        waited = next((one.call_id for one in results if one.tool == "publish"), None)
        if waited is not None:
            stage.late_yes = runtime.approve(waited, by=HUMAN)
            took = "it counts" if stage.late_yes else "it comes too late and counts for nothing"
            narrator.say(f"{HUMAN} says yes: {took}", mood=Mood.HUMAN)
        before = _all_but_the_journal(stage.directory)
        await asyncio.sleep(0.8 * self._pace.unit_s)
        stage.still = before, _all_but_the_journal(stage.directory)
        narrator.say("the silent server hangs up at last")
        stage.service.hang_up()
        await world.until(lambda: not any(view.abandoned for view in runtime.calls()), GONE_S)
        stage.late_ends = [one.call for one in narrator.events if isinstance(one, e.LateEnd)]
        stage.left_open = runtime.calls()


def _open(stage: Stage, title: str, body: dict[str, Any]) -> Reply:
    reply = read_reply(body)
    stage.narrator.say(title, mood=Mood.TITLE)
    stage.narrator.say(f"the model ({reply.format}) says: {reply.text}")
    stage.narrator.say(f"and asks for {len(reply.calls)} tool calls")
    return reply


async def _close(stage: Stage, title: str, reply: Reply, results: BatchResult) -> None:
    # The narrator hears of an ending a little after those who wait for it.
    await world.until(lambda: stage.narrator.over() > len(stage.scenes), GONE_S)
    stage.scenes.append(
        Scene(
            title=title,
            format=reply.format,
            said=reply.text,
            rows=rows_of(results, stage.narrator),
            messages=tuple(reply.answer(results.observations)),
        )
    )


def _is_under_way(stage: Stage, runtime: Runtime) -> bool:
    """Whether everything that the stop is to meet is there, by the world's own word."""
    stage.under_way = (
        _daemon(stage) is not None
        and stage.service.hanging > 0
        and len({one.key for one in stage.service.read_ledger()}) > 1
        and len(proof.pages(stage.directory, "print")) > 1
        and any(one.tool == "publish" for one in runtime.pending())
    )
    return stage.under_way


def _daemon(stage: Stage) -> world.Process | None:
    text = world.read_text(stage.directory / PID_FILE)
    return world.look_up(int(text)) if text and text.isdigit() else None


def _note_the_last_moment(stage: Stage, runtime: Runtime) -> None:
    stage.daemon = _daemon(stage)
    stage.crowd = world.marked(stage.token)
    beats = (world.read_text(stage.directory / BEATS_FILE) or "").count("\n")
    stage.narrator.say(
        f"{len(stage.crowd)} processes are alive; the daemon is {stage.daemon} and has written "
        f"{beats} lines"
    )


def _all_but_the_journal(directory: Path) -> dict[str, str]:
    return {
        name: digest
        for name, digest in world.snapshot(directory).items()
        if not name.startswith(JOURNAL)
    }


@contextlib.contextmanager
def _marked(token: str) -> Iterator[None]:
    """Let every process that is started inside inherit the token."""
    os.environ[world.MARK] = token
    try:
        yield
    finally:
        os.environ.pop(world.MARK, None)
