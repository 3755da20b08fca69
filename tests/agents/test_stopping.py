"""Stopping a delegated call: the peer's own word is the proof, and what cannot be known is unknown.

Laws 5 honest-effect, 6 bounded-stop and 9 on-the-books for calls that run elsewhere. Every wait of
the conversation has a bound, and a peer that never answers never wedges its caller.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from endstop import AsyncAgent, DeferredAgent, DelegationFailed, HandleCancelled
from endstop.agents import Patience, Proof, Task
from endstop.core import events as e
from tests.agents.desk import QUICK, Desk, Script
from tests.driving import Street, endings, quick, until

GRACE_S = 0.2
ABANDONED = ("cancelled", "cancelled_by_user", "unknown")


def refuse(error: BaseException) -> Callable[[Any], Any]:
    """A step that raises."""

    def step(given: Any) -> Any:
        raise error

    return step


def test_a_peer_that_does_not_stop_is_abandoned_and_stays_on_the_books(
    street: Street, kind: str
) -> None:
    script = Script(stopping=False)
    desk = Desk(street.open(kind, config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(script.peer(), "works")
    assert script.begun.wait(10)
    began = time.monotonic()
    handle.cancel()
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(handle)
    assert GRACE_S <= time.monotonic() - began < GRACE_S + 1.0
    assert cancelled.value.proof is Proof.UNKNOWN
    assert endings([handle.answer]) == [ABANDONED]
    assert handle.answer.alive
    assert script.count("cancel") == 1
    assert [(v.call_id, v.abandoned) for v in desk.house.rt.calls()] == [("r/0.0", True)]
    script.freed.set()
    late = desk.house.watch.wait(e.LateEnd)
    assert late.call == "r/0.0"
    assert handle.proof is Proof.STOPPED, "the peer's end is proved now"
    assert endings([handle.answer]) == [ABANDONED], "a late end changes no outcome"
    desk.check_closed()


@pytest.mark.parametrize("way", ["has no cancel", "its cancel fails"])
def test_a_stop_is_confirmed_by_the_status_alone(street: Street, kind: str, way: str) -> None:
    script = Script(stopping=False)
    cancel = None if way == "has no cancel" else refuse(OSError("no route"))
    desk = Desk(street.open(kind, config=quick(grace_s=5.0)))
    handle = desk.delegate(script.peer(cancel=cancel), "works")
    assert script.begun.wait(10)
    handle.cancel()
    assert not handle.done
    script.freed.set()
    # It had finished before it could be stopped: what was paid for is kept.
    assert desk.take(handle) == "did works"
    assert [str(flag) for flag in handle.answer.flags] == ["cancel_requested"]
    assert handle.proof is None
    desk.check_closed()


def test_a_status_that_cannot_be_read_confirms_nothing(street: Street, kind: str) -> None:
    begun = threading.Event()
    failing = threading.Event()

    def status(ref: str) -> str:
        begun.set()
        if failing.is_set():
            raise OSError("no route")
        return "running"

    agent = AsyncAgent(
        name="mute",
        submit=lambda task: "ref",
        status=status,
        fetch=lambda ref: None,
        cancel=lambda ref: failing.set(),
        patience=Patience(every_s=0.002, most_every_s=0.01, linger_s=0.6),
    )
    desk = Desk(street.open(kind, config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(agent)
    assert begun.wait(10)
    handle.cancel()
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(handle)
    assert cancelled.value.proof is Proof.UNKNOWN
    # It is asked for as long as it was said to be, and then not for ever.
    late = desk.house.watch.wait(e.LateEnd)
    assert "did not confirm within 0.6 s" in str(late.error)
    desk.check_closed()


def test_a_stop_while_it_is_being_submitted_reaches_the_peer(street: Street, kind: str) -> None:
    """The request may have landed: its reference is waited for, and then told to stop."""
    script = Script()
    door, arrived = street.door(), threading.Event()

    def submit(task: Task) -> str:
        arrived.set()
        door.wait()
        return str(script._take_in(task))

    desk = Desk(street.open(kind, config=quick(grace_s=5.0)))
    handle = desk.delegate(script.peer(submit=submit), "works")
    assert arrived.wait(10)
    handle.cancel()
    assert script.count("cancel") == 0
    door.open()
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(handle)
    assert cancelled.value.proof is Proof.STOPPED
    assert script.count("cancel") == 1
    desk.check_closed()


def test_a_plain_function_that_is_deaf_leaves_no_clean_ledger(street: Street, kind: str) -> None:
    """It is not called stopped because nobody waits for it any more."""
    door, begun = street.door(), threading.Event()

    def work(task: Task) -> str:
        begun.set()
        door.wait()
        return "late"

    desk = Desk(street.open(kind, config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(DeferredAgent(name="deaf", submit=work))
    desk.house.on_its_thread(handle.send)
    assert begun.wait(10)
    handle.cancel()
    with pytest.raises(HandleCancelled) as cancelled:
        desk.take(handle)
    assert cancelled.value.proof is Proof.UNKNOWN
    assert [v.abandoned for v in desk.house.rt.calls()] == [True]
    door.open()
    desk.house.watch.wait(e.LateEnd)
    assert handle.proof is Proof.STOPPED
    desk.check_closed()


def test_closing_the_turn_waits_for_the_verdict(street: Street, kind: str) -> None:
    script = Script(stopping=False)
    desk = Desk(street.open(kind, config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(script.peer(), "works")
    assert script.begun.wait(10)
    handle.cancel()
    desk.close_turn()
    assert handle.done
    assert handle.proof is Proof.UNKNOWN
    script.freed.set()
    desk.check_closed()


# -- bounds


def test_a_task_that_never_starts_ends_with_its_deadline(street: Street, kind: str) -> None:
    agent = AsyncAgent(
        name="idle",
        submit=lambda task: "ref",
        status=lambda ref: "submitted",
        fetch=lambda ref: None,
        patience=QUICK,
    )
    desk = Desk(street.open(kind, config=quick(grace_s=GRACE_S)))
    handle = desk.delegate(agent, timeout_s=0.2)
    with pytest.raises(DelegationFailed, match="timed_out"):
        desk.take(handle)
    assert endings([handle.answer]) == [("timed_out", "deadline", "unknown")]
    desk.close_turn()


@pytest.mark.parametrize("step", ["submit", "status", "fetch"])
def test_a_step_that_hangs_is_bounded(street: Street, kind: str, step: str) -> None:
    door = street.door()
    asked: list[str] = []

    def hang(given: Any) -> None:
        asked.append(step)
        door.wait()

    script = Script(native=False)
    patience = Patience(submit_s=0.1, probe_s=0.1, fetch_s=0.1, every_s=0.002)
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(patience=patience, **{step: hang}))
    with pytest.raises(DelegationFailed) as failed:
        desk.take(handle)
    assert "0.1 s" in str(failed.value)
    assert asked == [step], "no second question is asked while the first is unanswered"
    door.open()
    desk.check_closed()


def test_BH52_a_few_lost_answers_are_no_death(street: Street, kind: str) -> None:
    """BH52: a peer that is too busy to answer is asked again; its call counts as alive."""
    asked: list[int] = []

    def status(ref: str) -> str:
        asked.append(1)
        if len(asked) in (1, 2, 4, 5):
            raise OSError("no answer")
        return "running" if len(asked) < 6 else "succeeded"

    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(status=status))
    assert desk.take(handle) == "did ok"
    assert len(asked) == 6
    desk.check_closed()


def test_BH52_a_peer_that_dies_frees_who_waits_for_it(street: Street, kind: str) -> None:
    """BH52: on a real death the call fails, its lock is released, and the next one goes on."""
    script = Script()
    contract = {"resources": ("server:one",)}
    desk = Desk(street.open(kind))
    dead = desk.delegate(script.peer(contract=contract), "status")
    queued = desk.delegate(script.peer(contract=contract), "ok")
    assert desk.take(queued) == "did ok"
    with pytest.raises(DelegationFailed):
        desk.take(dead)
    assert str(dead.answer.effect) == "unknown"
    desk.check_closed()


@pytest.mark.parametrize("word", ["finished", None, 3, ["running"]])
def test_a_status_that_is_no_status_says_nothing(street: Street, kind: str, word: Any) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(status=lambda ref: word))
    with pytest.raises(DelegationFailed, match="a status is one of submitted, running"):
        desk.take(handle)
    desk.check_closed()


# -- words of the peer


@pytest.mark.parametrize("word", ["failed", "cancelled"])
def test_a_task_that_the_peer_ended_is_a_failure_and_is_not_fetched(
    street: Street, kind: str, word: str
) -> None:
    """A cancel that nobody here asked for is the peer's own failure to do the task."""
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(status=lambda ref: word))
    with pytest.raises(DelegationFailed, match=f"the task has (been )?{word}"):
        desk.take(handle)
    assert script.count("fetch") == 0
    assert handle.proof is None
    desk.check_closed()


@pytest.mark.parametrize("error", [asyncio.CancelledError, concurrent.futures.CancelledError])
@pytest.mark.parametrize("native", [True, False], ids=["coroutines", "plain"])
@pytest.mark.parametrize("step", ["deferred", "submit", "status", "fetch"])
def test_a_cancel_that_is_the_peer_s_own_is_a_failure(
    street: Street, kind: str, step: str, native: bool, error: type[BaseException]
) -> None:
    """Law 14 isolated-siblings: nobody here cancelled, so it is a failure of that call only."""

    async def anative(given: Any) -> Any:
        raise error

    raises = anative if native else refuse(error())
    script = Script(native=native)
    if step == "deferred":
        agent: Any = DeferredAgent(name="deferred", submit=raises)
    else:
        agent = script.peer(**{step: raises})
    desk = Desk(street.open(kind))
    handle = desk.delegate(agent)
    with pytest.raises(DelegationFailed, match="CancelledError"):
        desk.take(handle)
    assert endings([handle.answer]) == [("failed", "tool_error", "unknown")]
    desk.check_closed()


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()]
)
@pytest.mark.parametrize("native", [True, False], ids=["coroutines", "plain"])
def test_whatever_a_step_raises_ends_one_call(
    street: Street, kind: str, native: bool, error: BaseException
) -> None:
    async def anative(given: Any) -> Any:
        raise error

    desk = Desk(street.open(kind))
    script = Script()
    raises = anative if native else refuse(error)
    handle = desk.delegate(script.peer(fetch=raises))
    other = desk.delegate(script.peer())
    with pytest.raises(DelegationFailed):
        desk.take(handle)
    assert desk.take(other) == "did ok"
    desk.check_closed()


def test_an_answer_is_normalised_after_the_handle_is_resolved(street: Street, kind: str) -> None:
    def normalise(value: Any) -> Any:
        if value == "did error-in-normalise":
            raise ValueError("no such form")
        return {"said": value}

    script = Script()
    desk = Desk(street.open(kind))
    assert desk.take(desk.delegate(script.peer(normalise=normalise))) == {"said": "did ok"}
    assert desk.take(desk.delegate(script.deferred(normalise=normalise))) == {"said": "did ok"}
    handle = desk.delegate(script.peer(normalise=normalise), "error-in-normalise")
    with pytest.raises(DelegationFailed, match="could not be normalised: ValueError"):
        desk.take(handle)
    assert len(desk.house.watch.told(e.CallStarted, handle.id)) == 1, "it is not started twice"
    desk.check_closed()


def test_a_result_without_a_json_form_is_named_by_its_path(street: Street, kind: str) -> None:
    script = Script()
    desk = Desk(street.open(kind))
    handle = desk.delegate(script.peer(fetch=lambda ref: {"handle": object()}))
    with pytest.raises(DelegationFailed, match=r"result\.handle"):
        desk.take(handle)
    assert str(handle.answer.effect) == "done", "the work was done; only its answer is lost"
    desk.check_closed()


def test_until_a_late_end_the_slot_is_taken(street: Street, kind: str) -> None:
    """Law 9: with one slot, an abandoned peer leaves none, and the next call is told so at once."""
    script = Script(stopping=False)
    config = quick(grace_s=GRACE_S, slots={"remote": 1})
    desk = Desk(street.open(kind, config=config))
    handle = desk.delegate(script.peer(), "works")
    assert script.begun.wait(10)
    handle.cancel()
    desk.answered(handle)
    with pytest.raises(DelegationFailed, match="1 remote slots are held by abandoned calls"):
        desk.take(desk.delegate(script.peer()))
    script.freed.set()
    desk.house.watch.wait(e.LateEnd)
    until(lambda: desk.house.rt.calls() == [])
    assert desk.take(desk.delegate(script.peer())) == "did ok"
    desk.check_closed()
