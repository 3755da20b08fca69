"""What a crash does to a task that is with somebody else: gone on with, not begun again (law 10).

The reference that an async agent answers `submit` with is noted at once. Whoever takes the run up
asks with it for status and result, whatever the effect of the tool: that repeats nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncAgent, Context, Isolation, LocalAgent, Outcome, Reason, tool
from endstop.agents import Patience, Task, recognise
from endstop.core import events as e
from endstop.core.terms import REFERENCE, Contract
from endstop.store.memory import MemoryJournal
from endstop.store.owner import this_owner
from endstop.store.protocol import Durability
from endstop.store.sqlite import SqliteJournal
from endstop.testing.laws import check_story
from tests.agents.desk import Desk
from tests.driving import House, Street, call, endings
from tests.recovery.crashing import Resumed, crashed, cut_after, recorded

QUICK = Patience(every_s=0.0, most_every_s=0.005, linger_s=5.0, probes=2)


class Peer:
    """An agent elsewhere: it outlives whoever submitted to it."""

    def __init__(self, effect: str = "effectful", **terms: Any) -> None:
        self.asked: list[str] = []
        self.tasks: dict[str, str] = {}
        self.says: Any = "succeeded"
        contract = {"effect": effect, "resources": (), **terms}
        self.agent = AsyncAgent(
            name="peer",
            submit=self._submit,
            status=self._status,
            fetch=self._fetch,
            cancel=self._cancel,
            patience=QUICK,
            contract=contract,
        )

    async def _submit(self, task: Task) -> Any:
        self.asked.append("submit")
        number = f"t{len(self.tasks)}"
        self.tasks[number] = task.prompt
        return {"task": number}

    async def _status(self, reference: dict[str, str]) -> Any:
        self.asked.append(f"status {reference['task']}")
        return self.says

    async def _fetch(self, reference: dict[str, str]) -> str:
        self.asked.append(f"fetch {reference['task']}")
        return f"a text on {self.tasks[reference['task']]}"

    async def _cancel(self, reference: dict[str, str]) -> None:
        self.asked.append(f"cancel {reference['task']}")
        self.says = "cancelled"


def story(street: Street, kind: str, peer: Peer) -> list[e.Event]:
    """A run with one delegated call, from its beginning to its end."""
    desk = Desk(street.open(kind))
    assert desk.take(desk.delegate(peer.agent, "bees")) == "a text on bees"
    told = recorded(desk.house)
    desk.check_closed()
    peer.asked.clear()
    return told


def taken_up(street: Street, kind: str, cut: Sequence[e.Event], peer: Peer) -> Resumed:
    """The run, taken up by a program that knows the peer."""
    house = street.open(kind, journal=crashed(cut))
    recognise(house.rt, peer.agent)
    return Resumed(house)


@pytest.mark.parametrize("effect", ["once", "effectful", "idempotent", "read_only"])
def test_law_10_a_task_that_was_submitted_is_not_submitted_again(
    street: Street, kind: str, effect: str
) -> None:
    peer = Peer(effect)
    cut = cut_after(story(street, kind, peer), e.Noted, "r/0.0")
    assert cut[-1] == e.Noted(
        run="r", kind=REFERENCE, body={"reference": {"task": "t0"}}, call="r/0.0"
    )
    (batch,) = taken_up(street, kind, cut, peer).finish()
    assert endings(batch) == [("succeeded", "ok", "done")]
    assert (batch[0].value, batch[0].retried) == ("a text on bees", 1)
    assert peer.asked == ["status t0", "fetch t0"]


def test_law_10_without_its_reference_nothing_is_known_of_it(street: Street, kind: str) -> None:
    peer = Peer()
    cut = cut_after(story(street, kind, peer), e.CallStarted, "r/0.0")
    (batch,) = taken_up(street, kind, cut, peer).finish()
    assert endings(batch) == [("lost", "driver_lost", "unknown")]
    assert peer.asked == []


def test_law_5_what_the_agent_says_of_it_then_is_the_answer(street: Street, kind: str) -> None:
    for says, probes in (("failed", 1), ("nonsense", 2)):
        peer = Peer()
        cut = cut_after(story(street, kind, peer), e.Noted, "r/0.0")
        peer.says = says
        (batch,) = taken_up(street, kind, cut, peer).finish()
        assert endings(batch) == [("failed", "tool_error", "unknown")]
        assert peer.asked == ["status t0"] * probes


def test_law_2_a_stop_reaches_a_task_that_was_taken_up(street: Street, kind: str) -> None:
    peer = Peer()
    cut = cut_after(story(street, kind, peer), e.Noted, "r/0.0")
    peer.says = "running"
    resumed = taken_up(street, kind, cut, peer)
    resumed.house.watch.wait(e.CallStarted)
    resumed.house.cancel("r/0.0").wait()
    (batch,) = resumed.finish()
    assert endings(batch) == [("cancelled", "cancelled_by_user", "unknown")]
    assert "submit" not in peer.asked
    assert "cancel t0" in peer.asked


def test_law_10_the_reference_of_an_attempt_that_was_over_is_not_used(
    street: Street, kind: str
) -> None:
    """It failed, and was tried again: the second task is another one."""
    peer = Peer("idempotent", retries=2, backoff="0s")
    peer.says = "failed"
    desk = Desk(street.open(kind))
    handle = desk.delegate(peer.agent, "bees")
    desk.house.watch.wait(e.CallSettled)
    told = recorded(desk.house)
    with pytest.raises(Exception, match="failed"):
        desk.take(handle)
    desk.check_closed()
    second = [n for n, one in enumerate(told) if isinstance(one, e.CallStarted)][1]
    peer.asked.clear()
    peer.says = "succeeded"
    (batch,) = taken_up(street, kind, told[: second + 1], peer).finish()
    assert endings(batch) == [("succeeded", "ok", "done")]
    assert peer.asked == ["submit", "status t3", "fetch t3"], "nobody knows of a second reference"


def test_a_task_that_was_taken_up_and_failed_is_tried_again_with_a_new_one(
    street: Street, kind: str
) -> None:
    peer = Peer("idempotent", retries=2, backoff="0s")
    cut = cut_after(story(street, kind, peer), e.Noted, "r/0.0")
    peer.says = "failed"
    (batch,) = taken_up(street, kind, cut, peer).finish()
    assert endings(batch) == [("failed", "tool_error", "unknown")]
    assert peer.asked == ["status t0", "submit", "status t1"]


def test_a_reference_that_no_journal_gives_back_is_not_noted(street: Street, kind: str) -> None:
    """An agent is never asked with something else than what it said."""

    class Ticket:
        """A reference that lives in this process only."""

    async def submit(task: Task) -> Any:
        return (Ticket(), task.id)

    async def status(reference: object) -> str:
        return "succeeded"

    async def fetch(reference: object) -> str:
        return type(reference).__name__

    agent = AsyncAgent(name="near", submit=submit, status=status, fetch=fetch, patience=QUICK)
    desk = Desk(street.open(kind))
    assert desk.take(desk.delegate(agent, "bees")) == "tuple"
    assert not [one for one in recorded(desk.house) if isinstance(one, e.Noted)]
    desk.check_closed()


def test_law_17_the_children_of_a_body_that_was_lost_end_with_it(street: Street, kind: str) -> None:
    """One call of the child was running, one had not begun: nobody waits for either any more."""
    door = street.door()

    @tool(resources=["file:/x"])
    def work(n: int) -> int:
        """Waits for the test."""
        door.wait()
        return n

    def two_calls(run: Any) -> Any:
        return run.execute([call("work", n=1), call("work", n=2)])

    async def drive(task: Task, run: Any) -> Any:
        return [one.value for one in await two_calls(run)]

    def drive_blocking(task: Task, run: Any) -> Any:
        return [one.value for one in two_calls(run)]

    fn = drive if kind == "async" else drive_blocking
    agent = LocalAgent(name="local", fn=fn)
    first = street.open(kind, [work])
    desk = Desk(first)
    handle = desk.delegate(agent, "x")
    first.watch.wait(e.CallStarted, count=2)
    journal = copied(first)
    door.open()
    desk.take(handle)
    desk.check_closed()
    second = street.open(kind, [work], journal=journal)
    recognise(second.rt, agent)
    (child,) = [name for name in journal.runs() if name != "r"]
    ended = [one.event for one in journal.read(child)]
    settled = {one.call: one for one in ended if isinstance(one, e.CallSettled)}
    assert [(str(one.outcome), str(one.effect)) for one in settled.values()] == [
        ("lost", "unknown"),
        ("cancelled", "none"),
    ]
    assert isinstance(ended[-1], e.RunEnded)
    assert ended[-1].reason is Reason.PARENT_CANCELLED
    assert check_story(ended, complete=False) == []
    assert journal.orphans() == ["r"]
    (batch,) = Resumed(second).finish()
    assert endings(batch) == [("lost", "driver_lost", "unknown")]


def copied(house: House) -> MemoryJournal:
    """What a journal has now of all runs; its driver is gone."""
    journal, source = MemoryJournal(), house.rt.engine.journal
    for name in source.runs():
        journal.append(name, 0, [one.event for one in source.read(name)], Durability.BUFFERED)
    journal.close()
    return journal


def test_law_10_a_note_of_that_kind_alone_lets_nothing_run_again(street: Street, kind: str) -> None:
    """Only a tool whose task is elsewhere can be gone on with."""
    ran: list[int] = []

    @tool(resources=[])
    def pays(ctx: Context) -> None:
        """Writes what looks like a reference."""
        ran.append(1)
        ctx.note(REFERENCE, {"reference": "t0"})

    house = street.open(kind, [pays])
    run = house.run("r")
    run.execute([call("pays")])
    cut = cut_after(recorded(house), e.Noted, "r/0.0")
    second = street.open(kind, [pays], journal=crashed(cut))
    assert isinstance(recorded(second)[-2], e.CallSettled), "settled where it was opened"
    (batch,) = Resumed(second).finish()
    assert endings(batch) == [("lost", "driver_lost", "unknown")]
    assert ran == [1]


def test_law_17_a_cancel_of_a_run_that_was_lost_ends_the_runs_below_it(
    street: Street, kind: str, tmp_path: Path
) -> None:
    """The journal was open before its driver was gone: nobody has settled anything yet."""
    path = tmp_path / "runs.db"
    house = street.open(kind, journal=f"sqlite:{path}")
    dead = str(this_owner()._replace(started="1"))
    accepted = e.CallAccepted(
        run="r",
        call="r/0.0",
        batch="r/0",
        index=0,
        model_id="",
        tool="agent:x",
        arguments={},
        contract=Contract(isolation=Isolation.REMOTE),
    )
    began = [
        e.RunOpened(run="r"),
        e.BatchOpened(run="r", batch="r/0", size=1),
        accepted,
        e.CallQueued(run="r", call="r/0.0"),
        e.CallGranted(run="r", call="r/0.0"),
        e.CallStarted(run="r", call="r/0.0"),
    ]
    other = SqliteJournal(path)
    other.append("r", 0, began, Durability.BUFFERED)
    for child, detached in (("child", False), ("apart", True)):
        opened = e.RunOpened(run=child, parent_call="r/0.0", detached=detached)
        other.append(child, 0, [opened], Durability.BUFFERED)
    other.flush()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET owner = ?", (dead,))
    (ended,) = house.cancel("r").wait().ended
    assert (str(ended.outcome), str(ended.effect)) == ("lost", "unknown")
    story = [one.event for one in other.read("child")]
    assert story[-1] == e.RunEnded(
        run="child", outcome=Outcome.CANCELLED, reason=Reason.PARENT_CANCELLED
    )
    assert len(list(other.read("apart"))) == 1, "a detached run goes on"
    other.close()
