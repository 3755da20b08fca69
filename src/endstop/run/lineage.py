"""Lineage: what a run inherits from the one that it continues (law 10 no-blind-retry).

Read from the live state where that run is here, else from the journal. Nothing here decides what
follows from it; `core/again.py` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endstop.core import events as e
from endstop.core.again import unsure
from endstop.core.terms import Earlier, Effect
from endstop.errors import NotFound

if TYPE_CHECKING:
    from endstop.run.engine import Engine


def inherited(engine: Engine, run: str) -> tuple[Earlier, ...]:
    """The calls of a run, and of those that it continued, of which it is not known what they did.

    A call that may have begun and has no ending yet counts as well: whoever continues a run that
    was interrupted does not know either. Raises NotFound for a run that is in no place.
    """
    with engine.lock:
        live = engine.state.runs.get(run)
        if live is not None:
            return tuple((live.unsure or {}).values())
    found: dict[str, Earlier] = {}
    calls: dict[str, tuple[str, dict[str, object] | None]] = {}
    known = False
    for recorded in engine.journal.read(run):
        known = True
        match recorded.event:
            case e.RunOpened() as opened:
                found = {one.key: one for one in opened.inherited}
            case e.CallAccepted() as call:
                calls[call.call] = call.tool, call.arguments
            case e.ApprovalAsked() | e.CallQueued() as ready if ready.arguments is not None:
                calls[ready.call] = calls[ready.call][0], ready.arguments
            case e.CallSettled() as ending if ending.alive or ending.effect is Effect.UNKNOWN:
                mark = unsure(*calls[ending.call], ending)
                found[mark.key] = mark
            case _:
                pass
    if not known:
        raise NotFound(f"there is no run {run!r} to continue, here or in the journal")
    return tuple(found.values())
