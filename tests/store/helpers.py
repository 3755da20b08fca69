"""What the tests of the stores share: events to append, and waiting for a ticket."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence

from endstop.core.events import (
    CallGranted,
    CallSettled,
    CallStarted,
    Event,
    LateEnd,
    RunEnded,
    RunOpened,
)
from endstop.core.terms import Effect, How, Outcome, Reason
from endstop.errors import JournalError
from endstop.store.protocol import Durability, Journal, Ticket
from tests.support import ROOT

WAIT_S = 30.0
"""Far above what anything here takes; a test that waits this long has failed."""


def opened(run: str, parent_call: str | None = None) -> RunOpened:
    return RunOpened(run=run, parent_call=parent_call)


def ended(run: str) -> RunEnded:
    return RunEnded(run=run, outcome=Outcome.SUCCEEDED, reason=Reason.OK)


def granted(run: str, call: str) -> CallGranted:
    return CallGranted(run=run, call=call)


def started(run: str, call: str) -> CallStarted:
    return CallStarted(run=run, call=call)


def settled(run: str, call: str, value: object = None, *, alive: bool = False) -> CallSettled:
    return CallSettled(
        run=run,
        call=call,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.OK,
        effect=Effect.DONE,
        value=value,
        alive=alive,
    )


def late(run: str, call: str) -> LateEnd:
    return LateEnd(run=run, call=call, how=How.RETURNED)


def result(ticket: Ticket | None) -> Exception | None:
    """Waits for a ticket: None where it is done, else its error."""
    if ticket is None:
        return None
    got: list[Exception | None] = []
    decided = threading.Event()

    def decide(error: Exception | None) -> None:
        got.append(error)
        decided.set()

    ticket.then(decide)
    assert decided.wait(WAIT_S), "the ticket was never decided"
    return got[0]


def offer(
    journal: Journal,
    run: str,
    expected_seq: int,
    events: Sequence[Event],
    durability: Durability = Durability.PROCESS,
) -> Exception | None:
    """Appends and waits: None where it was recorded, else the error, raised or by the ticket."""
    try:
        ticket = journal.append(run, expected_seq, events, durability)
    except JournalError as error:
        return error
    return result(ticket)


def record(
    journal: Journal,
    run: str,
    expected_seq: int,
    *events: Event,
    durability: Durability = Durability.PROCESS,
) -> None:
    """Appends, waits, and fails where it was not recorded."""
    error = offer(journal, run, expected_seq, events, durability)
    assert error is None, error


def events_of(journal: Journal, run: str, after_seq: int = 0) -> list[Event]:
    return [recorded.event for recorded in journal.read(run, after_seq)]


def python(script: str, *args: object) -> subprocess.Popen[str]:
    """Another Python that runs a script, with this checkout on its path."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, args)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(child: subprocess.Popen[str]) -> str:
    """What a child printed; fails where it did not end well."""
    out, err = child.communicate(timeout=WAIT_S)
    assert child.returncode == 0, err
    return out
