"""The SQLite journal and real processes: killed, competing, forked, out of disk."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from endstop.core.events import CallGranted
from endstop.store.protocol import Durability
from endstop.store.sqlite import SqliteJournal
from tests.store.helpers import (
    WAIT_S,
    ended,
    events_of,
    granted,
    opened,
    output,
    python,
    record,
    result,
)

pytestmark = pytest.mark.serial

HEAD = """
import os, sys, threading
from endstop.core.events import *
from endstop.core.terms import *
from endstop.errors import *
from endstop.store.protocol import Durability
from endstop.store.sqlite import SqliteJournal
from tests.store.helpers import *

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

path, *args = sys.argv[1:]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def killed(child: subprocess.Popen[str]) -> str:
    """Kills a child as hard as it goes and returns what it had still printed."""
    child.send_signal(signal.SIGKILL)
    out, _ = child.communicate(timeout=WAIT_S)
    assert child.returncode == -signal.SIGKILL
    return out


DRIVER = (
    HEAD
    + """
journal = SqliteJournal(path)
record(journal, "open", 0, opened("open"), granted("open", "a"))
record(journal, "over", 0, opened("over"), ended("over"))
say("recorded")
sys.stdin.readline()
"""
)


@pytest.fixture
def driver(path: Path) -> Iterator[subprocess.Popen[str]]:
    child = python(DRIVER, path)
    assert line(child) == "recorded"
    yield child
    child.kill()
    child.communicate()


def test_the_runs_of_a_killed_driver_are_orphans_and_adopted_once(
    path: Path, driver: subprocess.Popen[str]
) -> None:
    """Law 16 survives-restart."""
    first, second = SqliteJournal(path), SqliteJournal(path)
    assert first.orphans() == [], "its driver lives"
    assert not first.adopt("open")
    killed(driver)
    assert first.orphans() == second.orphans() == ["open"]
    assert first.adopt("open")
    assert not second.adopt("open")
    assert not first.adopt("over")
    assert first.orphans() == second.orphans() == []
    record(first, "open", 2, ended("open"))
    assert events_of(second, "open") == [opened("open"), granted("open", "a"), ended("open")]
    first.close()
    second.close()


def test_a_driver_that_was_replaced_is_refused(path: Path, driver: subprocess.Popen[str]) -> None:
    killed(driver)
    late_one = SqliteJournal(path)
    events_of(late_one, "open")
    heir = SqliteJournal(path)
    assert heir.adopt("open")
    record(heir, "open", 2, granted("open", "b"))
    ticket = late_one.append("open", 2, [ended("open")], Durability.PROCESS)
    assert "another driver wrote to it first" in str(result(ticket))
    assert len(events_of(heir, "open")) == 3
    heir.close()
    late_one.close()


ADOPTER = (
    HEAD
    + """
journal = SqliteJournal(path)
say("ready")
sys.stdin.readline()
say(*[run for run in args if journal.adopt(run)])
sys.stdin.readline()
"""
)


def test_of_many_processes_one_adopts(path: Path) -> None:
    names = [f"r{n}" for n in range(30)]
    journal = SqliteJournal(path)
    for name in names:
        journal.append(name, 0, [opened(name)], Durability.BUFFERED)
    journal.close()
    children = [python(ADOPTER, path, *names) for _ in range(3)]
    assert [line(child) for child in children] == ["ready"] * 3
    for child in children:
        tell(child)
    adopted = [line(child).split() for child in children]
    for child in children:
        tell(child)
        output(child)
    assert sorted(run for runs in adopted for run in runs) == sorted(names), "each by exactly one"


RIVAL = (
    HEAD
    + """
name, rounds = args[0], int(args[1])
journal = SqliteJournal(path)
say("ready")
sys.stdin.readline()
won = []
for n in range(rounds):
    run = f"r{n}"
    error = offer(journal, run, 1, [granted(run, name), granted(run, name)])
    assert error is None or isinstance(error, StaleWriter), error
    if error is None:
        won.append(run)
    events_of(journal, run)
say(*won)
"""
)


def test_of_two_processes_with_one_number_exactly_one_wins(path: Path) -> None:
    """Law 3 one-ending: the fence holds between processes."""
    rounds = 200
    journal = SqliteJournal(path)
    for n in range(rounds):
        journal.append(f"r{n}", 0, [opened(f"r{n}")], Durability.BUFFERED)
    journal.flush()
    children = {name: python(RIVAL, path, name, rounds) for name in ("left", "right")}
    for child in children.values():
        assert line(child) == "ready"
    for child in children.values():
        tell(child)
    won = {name: output(child).split() for name, child in children.items()}
    assert sorted(won["left"] + won["right"]) == sorted(f"r{n}" for n in range(rounds))
    for name, runs in won.items():
        for run in runs:
            assert events_of(journal, run)[1:] == [CallGranted(run=run, call=name)] * 2
    journal.close()


@pytest.mark.parametrize("durability", [Durability.PROCESS, Durability.MACHINE])
def test_what_a_ticket_promised_another_process_sees(path: Path, durability: Durability) -> None:
    script = (
        HEAD
        + """
journal = SqliteJournal(path)
say("ready")
for n in range(40):
    sys.stdin.readline()
    say(len(events_of(journal, "r")))
"""
    )
    child = python(script, path)
    assert line(child) == "ready"
    journal = SqliteJournal(path)
    for n in range(40):
        event = opened("r") if n == 0 else granted("r", f"c{n}")
        record(journal, "r", n, event, durability=durability)
        tell(child)
        assert line(child) == str(n + 1)
    output(child)
    journal.close()


WRITER = (
    HEAD
    + """
# Three events an append, every level in turn; what is reported is what a ticket said.
run = args[0]
journal = SqliteJournal(path)
say("ready")
for n in range(1_000_000):
    events = [granted(run, f"c{n}"), started(run, f"c{n}"), settled(run, f"c{n}", "x" * (n % 700))]
    ticket = journal.append(run, 3 * n, events, Durability(n % 3))
    if ticket is not None:
        ticket.then(lambda error, n=n: say(3 * n + 3 if error is None else repr(error)))
    if n % 20 == 0:
        journal.flush()
"""
)


def test_kill_9_loses_nothing_that_was_promised(path: Path) -> None:
    """Law 15 record-first, against SIGKILL at any instant."""
    dice = random.Random(20)
    promised_in_all = 0
    for round_ in range(8):
        run = f"r{round_}"
        child = python(WRITER, path, run)
        assert line(child) == "ready"
        lines = [line(child) for _ in range(dice.randrange(1, 400))]
        lines += killed(child).splitlines()
        # The last line may be cut: it was promised, but nobody could read it.
        promised = max(int(text) for text in lines[:-1] or ["0"])
        promised_in_all += promised
        assert sqlite_says(path, "PRAGMA integrity_check") == "ok"
        journal = SqliteJournal(path)
        numbers = [entry.seq for entry in journal.read(run)]
        assert numbers == list(range(1, len(numbers) + 1)), "no gap"
        assert len(numbers) % 3 == 0, "no append is half there"
        assert len(numbers) >= promised, "what a ticket promised is there"
        assert journal.orphans() == [run]
        assert journal.adopt(run)
        record(journal, run, len(numbers), ended(run))
        journal.close()
    assert promised_in_all > 0


def sqlite_says(path: Path, question: str) -> object:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(question).fetchone()[0]
    finally:
        connection.close()


def test_a_full_disk_reaches_every_ticket_and_fails_fast_afterwards(path: Path) -> None:
    script = (
        HEAD
        + """
import resource, signal
journal = SqliteJournal(path)
record(journal, "r", 0, opened("r"))
# Files of this process may not grow beyond this: what a full disk does, without filling one.
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
answers = []
for n in range(400):
    try:
        events = [settled("r", f"c{n}", "x" * 5_000)]
        ticket = journal.append("r", n + 1, events, Durability.PROCESS)
    except JournalError as error:
        say("raised", error)
        break
    ticket.then(answers.append)
    if n % 10 == 9:
        journal.flush()
assert len(answers) == n, (len(answers), n)
kept = answers.index(next(error for error in answers if error))
assert all(error is None for error in answers[:kept])
assert all(isinstance(error, JournalError) for error in answers[kept:])
say(kept)
try:
    journal.append("s", 0, [opened("s")], Durability.BUFFERED)
except JournalError as error:
    say("raised", error)
say(len(events_of(journal, "r")) - 1)
journal.close()
say("closed")
"""
    )
    lines = output(python(script, path)).splitlines()
    assert "runs.db cannot be written any more" in lines[0]
    assert "runs.db cannot be written any more" in lines[2]
    assert int(lines[1]) > 0
    assert int(lines[3]) == int(lines[1]), "kept is what the tickets said, no more and no less"
    assert lines[4] == "closed"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_to_open_its_own(path: Path) -> None:
    script = (
        HEAD
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside a thread is the point here
journal = SqliteJournal(path)
record(journal, "r", 0, opened("r"))
child = os.fork()
if child == 0:
    uses = [
        lambda: journal.append("r", 1, [ended("r")], Durability.PROCESS),
        lambda: journal.read("r"), journal.runs, journal.orphans, journal.close,
        lambda: journal.adopt("r"), journal.flush,
    ]
    for use in uses:
        try:
            use()
            say("used")
        except JournalError as error:
            say("before a fork; open it again here" in str(error))
    own = SqliteJournal(path)
    record(own, "r", 1, granted("r", "a"))
    own.close()
    sys.exit(0)  # and its exit leaves the parent's journal alone
os.waitpid(child, 0)
record(journal, "r", 2, ended("r"))
say(len(events_of(journal, "r")))
journal.close()
"""
    )
    assert output(python(script, path)).splitlines() == ["True"] * 7 + ["3"]
    assert sqlite_says(path, "PRAGMA integrity_check") == "ok"


def test_what_was_buffered_is_written_when_a_program_just_ends(path: Path) -> None:
    script = (
        HEAD
        + """
journal = SqliteJournal(path)
journal.append("r", 0, [opened("r")], Durability.BUFFERED)
for n in range(5_000):
    journal.append("r", n + 1, [granted("r", str(n))], Durability.BUFFERED)
"""
    )
    output(python(script, path))
    journal = SqliteJournal(path)
    assert len(events_of(journal, "r")) == 5_001
    assert journal.orphans() == ["r"]
    journal.close()
