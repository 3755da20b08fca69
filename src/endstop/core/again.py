"""The same call again: what an earlier one of it may have done is not forgotten (law 10).

Pure. A call whose effect is unknown, or whose worker could not be stopped, leaves a mark in its
run; runs that continue that run inherit the marks. The same call, by tool and canonical arguments,
is told of the earlier one when it is granted, and is refused while the worker of that still lives.
Calls that may run twice without harm are neither.
"""

from __future__ import annotations

import hashlib
from typing import Any

from endstop.core.events import CallSettled
from endstop.core.payload import canonical
from endstop.core.settling import may_run_again
from endstop.core.state import CallState, RunState, State
from endstop.core.terms import Contract, Earlier, Effect


def key_of(tool: str, arguments: dict[str, Any] | None) -> str:
    """What stands for a call whatever its id is: the tool and its canonical arguments."""
    return hashlib.sha256(canonical([tool, arguments]).encode()).hexdigest()


def unsure(tool: str, arguments: dict[str, Any] | None, settled: CallSettled) -> Earlier:
    """The mark that a call leaves."""
    return Earlier(
        key=key_of(tool, arguments),
        call=settled.call,
        outcome=settled.outcome,
        effect=settled.effect,
    )


def remember(call: CallState, settled: CallSettled) -> None:
    """Mark the run of a call of which it is not known what it did. Part of `evolve.py`."""
    if settled.effect is not Effect.UNKNOWN and not settled.alive:
        return
    mark = unsure(call.tool, call.arguments, settled)
    call.run.unsure = {**(call.run.unsure or {}), mark.key: mark}


def earlier_of(
    run: RunState, tool: str, arguments: dict[str, Any] | None, contract: Contract
) -> Earlier | None:
    """The same call issued before in this run, or in one that it continues."""
    if run.unsure is None or may_run_again(contract):
        return None
    return run.unsure.get(key_of(tool, arguments))


def still_lives(state: State, earlier: Earlier) -> str | None:
    """Why the same call may not start yet, in words for the model; None if it may."""
    before = state.calls.get(earlier.call)
    if before is None or not before.alive:
        return None
    return (
        f"the same call was issued before as {earlier.call}; it could not be stopped and is still "
        "running; wait until it has ended, and check what it did"
    )
