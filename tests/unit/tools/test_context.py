"""The context: what a body sees, tells and waits for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from endstop.core.inputs import (
    CommitEntered,
    CommitLeft,
    HumanBegan,
    HumanEnded,
    Input,
    Progressed,
    Spent,
)
from endstop.core.terms import Money
from endstop.errors import CallerError, Stopped
from endstop.tools import AsyncContext, Context, current
from endstop.tools.context import PROGRESS_CHARS, BodyContext, enter

LONG_S = 60.0
SOON_S = 10.0


class Core:
    """Takes inputs as the core would, and answers what the test wants."""

    def __init__(self, answer: bool = True) -> None:
        self.told: list[Input] = []
        self.answer = answer

    def tell(self, told: Input) -> bool:
        self.told.append(told)
        return self.answer


def make(kind: type[Any], core: Core) -> Any:
    return kind(call_id="c1", effect_key="key", tell=core.tell)


BOTH = pytest.mark.parametrize("kind", [Context, AsyncContext])


@BOTH
def test_a_stop_is_seen_and_stays(kind: type[BodyContext]) -> None:
    ctx = make(kind, Core())
    assert (ctx.call_id, ctx.effect_key, ctx.cancelled) == ("c1", "key", False)
    ctx.check()
    ctx.stop()
    ctx.stop()
    assert ctx.cancelled
    with pytest.raises(Stopped, match="c1"):
        ctx.check()


@BOTH
def test_progress_is_bounded_and_safe(kind: type[BodyContext]) -> None:
    core = Core()
    ctx = make(kind, core)
    ctx.progress("half", 0.5)
    ctx.progress("x" * 100_000 + "\ud800", 7)
    ctx.progress(fraction=float("nan"))
    ctx.progress(3)
    first, second, third, fourth = core.told
    assert first == Progressed(call="c1", message="half", fraction=0.5)
    assert isinstance(second, Progressed)
    assert len(second.message) <= PROGRESS_CHARS
    second.message.encode()
    assert second.fraction == 1.0
    assert third == Progressed(call="c1")
    assert fourth == Progressed(call="c1", message="3")


@BOTH
def test_money_is_told_exactly(kind: type[BodyContext]) -> None:
    core = Core()
    ctx = make(kind, core)
    ctx.spend("0.04", "usd")
    assert core.told == [Spent(call="c1", money=Money(amount=Decimal("0.04"), currency="USD"))]
    for amount, currency in [
        ("much", "USD"),
        (0.04, "USD"),
        ("-1", "USD"),
        ("1", ""),
        ("NaN", "USD"),
    ]:
        with pytest.raises(CallerError, match="spend"):
            ctx.spend(amount, currency)
    assert len(core.told) == 1


def test_a_wait_for_a_human_is_told_with_both_kinds_of_with() -> None:
    core = Core()
    ctx = make(Context, core)
    with pytest.raises(ZeroDivisionError), ctx.human("sudo"):
        raise ZeroDivisionError

    async def body() -> None:
        async with ctx.human("sudo"):
            pass

    asyncio.run(body())
    assert core.told == [HumanBegan(call="c1", why="sudo"), HumanEnded(call="c1")] * 2


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_commit_block_says_whether_it_was_done(raises: bool, is_async: bool) -> None:
    core = Core()
    ctx = make(AsyncContext if is_async else Context, core)

    def effect() -> None:
        if raises:
            raise ZeroDivisionError

    async def body() -> None:
        async with ctx.commit():
            effect()

    try:
        if is_async:
            asyncio.run(body())
        else:
            with ctx.commit():
                effect()
    except ZeroDivisionError:
        assert raises
    assert core.told == [CommitEntered(call="c1"), CommitLeft(call="c1", done=not raises)]


@pytest.mark.parametrize("is_async", [False, True])
def test_law_1_one_door_a_refused_commit_runs_nothing(is_async: bool) -> None:
    core = Core(answer=False)
    ctx = make(AsyncContext if is_async else Context, core)
    entered = []

    async def body() -> None:
        async with ctx.commit():
            entered.append(1)

    with pytest.raises(Stopped):
        if is_async:
            asyncio.run(body())
        else:
            with ctx.commit():
                entered.append(1)
    assert not entered
    assert core.told == [CommitEntered(call="c1")], "a block that was not entered is not left"


def test_only_the_cores_answer_opens_the_commit_block() -> None:
    core = Core(answer=True)
    ctx = make(Context, core)
    ctx.stop()
    with ctx.commit():
        pass
    assert core.told[-1] == CommitLeft(call="c1", done=True)


def test_law_7_every_wait_listens_a_thread_that_sleeps_wakes_at_once() -> None:
    ctx = make(Context, Core())
    caught: list[BaseException] = []
    asleep = threading.Event()

    def body() -> None:
        asleep.set()
        try:
            ctx.sleep(LONG_S)
        except Stopped as error:
            caught.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    assert asleep.wait(SOON_S)
    ctx.stop()
    thread.join(SOON_S)
    assert not thread.is_alive()
    assert len(caught) == 1


def test_a_stop_before_during_and_after_the_event_is_made_is_never_missed() -> None:
    for _ in range(300):
        ctx = make(Context, Core())
        start = threading.Barrier(3)
        woken: list[bool] = []

        def sleeper(
            ctx: Context = ctx, start: threading.Barrier = start, woken: list[bool] = woken
        ) -> None:
            start.wait(SOON_S)
            woken.append(ctx.wait_cancelled(SOON_S))

        threads = [threading.Thread(target=sleeper, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait(SOON_S)
        ctx.stop()
        for thread in threads:
            thread.join(SOON_S)
        assert woken == [True, True]


def test_a_stop_at_the_instant_of_falling_asleep_is_seen() -> None:
    class Late(Context):
        def _stop_event(self) -> threading.Event:
            self.stop()
            return super()._stop_event()

    assert make(Late, Core()).wait_cancelled(SOON_S) is True


def test_who_was_stopped_before_does_not_fall_asleep() -> None:
    ctx = make(Context, Core())
    ctx.stop()
    assert ctx.wait_cancelled() is True
    other = make(AsyncContext, Core())
    other.stop()

    async def body() -> bool:
        return await asyncio.wait_for(other.wait_cancelled(), SOON_S)

    assert asyncio.run(body()) is True


def test_a_sleep_without_a_stop_just_ends() -> None:
    ctx = make(Context, Core())
    ctx.sleep(0)
    assert ctx.wait_cancelled(0.01) is False

    async def body() -> None:
        other = make(AsyncContext, Core())
        await other.sleep(0)
        assert await other.wait_cancelled(0.01) is False

    asyncio.run(body())


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_a_wait_of_less_than_nothing_is_refused(seconds: float) -> None:
    with pytest.raises(CallerError, match="0 seconds or more"):
        make(Context, Core()).sleep(seconds)


def test_law_7_every_wait_listens_coroutines_wake_from_another_thread() -> None:
    ctx = make(AsyncContext, Core())

    async def sleeper() -> bool:
        try:
            await ctx.sleep(LONG_S)
        except Stopped:
            return True
        return False

    async def body() -> list[bool]:
        tasks = [asyncio.create_task(sleeper()) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=ctx.stop, daemon=True).start()
        return await asyncio.wait_for(asyncio.gather(*tasks), SOON_S)

    began = time.monotonic()
    # In debug mode a loop refuses to be touched by another thread.
    assert asyncio.run(body(), debug=True) == [True, True, True]
    assert time.monotonic() - began < SOON_S
    assert not ctx._sleepers


def test_a_cancelled_sleep_leaves_nothing_behind() -> None:
    ctx = make(AsyncContext, Core())

    async def body() -> None:
        task = asyncio.create_task(ctx.sleep(LONG_S))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ctx._sleepers

    asyncio.run(body())
    ctx.stop()


def test_a_stop_after_the_loop_is_gone_is_harmless() -> None:
    ctx = make(AsyncContext, Core())

    async def body() -> None:
        ctx._sleepers = {asyncio.get_running_loop().create_future()}

    asyncio.run(body())
    ctx.stop()
    assert ctx.cancelled


def test_the_current_context_is_found_deep_inside_and_nowhere_else() -> None:
    ctx = make(Context, Core())

    def helper() -> BodyContext:
        return current()

    def body() -> BodyContext:
        enter(ctx)
        return helper()

    assert contextvars.copy_context().run(body) is ctx
    with pytest.raises(CallerError, match="no tool body runs here"):
        current()
