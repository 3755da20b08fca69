"""Questions in a simulation: answered or stopped at every point, and the same for the same seed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from endstop import AsyncContext, Context, NotFound, ToolCall, tool
from endstop.core import events as e
from endstop.testing import Interrupt, Simulated, simulate
from endstop.testing.simulator import Driver, Sim
from endstop.testing.trying import RUN


@tool(resources=[], name="asks", timeout=5.0, grace=1.0)
async def asks_on_the_loop(ctx: AsyncContext) -> str:
    """Ask in a coroutine."""
    return await ctx.ask("Which?") + await ctx.ask("Password:", secret=True)


@tool(resources=[], name="asks", timeout=5.0, grace=1.0)
def asks_in_a_thread(ctx: Context) -> str:
    """Ask in a thread."""
    return ctx.ask("Which?") + ctx.ask("Password:", secret=True)


def answer_slowly(sim: Sim, event: Any) -> None:
    """A human who takes longer than the deadline."""

    def answer() -> None:
        # After a stop the run may be over and forgotten.
        with suppress(NotFound):
            sim.runtime.answer(event.question, "yes")

    if isinstance(event, e.QuestionAsked):
        sim.loop.call_later(60.0, answer)


def play(body: Any, driver: Driver, seed: int = 1, **options: Any) -> Simulated:
    calls = [ToolCall(model_id="m", tool="asks", arguments={})]
    return simulate([body], calls, driver=driver, seed=seed, answers=answer_slowly, **options)


@pytest.mark.parametrize("driver", ["async", "blocking"])
@pytest.mark.parametrize("body", [asks_on_the_loop, asks_in_a_thread])
def test_a_human_who_is_slow_is_waited_for(body: Any, driver: Driver) -> None:
    told = play(body, driver)
    assert [answer.value for answer in told.answers] == ["yesyes"]
    assert told.answers[0].ran_s < 1.0
    again = play(body, driver)
    assert [str(event) for _, event in told.trace] == [str(event) for _, event in again.trace]


@pytest.mark.parametrize("driver", ["async", "blocking"])
@pytest.mark.parametrize("body", [asks_on_the_loop, asks_in_a_thread])
def test_BH03_a_stop_after_every_event(body: Any, driver: Driver) -> None:
    whole = len(play(body, driver).trace)
    stopped = 0
    for after in range(1, whole + 1):
        told = play(body, driver, stop=Interrupt(target=RUN, after_event=after))
        stopped += str(told.answers[0].outcome) == "cancelled"
        late = [one for _, one in told.trace if isinstance(one, e.QuestionAnswered)]
        assert len(late) <= 2
    # Not after the last ones: then it has succeeded.
    assert stopped > whole // 2
