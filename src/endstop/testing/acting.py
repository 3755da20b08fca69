"""Testing: plays the scripts of a story as bodies and hooks, on any driver.

A script is played by one generator that yields its waits, so that an async body and a plain one do
the same at the same instants. Nothing here knows which driver runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from endstop.core.terms import Isolation
from endstop.errors import Stopped
from endstop.run.hooks import Block, HookCall, Rewrite
from endstop.testing.simloop import SimLoop
from endstop.testing.simthreads import hang, hang_async
from endstop.testing.story import (
    Act,
    CallScript,
    Child,
    End,
    HookDoes,
    HookScript,
    OnStop,
    Story,
    ToolSpec,
)
from endstop.tools.context import AsyncContext, BodyContext, Context
from endstop.tools.tool import Tool, tool_from_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegate:
    """A body starts a run of its own, with one call, and waits for it."""

    number: str
    child: Child


Wait = tuple[float, bool] | Delegate
"""Seconds, and whether a stop is heard meanwhile; or a child that is waited for."""
Stop = Callable[[str], None]
"""Cancels a run, a batch or a call."""

_STOPS = (asyncio.CancelledError, Stopped)
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "string"}, "key": {"type": "string"}},
    "required": ["n", "key"],
    "additionalProperties": False,
}


class World:
    """What really happened, seen from inside the bodies; a crash ends it."""

    def __init__(self, loop: SimLoop, stop: Stop) -> None:
        self.begun: Counter[str] = Counter()
        self.begun_at: dict[str, float] = {}
        self.touched_at: dict[str, float] = {}
        self.must_not_begin: set[str] = set()
        self.wrong: list[str] = []
        self.stop = stop
        self.delegate_async: Callable[[str, Delegate], Awaitable[None]] = _not_here
        self.delegate_plain: Callable[[str, Delegate], None] = lambda call, what: None
        self._loop = loop

    def begins(self, call: str) -> None:
        """The body of a call has begun."""
        if self._loop.halted:
            return
        self.begun[call] += 1
        self.begun_at[call] = self._loop.time()
        if call in self.must_not_begin:
            self.wrong.append(f"law 1 one-door: the body of {call} began after its cancel")
        if self.begun[call] > 1:
            self.wrong.append(f"law 1 one-door: the body of {call} began again")

    def touches(self, call: str) -> None:
        """A call has its effect."""
        if not self._loop.halted:
            self.touched_at.setdefault(call, self._loop.time())


async def _not_here(call: str, what: Delegate) -> None:
    """A body that cannot start a run from where it is."""


def play(script: CallScript, n: str, ctx: BodyContext, world: World) -> Generator[Wait, None, Any]:
    """The body of the call `n`, step by step; the end is what it returns or raises."""
    body = script.body
    world.begins(ctx.call_id)
    stopped = False
    children = iter(
        [Delegate(number=f"{n}.{i}", child=child) for i, child in enumerate(body.children)]
    )
    for act, seconds in body.steps:
        try:
            if act is Act.CHILD:
                yield next(children)
            else:
                yield from _act(act, seconds, stopped, ctx, world)
        except _STOPS as error:
            stopped = True
            match body.on_stop:
                case OnStop.STOP:
                    yield body.cleanup_s, False
                    raise
                case OnStop.RETURN:
                    yield body.cleanup_s, False
                    return "returned all the same"
                case OnStop.BREAK:
                    raise ValueError("the stop broke it") from error
                case OnStop.IGNORE:
                    pass
    return _end(body.end, ctx)


def _act(
    act: Act, seconds: float, stopped: bool, ctx: BodyContext, world: World
) -> Generator[Wait, None, None]:
    run, _, number = ctx.call_id.partition("/")
    match act:
        case Act.WORK:
            yield seconds, not stopped
        case Act.HANG:
            yield seconds, False
        case Act.PROGRESS:
            ctx.progress("on it", 0.5)
            ctx.note("progress", {"of": ctx.call_id})
            yield seconds, not stopped
        case Act.HUMAN:
            with ctx.human("asks"):
                yield seconds, not stopped
        case Act.COMMIT | Act.COMMIT_FAILS:
            with ctx.commit():
                yield seconds, not stopped
                world.touches(ctx.call_id)
                if act is Act.COMMIT_FAILS:
                    raise ValueError("the effect failed")
        case Act.SPEND:
            ctx.spend("0.05", "EUR")
            yield seconds, not stopped
        case Act.STOP_RUN:
            world.stop(run)
        case Act.STOP_BATCH:
            world.stop(f"{run}/{number.partition('.')[0]}")
        case Act.STOP_ITSELF:
            world.stop(ctx.call_id)
        case Act.CHILD:
            raise AssertionError("a child is delegated, not acted")


def _end(end: End, ctx: BodyContext) -> Any:
    match end:
        case End.RETURN:
            return {"call": ctx.call_id}
        case End.RAISE:
            raise ValueError("it does not work")
        case End.CANCELLED_ERROR:
            raise asyncio.CancelledError("of its own")
        case End.FUTURES_CANCELLED:
            raise concurrent.futures.CancelledError
        case End.EXIT:
            raise SystemExit(3)
        case End.JUNK:
            return {"not": {"json": object()}}


async def act_async(script: CallScript, n: str, ctx: AsyncContext, world: World) -> Any:
    """Play a body as a coroutine. Every other one sleeps as plain asyncio does."""
    played = play(script, n, ctx, world)
    native = hash_of(ctx.call_id) % 2 == 0
    try:
        wait = next(played)
        while True:
            try:
                match wait:
                    case Delegate():
                        await world.delegate_async(ctx.call_id, wait)
                    case (seconds, False):
                        await hang_async(seconds)
                    case (seconds, _) if native:
                        await asyncio.sleep(seconds)
                    case (seconds, _):
                        await ctx.sleep(seconds)
            except _STOPS as error:
                wait = played.throw(error)
            else:
                wait = played.send(None)
    except StopIteration as done:
        return done.value


def act_plain(script: CallScript, n: str, ctx: Context, world: World) -> Any:
    """Play a body as a plain function."""
    played = play(script, n, ctx, world)
    try:
        wait = next(played)
        while True:
            try:
                match wait:
                    case Delegate():
                        world.delegate_plain(ctx.call_id, wait)
                    case (seconds, False):
                        hang(seconds)
                    case (seconds, _):
                        ctx.sleep(seconds)
            except _STOPS as error:
                wait = played.throw(error)
            else:
                wait = played.send(None)
    except StopIteration as done:
        return done.value


def hash_of(text: str) -> int:
    """The same number for a text in every process."""
    return sum(map(ord, text))


def make_tools(story: Story, world: Callable[[], World]) -> list[Tool]:
    """The tools of a story; their bodies are found by the number in their arguments."""
    scripts = story.calls()

    def make(spec: ToolSpec) -> Tool:
        async def coroutine(ctx: AsyncContext, n: str, key: str) -> Any:
            return await act_async(scripts[n], n, ctx, world())

        def plain(ctx: Context, n: str, key: str) -> Any:
            return act_plain(scripts[n], n, ctx, world())

        kind = spec.kind
        return tool_from_schema(
            spec.name,
            _SCHEMA,
            coroutine if kind is Isolation.COROUTINE else plain,
            context_param="ctx",
            isolation=kind,
            **spec.contract,
        )

    return [make(spec) for spec in story.tools]


def make_hook(story: Story, *, plain: bool) -> Callable[[HookCall], Any]:
    """The before-hook of a story, async or plain."""
    scripts = story.calls()

    def answer(script: HookScript, call: HookCall) -> Any:
        match script.does:
            case HookDoes.PASS:
                return None
            case HookDoes.BLOCK:
                return Block("not this one")
            case HookDoes.REWRITE:
                return Rewrite({**call.arguments, "key": "b"})
            case HookDoes.RAISE:
                raise RuntimeError("the hook fails")
            case HookDoes.JUNK:
                return 7

    def script_of(call: HookCall) -> HookScript:
        return scripts[call.arguments["n"]].hook or HookScript()

    def before_plain(call: HookCall) -> Any:
        script = script_of(call)
        hang(script.wait_s)
        return answer(script, call)

    async def before_async(call: HookCall) -> Any:
        script = script_of(call)
        await asyncio.sleep(script.wait_s)
        return answer(script, call)

    return before_plain if plain else before_async
