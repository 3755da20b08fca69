"""Letting a run go: what has not begun stays pending, whoever takes the run up (laws 15 and 16)."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from endstop import (
    AsyncContext,
    CallerError,
    Config,
    Context,
    Effect,
    NotFound,
    Outcome,
    Reason,
    RunSuspended,
    Runtime,
    tool,
)
from endstop.core import events as e
from endstop.core.terms import Phase
from endstop.store.memory import MemoryJournal
from endstop.testing.laws import check_story
from endstop.tools.tool import Tool
from tests.driving import Going, House, Street, call, quick, until
from tests.recovery.crashing import Resumed, crashed, recorded


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """A journal of either kind."""
    return None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"


class Bodies:
    """A tool that a human must allow, one that waits for the test, and what they ran."""

    def __init__(self, street: Street) -> None:
        self.ran: list[int] = []
        self.door = street.door()

        @tool(approval="always", resources=[])
        def gated(n: int) -> int:
            """Waits for a yes."""
            self.ran.append(n)
            return n

        @tool(resources=["file:/x"])
        async def waits(n: int) -> int:
            """Waits for the test."""
            self.ran.append(n)
            await self.door.pass_through()
            return n

        self.tools: list[Tool] = [gated, waits]


def suspend(house: House, run: str = "r") -> bool:
    """Let a run go, from the test's own thread."""
    if house.kind == "blocking":
        return bool(house.rt.suspend(run))
    return bool(house.await_there(house.rt.suspend(run)))


def shut(house: House) -> None:
    """Close a house in such a way that what has not begun stays pending."""
    if house.kind == "blocking":
        house.rt.close(suspend=True)
    else:
        house.await_there(house.rt.close(suspend=True))
    # Its story goes on in another house; whoever takes it up checks the whole.
    house.lawful = False


def is_let_go(going: Going) -> None:
    """Whoever waited for the batch was told."""
    with pytest.raises(RunSuspended, match=r"run 'r' was suspended.*resume it to go on"):
        going.future.result(20)


def test_law_16_a_run_that_waits_for_a_human_is_let_go_and_taken_up(
    street: Street, kind: str, journal: str | None
) -> None:
    bodies = Bodies(street)
    house = street.open(kind, bodies.tools, journal=journal)
    run = house.run("r", labels={"owner": "alice"})
    assert run.run.note("user", {"text": "hello"})
    going = run.begin([call("gated", n=1)])
    house.watch.wait(e.ApprovalAsked)
    assert suspend(house)
    is_let_go(going)
    assert house.watch.wait(e.RunInterrupted) == e.RunInterrupted(run="r", clean=True)
    assert not house.state.runs
    assert not house.state.calls
    assert not house.state.approvals
    assert not house.rt.engine.plans
    assert not house.rt.engine._promises
    assert house.rt.engine.journal.orphans() == ["r"]
    assert house.rt.engine.journal.labelled({"owner": "alice"}) == ["r"]
    # The old handle is no way into the run that is driven again.
    assert not run.run.note("late", {})
    with pytest.raises(RunSuspended):
        run.execute([call("gated", n=2)])
    resumed = Resumed(house)
    assert not run.run.note("late", {})
    run.close()
    (pending,) = house.rt.pending()
    assert pending.call_id == "r/0.0"
    house.rt.approve(pending.call_id)
    ((result,),) = resumed.finish()
    assert (result.outcome, result.value, bodies.ran) == (Outcome.SUCCEEDED, 1, [1])
    story = recorded(house)
    assert not [one for one in story if isinstance(one, e.RunClosing)], "the old handle closed it"
    assert check_story(story, complete=False) == []


def test_law_15_what_runs_is_not_let_go(street: Street, kind: str) -> None:
    bodies = Bodies(street)
    house = street.open(kind, bodies.tools)
    run = house.run("r")
    going = run.begin([call("gated", n=1), call("waits", n=2)])
    house.watch.wait(e.CallStarted, 1)
    assert not suspend(house)
    bodies.door.open()
    house.watch.wait(e.CallSettled, 1)
    assert suspend(house)
    is_let_go(going)
    house.lawful = False


def test_a_run_that_is_cancelled_or_over_is_not_let_go(street: Street, kind: str) -> None:
    house = street.open(kind, Bodies(street).tools)
    run = house.run("r")
    run.cancel().wait()
    with pytest.raises(NotFound):
        suspend(house, "nothing")
    assert not suspend(house)
    run.close()
    with pytest.raises(NotFound):
        suspend(house)


def test_law_17_a_child_is_not_let_go_under_its_parent(street: Street, kind: str) -> None:
    said: list[bool] = []

    @tool(resources=[])
    async def parent(ctx: AsyncContext) -> None:
        """Opens runs of its own."""
        house.rt.run("child", parent=ctx.call_id)
        house.rt.run("apart", parent=ctx.call_id, detached=True)
        said.extend(house.rt._begin_suspend(name) is not None for name in ("child", "apart"))

    house = street.open(kind, [parent])
    (result,) = house.run("r").execute([call("parent")])
    assert result.outcome is Outcome.SUCCEEDED, result.error
    assert said == [False, False]


def test_an_idle_run_is_let_go_and_goes_on(street: Street, kind: str, journal: str | None) -> None:
    bodies = Bodies(street)
    bodies.door.open()
    house = street.open(kind, bodies.tools, journal=journal)
    run = house.run("r")
    run.execute([call("waits", n=1)])
    assert suspend(house)
    again = Resumed(house)
    again.run.note("user", {"text": "more"})
    (batch,) = again.finish()
    assert [one.value for one in batch] == [1]
    assert bodies.ran == [1], "what is over does not run again"


def test_many_runs_that_are_let_go_leave_nothing_behind(street: Street, kind: str) -> None:
    house = street.open(kind, Bodies(street).tools)
    goings = [house.run(f"r{n}").begin([call("gated", n=n)]) for n in range(200)]
    house.watch.wait(e.ApprovalAsked, count=200)
    assert all(suspend(house, f"r{n}") for n in range(200))
    for going in goings:
        with pytest.raises(RunSuspended):
            going.future.result(20)
    goings.clear()
    gc.collect()
    engine = house.rt.engine
    left = (engine.state.runs, engine.state.calls, engine.plans, engine._promises, engine.fences)
    assert not any(left), left
    assert not len(engine.state.timers)


def test_bh56_a_shutdown_leaves_what_has_not_begun_pending(
    street: Street, kind: str, tmp_path: Path
) -> None:
    """One done, one running, two not begun; replayed, honest, pending; no retry, no failure."""
    path = f"sqlite:{tmp_path / 'runs.db'}"
    ran: list[int] = []
    door = street.door()

    @tool(resources=["file:/bh56"], retries=3, effect="idempotent")
    async def step(n: int) -> int:
        """One of a sequence."""
        ran.append(n)
        if n == 1:
            await door.pass_through()
        return n

    house = street.open(kind, [step], journal=path)
    going = house.run("r").begin([call("step", n=n) for n in range(4)])
    house.watch.wait(e.CallStarted, 1)
    shut(house)
    is_let_go(going)
    door.open()
    assert ran == [0, 1]
    second = street.open(kind, [step], journal=path)
    before = recorded(second)
    settled = {one.call: one for one in before if isinstance(one, e.CallSettled)}
    assert {name: str(one.outcome) for name, one in settled.items()} == {
        "r/0.0": "succeeded",
        "r/0.1": "cancelled",
    }
    stopped = settled["r/0.1"]
    assert (stopped.reason, stopped.effect) == (Reason.SHUTDOWN, Effect.UNKNOWN)
    assert not [one for one in before if isinstance(one, e.CallRetried)]
    assert before[-1] == e.RunInterrupted(run="r", clean=True)
    (batch,) = Resumed(second).finish()
    assert [str(one.outcome) for one in batch] == [
        "succeeded",
        "cancelled",
        "succeeded",
        "succeeded",
    ]
    assert ran == [0, 1, 2, 3], "each ran once"
    assert batch[2].retried == 0, "what had not begun is known not to have begun"


def test_law_10_what_was_granted_and_not_claimed_is_known_not_to_have_begun(
    street: Street, kind: str, journal: str | None
) -> None:
    """A worker that is slow to begin: the grant is recorded, the body never began."""
    bodies = Bodies(street)
    house = street.open(kind, bodies.tools, journal=journal)
    house.rt.engine.workers[bodies.tools[1].declared.isolation] = Idle()
    going = house.run("r").begin([call("waits", n=1)])
    house.watch.wait(e.CallGranted)
    assert suspend(house)
    is_let_go(going)
    assert not any(slots.taken for slots in house.state.slots.values())
    assert not len(house.state.resources)
    twin = crashed(recorded(house))
    bodies.door.open()
    second = street.open(kind, bodies.tools, journal=journal or house.rt.engine.journal)
    (batch,) = Resumed(second).finish()
    assert [(one.outcome, one.retried) for one in batch] == [(Outcome.SUCCEEDED, 0)]
    house.lawful = False
    third = street.open(kind, bodies.tools, journal=twin)
    (gone,) = third.cancel("r").wait().ended
    assert (gone.outcome, gone.effect) == (Outcome.CANCELLED, Effect.NONE)
    third.lawful = False


def test_law_5_what_never_began_is_known_to_have_done_nothing(
    street: Street, kind: str, journal: str | None
) -> None:
    """An idempotent call does not wait for its record; here it is known that it did not begin."""

    @tool(effect="idempotent", resources=[], approval="always")
    def put(n: int) -> int:
        """Writes the same, however often."""
        return n

    house = street.open(kind, [put], journal=journal)
    going = house.run("r").begin([call("put", n=1), call("put", n=2)])
    house.watch.wait(e.ApprovalAsked, count=2)
    assert suspend(house)
    is_let_go(going)
    (gone,) = house.cancel("r/0.0").wait().ended
    assert (gone.outcome, gone.effect) == (Outcome.CANCELLED, Effect.NONE)
    resumed = Resumed(house)
    house.cancel("r").wait()
    (batch,) = resumed.finish()
    assert [(one.outcome, one.effect) for one in batch] == [(Outcome.CANCELLED, Effect.NONE)] * 2


class Idle:
    """A worker that never comes to begin."""

    def start(self, job: object) -> None:
        """Take a job and leave it."""

    def look(self, call: str) -> None:
        """Nothing is here."""

    def close(self) -> None:
        """Nothing is here."""


def test_law_9_a_body_that_cannot_be_stopped_says_no_more_of_a_run_that_was_let_go(
    street: Street, kind: str, tmp_path: Path
) -> None:
    path = f"sqlite:{tmp_path / 'runs.db'}"
    door = street.door()
    said: list[bool] = []

    @tool(resources=["file:/x"])
    def deaf(ctx: Context) -> None:
        """Hears no stop."""
        door.wait()
        said.append(ctx.note("late", {}))

    house = street.open(kind, [deaf], journal=path)
    run = house.run("r")
    going = run.begin([call("deaf"), call("deaf")])
    house.watch.wait(e.CallStarted, 0)
    shut(house)
    is_let_go(going)
    second = street.open(kind, [deaf], journal=path)
    before = recorded(second)
    (lost,) = [one for one in before if isinstance(one, e.CallSettled)]
    assert (lost.alive, lost.outcome, lost.effect) == (True, Outcome.CANCELLED, Effect.UNKNOWN)
    door.open()
    (batch,) = Resumed(second).finish()
    assert [str(one.outcome) for one in batch] == ["cancelled", "succeeded"]
    assert said[0] is False or said == [True, False]
    assert not [one for one in recorded(second) if isinstance(one, e.LateEnd)]


def test_law_3_the_late_end_of_an_abandoned_body_is_not_recorded_in_a_run_that_was_let_go(
    street: Street, kind: str
) -> None:
    door = street.door()

    @tool(resources=["file:/x"])
    def deaf() -> None:
        """Hears no stop."""
        door.wait()

    journal = MemoryJournal()
    house = street.open(kind, [deaf], journal=journal)
    going = house.run("r").begin([call("deaf"), call("deaf")])
    house.watch.wait(e.CallStarted, 0)
    shut(house)
    is_let_go(going)
    door.open()
    until(lambda: not any(one.alive for one in house.state.calls.values()))
    assert recorded(house)[-1] == e.RunInterrupted(run="r", clean=True)
    assert not len(house.state.resources), "what it held is free all the same"


def test_law_2_a_cancel_reaches_a_run_that_was_let_go(
    street: Street, kind: str, journal: str | None
) -> None:
    bodies = Bodies(street)
    house = street.open(kind, bodies.tools, journal=journal)
    going = house.run("r").begin([call("gated", n=1), call("gated", n=2)])
    house.watch.wait(e.ApprovalAsked, count=2)
    assert suspend(house)
    is_let_go(going)
    one = house.cancel("r/0.1")
    assert one.accepted
    assert [(x.call_id, x.outcome) for x in one.wait().ended] == [("r/0.1", Outcome.CANCELLED)]
    assert not house.cancel("r/0.1").accepted
    whole = house.cancel("r", reason="superseded")
    assert whole.accepted
    (ended,) = whole.wait().ended
    assert (ended.call_id, ended.outcome, ended.reason, ended.effect) == (
        "r/0.0",
        Outcome.CANCELLED,
        Reason.SUPERSEDED,
        Effect.NONE,
    )
    story = recorded(house)
    assert isinstance(story[-1], e.RunEnded)
    assert story[-1].outcome is Outcome.CANCELLED
    assert check_story(story) == []
    assert house.rt.engine.journal.orphans() == []
    for target in ("r", "r/0.0", "never", "never/0.0"):
        with pytest.raises(NotFound):
            house.cancel(target)
    assert bodies.ran == []
    house.lawful = False


def test_law_16_a_cancel_of_a_run_that_another_program_drives_says_so(
    street: Street, kind: str, tmp_path: Path
) -> None:
    path = f"sqlite:{tmp_path / 'runs.db'}"
    first = street.open(kind, Bodies(street).tools, journal=path)
    first.run("r")
    first.rt.engine.journal.flush()
    second = street.open(kind, Bodies(street).tools, journal=path)
    with pytest.raises(CallerError, match="driven by a program that lives"):
        second.cancel("r")
    assert recorded(first)[-1] == e.RunOpened(run="r")


def test_law_13_an_answer_during_the_shutdown_is_not_lost(
    street: Street, kind: str, tmp_path: Path
) -> None:
    """While what runs is stopped, an approval is still asked, and can be answered afterwards."""
    path = f"sqlite:{tmp_path / 'runs.db'}"
    bodies = Bodies(street)
    house = street.open(kind, bodies.tools, journal=path, config=quick(grace_s=5.0))
    stopping: list[Any] = []

    @tool(resources=[])
    def lingers(ctx: Context) -> None:
        """Answers for the human, while it is being stopped."""
        ctx.wait_cancelled()
        stopping.append(house.rt.approve("r/0.0"))
        ctx.check()

    house.rt.add_tool(lingers)
    going = house.run("r").begin([call("gated", n=1), call("lingers")])
    house.watch.wait(e.ApprovalAsked)
    house.watch.wait(e.CallStarted, 1)
    shut(house)
    is_let_go(going)
    assert stopping == [False], "it came too late here"
    second = street.open(kind, [*bodies.tools, lingers], journal=path, config=Config())
    resumed = Resumed(second)
    assert second.state.calls["r/0.0"].phase is Phase.AWAITING_APPROVAL
    second.rt.approve("r/0.0")
    (batch,) = resumed.finish()
    assert [str(one.outcome) for one in batch] == ["succeeded", "cancelled"]
    assert bodies.ran == [1]


def test_law_16_whoever_opens_the_journal_does_not_take_what_was_let_go(
    street: Street, kind: str
) -> None:
    """Not for a moment: another program may be about to take it up."""
    taken: list[str] = []

    class Watched(MemoryJournal):
        """Says who was taken."""

        def adopt(self, run: str) -> bool:
            """See `MemoryJournal`."""
            taken.append(run)
            return super().adopt(run)

    journal = Watched()
    house = street.open(kind, Bodies(street).tools, journal=journal)
    going = house.run("r").begin([call("gated", n=1)])
    house.watch.wait(e.ApprovalAsked)
    assert suspend(house)
    is_let_go(going)
    street.open(kind, Bodies(street).tools, journal=journal)
    assert taken == []
    assert recorded(house)[-1] == e.RunInterrupted(run="r", clean=True)
    house.lawful = False


def test_law_6_a_run_that_drains_does_not_hold_up_a_shutdown(street: Street, kind: str) -> None:
    """It was cancelled, so it is not let go; what runs of it is stopped like the rest."""
    bodies = Bodies(street)
    house = street.open(kind, bodies.tools)
    going = house.run("r").begin([call("waits", n=1)])
    house.watch.wait(e.CallStarted)
    house.cancel("r", mode="drain")
    shut(house)
    (result,) = going.result()
    assert (result.outcome, result.reason) == (Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    assert recorded(house)[-1] == e.RunEnded(
        run="r", outcome=Outcome.CANCELLED, reason=Reason.CANCELLED_BY_USER
    )


def test_law_20_a_run_whose_budget_another_one_draws_on_stays(street: Street, kind: str) -> None:
    """What the detached run spends would be in no books while this one is away."""
    said: list[str] = []

    @tool(resources=[])
    async def parent(ctx: AsyncContext) -> None:
        """Opens a run that outlives it."""
        said.append(house.rt.run("apart", parent=ctx.call_id, detached=True).id)

    house = street.open(kind, [parent])
    house.run("r").execute([call("parent")])
    assert said == ["apart"]
    assert not suspend(house)
    assert not suspend(house, "apart")
    house.cancel("apart").wait()
    assert suspend(house)
    house.lawful = False


@pytest.mark.parametrize("steps", range(4))
def test_whoever_is_cancelled_while_its_run_is_let_go_is_cancelled_or_told(steps: int) -> None:
    """A native cancel is never turned into an error of ours that says nothing of it."""

    @tool(approval="always", isolation="coroutine")
    async def gated() -> None:
        """Waits for a yes."""

    async def play() -> None:
        async with Runtime([gated]) as runtime:
            run = runtime.run()
            waiting = asyncio.ensure_future(run.execute([call("gated")]))
            while not runtime.pending():
                await asyncio.sleep(0.01)
            letting_go = asyncio.ensure_future(runtime.suspend(run.id))
            for _ in range(steps):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises((asyncio.CancelledError, RunSuspended)):
                await waiting
            await letting_go

    asyncio.run(play())
