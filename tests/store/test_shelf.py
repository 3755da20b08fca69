"""The contract of a shelf, the same for every journal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from endstop.errors import CallerError, JournalError
from endstop.store.memory import MemoryJournal
from endstop.store.shelf import (
    KEY_CHARS,
    SPACE_CHARS,
    VALUE_CHARS,
    MemoryShelf,
    Shelf,
    away,
)
from endstop.store.sqlite import SqliteJournal
from endstop.store.sqlite_shelf import SqliteShelf
from tests.store.helpers import WAIT_S, python


@dataclass
class Stand:
    """A shelf, and how another party comes to the same records."""

    shelf: Shelf
    again: Callable[[], Shelf]
    small: Callable[[int], Shelf]


@pytest.fixture(params=["memory", "sqlite"])
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    path = tmp_path / "runs.db"
    if request.param == "memory":
        memory = MemoryJournal()
        yield Stand(memory.shelf(), memory.shelf, lambda most: MemoryShelf(records_max=most))
        return
    first, second = SqliteJournal(path), SqliteJournal(path)
    yield Stand(first.shelf(), second.shelf, lambda most: SqliteShelf(path, 10.0, records_max=most))
    first.close()
    second.close()


@pytest.fixture
def shelf(stand: Stand) -> Shelf:
    return stand.shelf


def test_a_record_is_what_was_put_last_and_nobody_elses_copy(stand: Stand, shelf: Shelf) -> None:
    value = {"a": [1, {"b": None}], "text": "ü\ud800\0 \U0001f600"}
    assert shelf.get("s", "k") is None
    shelf.put("s", "k", {"old": 1})
    shelf.put("s", "k", value)
    found = shelf.get("s", "k")
    assert found == value
    assert found is not None
    found["a"].append("mine")
    value["text"] = "changed"
    assert stand.again().get("s", "k") == {
        "a": [1, {"b": None}],
        "text": "ü\ud800\0 \U0001f600",
    }
    assert shelf.get("t", "k") is None, "spaces are apart"


def test_a_listing_is_by_key_within_a_prefix_and_goes_on_where_it_ended(shelf: Shelf) -> None:
    keys = ["a", "a/", "a/1", "a/10", "a/2", "a/é", "a/\U0001f600", "a0", "b"]
    for key in reversed(keys):
        shelf.put("s", key, {"key": key})
    shelf.put("t", "a/3", {})
    below = [key for key in keys if key.startswith("a/")]
    assert shelf.list("s") == [(key, {"key": key}) for key in keys]
    assert [key for key, _ in shelf.list("s", "a/")] == below
    paged: list[str] = []
    while page := shelf.list("s", "a/", after=paged[-1] if paged else "", limit=2):
        paged += [key for key, _ in page]
    assert paged == below
    assert [key for key, _ in shelf.list("s", "a/", after="a")] == below
    assert shelf.list("s", "a/", after="b") == []
    assert shelf.list("nothing") == []


def test_a_deleted_record_is_gone_once(stand: Stand, shelf: Shelf) -> None:
    shelf.put("s", "k", {})
    assert shelf.delete("s", "k")
    assert not shelf.delete("s", "k")
    assert stand.again().get("s", "k") is None
    assert shelf.list("s") == []


def test_a_swap_writes_only_over_what_was_expected(stand: Stand, shelf: Shelf) -> None:
    other = stand.again()
    assert shelf.swap("s", "k", None, {"n": 1, "m": 0})
    assert not other.swap("s", "k", None, {"n": 9})
    assert not other.swap("s", "k", {"n": 1}, {"n": 9})
    assert other.swap("s", "k", {"m": 0, "n": 1}, {"n": 2}), "the order of names says nothing"
    assert shelf.get("s", "k") == {"n": 2}
    assert not shelf.swap("s", "k", {"n": 1}, None)
    assert shelf.swap("s", "k", {"n": 2}, None)
    assert other.get("s", "k") is None
    assert shelf.swap("s", "k", None, None)
    assert not shelf.swap("s", "k", {}, None)
    assert shelf.get("s", "k") is None


def test_of_many_claims_exactly_one_wins(stand: Stand) -> None:
    """From several threads, each on its own end: every count is handed out once."""
    ends = [stand.again() if number % 2 else stand.shelf for number in range(4)]
    won: list[int] = []

    def count(end: Shelf) -> None:
        for _ in range(25):
            while True:
                old = end.get("s", "counter")
                number = old["n"] + 1 if old else 1
                if end.swap("s", "counter", old, {"n": number}):
                    won.append(number)
                    break

    threads = [threading.Thread(target=count, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(won) == list(range(1, 101))


@pytest.mark.parametrize(
    ("space", "key"),
    [
        ("", "k"),
        ("s", ""),
        ("s" * (SPACE_CHARS + 1), "k"),
        ("s", "k" * (KEY_CHARS + 1)),
        ("s", "\ud800"),
        ("s", "nul\0"),
        ("s", "\U0010ffff"),
        ("s", None),
    ],
)
def test_names_that_no_file_keeps_are_refused(shelf: Shelf, space: str, key: str) -> None:
    for act in (
        lambda: shelf.put(space, key, {}),
        lambda: shelf.get(space, key),
        lambda: shelf.delete(space, key),
        lambda: shelf.swap(space, key, None, {}),
    ):
        with pytest.raises(CallerError, match="shelf: "):
            act()


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"a": object()},
        {"a": float("nan")},
        {"a": {1, 2}},
        {"text": "x" * VALUE_CHARS},
        {"a": 1, 2: "keys that cannot be sorted"},
        deep(),
    ],
    ids=["none", "list", "object", "nan", "set", "large", "keys", "deep"],
)
def test_values_that_are_no_bounded_json_are_refused(shelf: Shelf, value: Any) -> None:
    shelf.put("s", "k", {"before": True})
    with pytest.raises(CallerError, match="shelf: "):
        shelf.put("s", "k", value)
    if value is not None:
        with pytest.raises(CallerError, match="shelf: "):
            shelf.swap("s", "k", {"before": True}, value)
    assert shelf.get("s", "k") == {"before": True}


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, 10**9])
def test_odd_limits_are_refused(shelf: Shelf, limit: int) -> None:
    with pytest.raises(CallerError, match="a limit is a number from 1"):
        shelf.list("s", limit=limit)


def test_a_full_space_takes_no_new_record_but_every_change(stand: Stand) -> None:
    small = stand.small(2)
    small.put("s", "a", {})
    small.put("s", "b", {})
    small.put("t", "a", {})
    with pytest.raises(JournalError, match="'s' holds 2 records; delete some"):
        small.put("s", "c", {})
    with pytest.raises(JournalError, match="delete some"):
        small.swap("s", "c", None, {})
    small.put("s", "a", {"n": 1})
    assert small.swap("s", "b", {}, None)
    small.put("s", "c", {"n": 3})
    assert small.list("s") == [("a", {"n": 1}), ("c", {"n": 3})]


def test_away_answers_on_the_loop_in_order_while_the_file_is_held(tmp_path: Path) -> None:
    journal, holder = SqliteJournal(tmp_path / "runs.db"), SqliteJournal(tmp_path / "runs.db")
    shelf = away(journal.shelf())
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with holder.shelf()._writing():
            held.set()
            let_go.wait(WAIT_S)

    async def scenario() -> None:
        thread = threading.Thread(target=hold)
        thread.start()
        await asyncio.to_thread(held.wait, WAIT_S)
        first = asyncio.create_task(shelf.put("s", "k", {"n": 1}))
        second = asyncio.create_task(shelf.swap("s", "k", {"n": 1}, {"n": 2}))
        given_up = asyncio.create_task(shelf.put("s", "other", {}))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not first.done(), "the file is held, and the loop goes on"
        given_up.cancel()
        let_go.set()
        await first
        assert await second
        assert await shelf.get("s", "k") == {"n": 2}
        assert await shelf.list("s") == [("k", {"n": 2}), ("other", {})], "asked for is done"
        assert await shelf.delete("s", "other")
        with pytest.raises(CallerError):
            await shelf.get("", "k")
        thread.join(WAIT_S)

    asyncio.run(scenario())
    shelf.close()
    shelf.close()
    with pytest.raises(JournalError, match="closed"):
        asyncio.run(shelf.get("s", "k"))
    journal.close()
    holder.close()


def test_records_survive_a_kill_and_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    script = (
        "import os, sys; from endstop.store.sqlite import SqliteJournal; "
        "journal = SqliteJournal(sys.argv[1]); journal.shelf().put('s', 'k', {'n': 1}); "
        "print('put', flush=True); os.kill(os.getpid(), 9)"
    )
    child = python(script, path)
    assert child.communicate(timeout=WAIT_S) == ("put\n", "")
    assert child.returncode == -signal.SIGKILL
    journal = SqliteJournal(path)
    assert journal.shelf().get("s", "k") == {"n": 1}
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.shelf()
    viewer = SqliteJournal(path, readonly=True)
    with pytest.raises(JournalError, match="reading only"):
        viewer.shelf()
    viewer.close()


def test_a_shelf_whose_journal_was_closed_says_so(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "runs.db")
    shelf = journal.shelf()
    shelf.put("s", "k", {})
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        shelf.get("s", "k")
