"""A run whose driver is on another host: nobody here can tell whether that lives (law 16).

So it is never taken up by itself; whoever knows better takes it by name, and the driver that lives
on after all is fenced off.
"""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from endstop import CallerError, Outcome, StaleWriter, tool
from endstop.core import events as e
from endstop.store.owner import in_words, this_owner
from endstop.store.protocol import Durability
from endstop.store.sqlite import SqliteJournal
from tests.driving import Street, call
from tests.recovery.crashing import Resumed, recorded
from tests.recovery.test_suspend import suspend

ELSEWHERE = "elsewhere:0c8e3d0e-boot:4711:123456:1"


@tool(resources=[], approval="always")
def gated() -> str:
    """Waits for a yes."""
    return "done"


def left_behind(street: Street, kind: str, path: Path) -> None:
    """A journal with one run that waits for a human, and that another host drives."""
    house = street.open(kind, [gated], journal=f"sqlite:{path}")
    going = house.run("r").begin([call("gated")])
    house.watch.wait(e.ApprovalAsked)
    assert suspend(house)
    with pytest.raises(CallerError):
        going.future.result(20)
    house.lawful = False
    house.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        changed = connection.execute("UPDATE runs SET owner = ?", (ELSEWHERE,)).rowcount
        assert changed == 1


def test_it_is_refused_in_words_and_left_as_it_is(
    street: Street, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    left_behind(street, kind, path)
    house = street.open(kind, [gated], journal=f"sqlite:{path}")
    before = recorded(house)
    assert house.rt.engine.journal.orphans() == []
    words = (
        r"run 'r' is driven by a program that lives \(pid 4711 on host 'elsewhere'; whether it "
        rf"lives cannot be told from '{socket.gethostname()}', so it counts as alive\)"
    )
    with pytest.raises(CallerError, match=words):
        Resumed(house)
    with pytest.raises(CallerError, match=words):
        house.cancel("r")
    assert recorded(house) == before, "nothing was settled, ended or taken"
    assert not house.state.runs


def test_whoever_knows_better_takes_it_and_the_other_is_fenced_off(
    street: Street, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    left_behind(street, kind, path)
    other = SqliteJournal(path)
    last = len(list(other.read("r")))
    taker = SqliteJournal(path)
    assert not taker.adopt("r")
    assert taker.adopt("r", force=True)
    taker.close()
    house = street.open(kind, [gated], journal=f"sqlite:{path}")
    resumed = Resumed(house)
    house.rt.approve("r/0.0")
    (batch,) = resumed.finish()
    assert [one.outcome for one in batch] == [Outcome.SUCCEEDED]
    noted = [e.Noted(run="r", kind="late", body={})]
    told: list[Exception | None] = []
    ticket = other.append("r", last, noted, Durability.PROCESS)
    assert ticket is not None
    ticket.then(told.append)
    other.flush()
    assert isinstance(told[0], StaleWriter)
    other.close()


def test_the_words_for_an_owner() -> None:
    mine = this_owner()
    assert in_words(str(mine)) == f"pid {mine.pid} on this machine"
    assert "an unknown program" in in_words("of another version")
