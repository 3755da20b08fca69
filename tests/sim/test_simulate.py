"""`simulate` for tools of one's own: what it shows, what it catches, and its document."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from endstop import AsyncContext, CallerError, Config, Context, Outcome, ToolCall, tool
from endstop.config import SlotLimits
from endstop.testing import (
    Fate,
    Fault,
    Interrupt,
    Trouble,
    hang,
    hang_async,
    simulate,
    simulate_stops,
)
from endstop.testing.simulator import Driver

DRIVERS: list[Driver] = ["async", "blocking"]


@tool(resources=[])
async def nap(ctx: AsyncContext, seconds: float) -> str:
    """Sleep as asyncio does."""
    await asyncio.sleep(seconds)
    return "rested"


@tool(resources=[], grace=2.0)
async def deaf(seconds: float) -> str:
    """Swallow every cancel."""
    await hang_async(seconds)
    return "late"


@tool(isolation="thread", resources=[], grace=1.0)
def plod(ctx: Context, seconds: float) -> str:
    """Wait in a thread, hearing a stop."""
    ctx.sleep(seconds)
    return "there"


@tool(isolation="thread", resources=[], grace=1.0)
def wedge(seconds: float) -> str:
    """Wait in a thread, hearing nothing."""
    hang(seconds)
    return "late"


def call(name: str, seconds: float = 1.0) -> ToolCall:
    return ToolCall(model_id="m", tool=name, arguments={"seconds": seconds})


def test_the_document_runs(root: Path) -> None:
    text = (root / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "docs/testing.md", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("driver", DRIVERS)
def test_hours_pass_at_once_and_to_the_second(driver: Driver) -> None:
    told = simulate([nap, plod], [call("nap", 7200), call("plod", 100)], driver=driver)
    assert [answer.value for answer in told.answers] == [
        "rested",
        None,
    ] or [answer.ok for answer in told.answers] == [False, True]
    timed = told.ending("run/0.0")
    assert (timed.outcome, timed.ran_s) == (Outcome.TIMED_OUT, 420.0), "the default deadline"
    assert told.ending("run/0.1").ran_s == 100.0


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_stop_ends_each_by_its_rung(driver: Driver) -> None:
    names = ["nap", "deaf", "plod", "wedge"]
    tools = [nap, deaf, plod, wedge]
    calls = [call(name, 60) for name in names]
    told = simulate(tools, calls, driver=driver, stop_at_s=5.0)
    rungs = {one.tool: (str(one.stopped_by), one.ran_s) for one in told.answers}
    assert rungs == {
        "nap": ("asked", 5.0),
        "deaf": ("abandoned", 7.0),
        "plod": ("asked", 5.0),
        "wedge": ("abandoned", 6.0),
    }
    (report,) = told.cancels
    assert len(report.ended) == 4
    late = [type(event).__name__ for event in told.events].count("LateEnd")
    assert late == 2, "what was abandoned ended late, once"


def test_stopped_after_every_event() -> None:
    outcomes = set()
    plays = list(simulate_stops([nap, plod], [call("nap"), call("plod", 2)], seeds=range(2)))
    for told in plays:
        outcomes |= {answer.outcome for answer in told.answers}
    assert len(plays) > 20
    assert outcomes == {Outcome.SUCCEEDED, Outcome.CANCELLED}


def test_fates_and_terms_reach_the_runtime() -> None:
    fates = {"plod": Fate(start_fails=True, start_s=3.0)}
    terms = {"parallel": 1, "on_failure": "stop"}
    config = Config(slots=SlotLimits(thread=1))
    calls = [call("plod"), call("wedge")]
    told = simulate([plod, wedge], calls, fates=fates, terms=terms, config=config)
    assert [str(answer.reason) for answer in told.answers] == ["start_failed", "ok"]
    assert told.trace[-1][0] == 4.0


def test_a_journal_that_fails_is_not_believed() -> None:
    told = simulate([nap], [call("nap")], trouble=Trouble(at=1, fault=Fault.BROKEN))
    assert told.answers == []
    assert "cannot be written" in str(told.errors[0])
    told = simulate([nap], [call("nap")], trouble=Trouble(at=3, fault=Fault.DIES))
    assert told.crashed


def test_a_broken_law_is_an_assertion_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endstop.core.calls.settling.HURRY_S", 50.0)
    monkeypatch.setattr("endstop.testing.simulator.LATE_S", 1.0)
    with pytest.raises(AssertionError, match=r"(?s)Settings\(seed=7.*law 9 on-the-books"):
        simulate([wedge], [call("wedge", 500)], seed=7, stop_at_s=1.0)


def test_what_simulate_does_not_know_is_named() -> None:
    with pytest.raises(CallerError, match="knows no `speed`"):
        simulate([nap], [call("nap")], speed=3)
    with pytest.raises(CallerError, match="not str"):
        simulate([nap], "nap")  # type: ignore[arg-type]
    stop = Interrupt(target="nobody", after_event=1)
    assert simulate([nap], [call("nap")], stop=stop).answers[0].ok
