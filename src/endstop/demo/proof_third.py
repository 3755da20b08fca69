"""The demo's proof of its third act: what the server answered, compared with loaves and journal."""

from __future__ import annotations

from endstop.core import events as e
from endstop.demo import world
from endstop.demo.proof import recorded
from endstop.demo.table import Check
from endstop.demo.third import BOOK, Act, words_of

CANCELED = "TASK_STATE_CANCELED"


def of_the_act(act: Act) -> list[Check]:
    """What the world says of the third act; nothing, where it was left out."""
    return [] if act.skipped else [_stopped(act), _one_answer(act), _left(act)]


def _stopped(act: Act) -> Check:
    loaves = act.loaves()
    late = [at for at in loaves if at > act.stopped_at]
    stopper = act.stopper
    return Check(
        name="served_stop",
        claim="A task of a server was stopped by another process, and its agent baked no more",
        holds=act.working == "TASK_STATE_WORKING"
        and stopper is not None
        and stopper.exit_code == 0
        and bool(loaves)
        and not late,
        seen=f"{len(loaves)} loaves, {len(late)} of them after the stop; "
        f"{'nobody stopped it' if stopper is None else f'stopped by pid {stopper.pid}'}",
    )


def _one_answer(act: Act) -> Check:
    """What the client was told, twice, is what the journal has: one ending."""
    endings = [
        event
        for events in recorded(act.directory / BOOK)
        for event in events
        if isinstance(event, e.RunEnded)
    ]
    told = [one.get("status", {}).get("state", "no answer") for one in (act.after, act.again)]
    return Check(
        name="served_answer",
        claim="The client was told what the journal says, also when it asked for a cancel itself",
        holds=told == [CANCELED, CANCELED]
        and [one.outcome for one in endings] == ["cancelled"]
        and bool(words_of(act.after))
        and words_of(act.after) == words_of(act.again),
        seen=f"told {', '.join(told)}; the journal has {len(endings)} ending: "
        f"{', '.join(one.outcome for one in endings) or 'none'}",
    )


def _left(act: Act) -> Check:
    there = act.server is not None and world.alive(act.server)
    return Check(
        name="served_exit",
        claim="Asked to go, the server leaves by itself",
        holds=act.server is not None and not there and act.exit_code == 0,
        seen=f"{act.server or 'no server'} {'is still there' if there else 'is gone'}, exit code "
        f"{act.exit_code}",
    )
