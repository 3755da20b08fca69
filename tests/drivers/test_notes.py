"""Notes, labels and declared endings on the real runtimes, with bodies of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endstop import AsyncContext, CallerError, Context, Outcome, tool
from endstop.core import events as e
from endstop.core.terms import Reason
from endstop.store.protocol import Durability
from tests.drivers.test_quiet_laws import SlowDisk
from tests.driving import Street, call


@tool(isolation="process")
def in_a_process(ctx: Context) -> bool:
    """Writes a note from another process."""
    return ctx.note("made", {"file": "a.txt", "bytes": 3})


@tool(isolation="process")
def far_too_much(ctx: Context) -> str:
    """Tries to write a note that no frame carries."""
    try:
        ctx.note("made", {"text": "\x00" * 5_000_000})
    except CallerError as error:
        return str(error)
    return "taken"


@tool
def in_a_thread(ctx: Context) -> bool:
    """Writes a note from a thread."""
    return ctx.note("made", {"file": "a.txt", "bytes": 3})


@tool
async def in_a_coroutine(ctx: AsyncContext) -> bool:
    """Writes a note from a coroutine."""
    return ctx.note("made", {"file": "a.txt", "bytes": 3})


BODIES = (in_a_process, in_a_thread, in_a_coroutine)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"


@pytest.mark.parametrize("body", BODIES, ids=lambda one: one.name)
def test_a_body_writes_notes_in_the_name_of_its_call(
    street: Street, kind: str, body: Any, journal: str | None
) -> None:
    house = street.open(kind, [body], journal=journal)
    run = house.run()
    (result,) = run.execute([call(body.name)])
    assert (result.outcome, result.value) == (Outcome.SUCCEEDED, True)
    told = house.watch.wait(e.Noted)
    assert told == e.Noted(
        run=run.id, kind="made", body={"file": "a.txt", "bytes": 3}, call=f"{run.id}/0.0"
    )
    events = [one.event for one in house.rt.engine.journal.read(run.id)]
    kinds = [type(one) for one in events]
    assert kinds.index(e.CallStarted) < kinds.index(e.Noted) < kinds.index(e.CallSettled)


def test_a_note_that_is_too_large_for_its_process_is_refused_in_words(
    street: Street, kind: str
) -> None:
    house = street.open(kind, [far_too_much])
    (result,) = house.execute(call("far_too_much"))
    assert "note(): the body takes" in str(result.value)
    assert not house.watch.told(e.Noted)


def test_law_3_a_late_note_of_an_abandoned_body_is_refused(street: Street, kind: str) -> None:
    door = street.door()
    said: list[bool] = []

    @tool
    def deaf(ctx: Context) -> None:
        """Hears no stop, and goes on writing."""
        door.wait()
        said.append(ctx.note("late", {}))

    house = street.open(kind, [deaf])
    run = house.run()
    going = run.begin([call("deaf")])
    house.watch.wait(e.CallStarted)
    run.cancel().wait()
    (result,) = going.result()
    assert result.stopped_by == "abandoned"
    assert not run.run.note("late", {}, call=result.call_id)
    door.open()
    house.watch.wait(e.LateEnd)
    assert said == [False]
    assert not house.watch.told(e.Noted)


def test_law_3_of_a_cancel_and_a_declared_ending_the_first_decides(
    street: Street, kind: str
) -> None:
    door = street.door()

    @tool
    async def waits() -> None:
        """Waits for the test."""
        await door.pass_through()

    house = street.open(kind, [waits])
    for first, outcome, reason in (
        ("close", Outcome.FAILED, Reason.DECLARED),
        ("cancel", Outcome.CANCELLED, Reason.CANCELLED_BY_USER),
    ):
        run = house.run(first)
        going = run.begin([call("waits")])
        house.watch.wait(e.CallStarted, f"{first}/0.0")
        house.on_its_thread(lambda run=run, first=first: _both(run, first))
        (result,) = going.result()
        assert result.outcome is Outcome.CANCELLED
        ended = house.watch.wait(e.RunEnded, count=1 if first == "close" else 2)
        assert (ended.run, ended.outcome, ended.reason) == (first, outcome, reason)
        assert not run.run.note("late", {})


def _both(run: Any, first: str) -> None:
    if first == "close":
        run.run.close(outcome="failed")
    run.run.cancel()
    if first == "cancel":
        run.run.close(outcome="failed")


def test_runs_are_found_by_their_labels(street: Street, kind: str, journal: str | None) -> None:
    house = street.open(kind, [], journal=journal)
    labels = {"owner": "alice", "context": "c1"}
    house.run("one", labels=labels)
    labels["owner"] = "somebody else"
    house.run("two", labels={"owner": "alice"})
    house.run("three")
    found = house.rt.engine.journal.labelled
    assert found({"owner": "alice"}) == ["two", "one"]
    assert found({"owner": "alice", "context": "c1"}) == ["one"]
    assert found({"owner": "bob"}) == []
    assert found({}) == ["three", "two", "one"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"owner": 7}, "text of at most 500 characters; this is not: 7"),
        ({"owner": "\ud800"}, "text of at most 500"),
        ({str(n): "" for n in range(21)}, "at most 20 labels, not 21"),
        (["owner"], "labels are a dictionary of text, not list"),
    ],
)
def test_bad_labels_are_refused_in_words(
    street: Street, kind: str, labels: Any, words: str
) -> None:
    house = street.open(kind, [])
    with pytest.raises(CallerError, match=words):
        house.run(labels=labels)


def test_other_endings_cannot_be_declared(street: Street, kind: str) -> None:
    run = street.open(kind, []).run()
    for outcome in ("cancelled", "lost", "done", 7):
        with pytest.raises(CallerError, match="it is one of failed, rejected, succeeded"):
            run.run.close(outcome=outcome)
    assert not run.run.closed


def test_law_15_record_first_nobody_sees_a_note_before_it_is_recorded(
    street: Street, kind: str
) -> None:
    disk = SlowDisk(e.Noted)
    house = street.open(kind, [], journal=disk)
    run = house.run()
    assert run.run.note("user", {"text": "hello"})
    assert disk.came.wait(20)
    assert not house.watch.told(e.Noted), "observers saw it"
    disk.go_on()
    assert house.watch.wait(e.Noted).body == {"text": "hello"}


def test_law_15_record_first_a_note_that_the_journal_refuses_is_not_kept(
    street: Street, kind: str
) -> None:
    house = street.open(kind, [])
    run = house.run()
    journal = house.rt.engine.journal
    taken = [e.RunInterrupted(run=run.id)]
    journal.append(run.id, 1, taken, Durability.BUFFERED)
    assert not run.run.note("user", {}), "another driver has written to the run"
    assert not run.run.note("user", {})
    assert [type(one.event) for one in journal.read(run.id)] == [e.RunOpened, e.RunInterrupted]
