"""Delegated calls of a run whose driver is gone: law 16 survives-restart for sub-agents."""

from __future__ import annotations

from typing import Any

import pytest

from endstop import CallerError, DeferredAgent
from endstop.agents import Task, recognise
from endstop.core import events as e
from tests.agents.desk import Desk
from tests.driving import Street, endings
from tests.recovery.crashing import Resumed, crashed, cut_after, recorded


class Writer:
    """An agent that remembers under which keys it was asked."""

    def __init__(self, effect: str) -> None:
        self.keys: list[str] = []
        self.agent = DeferredAgent(
            name="writer", submit=self._write, contract={"effect": effect, "resources": ()}
        )

    async def _write(self, task: Task) -> str:
        self.keys.append(task.effect_key)
        return f"a text on {task.prompt}"


def story(street: Street, kind: str, effect: str) -> list[e.Event]:
    """A run with one delegated call, from its beginning to its end."""
    desk = Desk(street.open(kind))
    assert desk.take(desk.delegate(Writer(effect).agent, "bees")) == "a text on bees"
    told = recorded(desk.house)
    desk.check_closed()
    return told


@pytest.mark.parametrize(
    ("until", "effect", "ending", "asked"),
    [
        (e.CallSettled, "effectful", ("succeeded", "ok", "done"), 0),
        (e.CallStarted, "effectful", ("lost", "driver_lost", "unknown"), 0),
        (e.CallStarted, "idempotent", ("succeeded", "ok", "done"), 1),
        (e.CallStarted, "read_only", ("succeeded", "ok", "done"), 1),
        (e.CallQueued, "effectful", ("succeeded", "ok", "done"), 1),
        (e.CallAccepted, "effectful", ("succeeded", "ok", "done"), 1),
    ],
)
def test_a_delegated_call_goes_on_where_it_stood(
    street: Street,
    kind: str,
    until: type,
    effect: str,
    ending: tuple[str, str, str],
    asked: int,
) -> None:
    cut = cut_after(story(street, kind, effect), until, "r/0.0")
    writer = Writer(effect)
    house = street.open(kind, journal=crashed(cut))
    recognise(house.rt, writer.agent)
    [batch] = Resumed(house).finish()
    assert endings(batch) == [ending]
    assert writer.keys == ["r/0.0"] * asked, "every attempt has the same key"


def test_without_its_agent_nothing_is_asked_and_nothing_is_claimed(
    street: Street, kind: str
) -> None:
    for until, ending in (
        (e.CallStarted, ("lost", "driver_lost", "unknown")),
        (e.CallQueued, ("rejected", "unknown_tool", "none")),
    ):
        cut = cut_after(story(street, kind, "effectful"), until, "r/0.0")
        [batch] = Resumed(street.open(kind, journal=crashed(cut))).finish()
        assert endings(batch) == [ending]


def test_an_owner_that_runs_again_goes_on_with_its_numbers(street: Street, kind: str) -> None:
    """Its earlier children are in the journal: the new ones must not be taken for them."""
    house = street.open(kind)
    desk = Desk(house)
    first = desk.delegate(Writer("effectful").agent, "a", detached=True)
    assert desk.take(first) == "a text on a"
    journal: Any = house.rt.engine.journal
    assert first.id == "r~0/0.0"
    house.rt.books.forget("r")
    again = desk.delegate(Writer("effectful").agent, "b", detached=True)
    assert desk.take(again) == "a text on b"
    assert again.id == "r~1/0.0"
    assert list(journal.read("r~1"))
    desk.check_closed()


def test_two_agents_of_one_name_are_refused(street: Street, kind: str) -> None:
    rt = street.open(kind).rt
    one, other = Writer("effectful"), Writer("effectful")
    recognise(rt, one.agent)
    recognise(rt, one.agent)
    with pytest.raises(CallerError, match="known already"):
        recognise(rt, other.agent)
    assert rt.tools == {}
