"""The demo's proof: each claim is compared with the world and comes out true or false.

The claims are the runtime's (rows and messages); the facts are read from files, from the ledger
that the service wrote itself, from the process table and from the interpreter's own threads.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endstop.core import events as e
from endstop.demo import world
from endstop.demo.service import paint
from endstop.demo.table import Check, Row
from endstop.store import open_journal

if TYPE_CHECKING:
    from endstop.demo.story import Stage

_ZERO = Decimal(0)


def of_the_stop(stage: Stage) -> list[Check]:
    """What the files, the ledger and the threads say of the two scenes."""
    rows = [row for scene in stage.scenes for row in scene.rows]
    return [
        _everything_was_under_way(stage),
        _in_time(stage),
        _order(stage, rows),
        _texts(stage, rows),
        _pictures(stage, rows),
        _build(stage, rows),
        _publishing(stage),
        _stillness(stage),
        _ledger(stage, rows),
        _nothing_charged_later(stage),
        _saved(stage, rows),
        _daemon(stage),
        _wedge(stage),
        _late_end(stage, rows),
        _messages(stage),
    ]


def _everything_was_under_way(stage: Stage) -> Check:
    crowd = ", ".join(str(one.pid) for one in stage.crowd)
    return Check(
        name="under_way",
        claim="The stop met work that was under way",
        holds=stage.under_way and stage.daemon is not None,
        seen=f"alive at that moment: {crowd or 'no process'}; connections without an answer: "
        f"{stage.service.hanging}",
    )


def _in_time(stage: Stage) -> Check:
    bound_s = stage.pace.grace_s + stage.pace.kill_s
    return Check(
        name="in_time",
        claim="From the cancel to the report within grace, kill included",
        holds=0 < stage.stop_s <= bound_s,
        seen=f"{stage.stop_s:.2f} s; grace {stage.pace.grace_s:g} s, "
        f"and at most {stage.pace.kill_s:g} s to prove a kill",
    )


def _order(stage: Stage, rows: list[Row]) -> Check:
    """Two edits of one file never overlap, and calls that share nothing do."""
    running: set[str] = set()
    files = {row.call_id: row.arguments.get("path") for row in rows if row.tool == "edit_file"}
    most, clashes = 0, []
    for event in stage.narrator.events:
        if isinstance(event, e.CallStarted):
            mine = files.get(event.call)
            clashes += [one for one in running if mine and files.get(one) == mine]
            running.add(event.call)
            most = max(most, len(running))
        elif isinstance(event, e.CallSettled):
            running.discard(event.call)
    return Check(
        name="order",
        claim="Edits of one file ran one after the other, what shares nothing side by side",
        holds=most > 1 and not clashes and not running,
        seen=f"at most {most} calls ran at once; overlapping edits: {len(clashes)}",
    )


def _texts(stage: Stage, rows: list[Row]) -> Check:
    """Apply the edits that are said to have happened to the old texts: that must be the files."""
    expected = dict(stage.texts)
    edits = [row for row in rows if row.tool == "edit_file"]
    for row in edits:
        name = Path(row.arguments["path"]).name
        if row.ok:
            expected[name] = expected[name].replace(row.arguments["find"], row.arguments["replace"])
    found = {name: world.read_text(stage.directory / "site" / name) for name in expected}
    wrong = [name for name in expected if found[name] != expected[name]]
    done = sum(row.ok for row in edits)
    return Check(
        name="files",
        claim=f"The files hold the {done} edits that ran, in order, and not the "
        f"{len(edits) - done} that did not",
        holds=not wrong,
        seen=f"differ: {', '.join(wrong)}" if wrong else f"{len(expected)} files as claimed",
    )


def _pictures(stage: Stage, rows: list[Row]) -> Check:
    orders = [row for row in rows if row.tool == "generate_image"]
    wrong = []
    for row in orders:
        found = world.read_text(stage.directory / row.arguments["path"])
        if found != (paint(row.arguments["prompt"]) if row.ok else None):
            wrong.append(row.arguments["path"])
    saved = sum(row.ok for row in orders)
    return Check(
        name="pictures",
        claim=f"Pictures saved to disk: {saved} of {len(orders)}, the ones that succeeded",
        holds=not wrong,
        seen=f"not as claimed: {', '.join(wrong)}" if wrong else "those files are there, no other",
    )


def pages(directory: Path, quality: str) -> list[str]:
    """The built pages of one quality."""
    found = sorted((directory / "site" / "dist").glob("*.html"))
    return [f.name for f in found if (world.read_text(f) or "").startswith(f"<!-- {quality} -->")]


def _build(stage: Stage, rows: list[Row]) -> Check:
    ran = [row for row in rows if row.tool == "build" and row.started]
    count = len(pages(stage.directory, "print"))
    last = ran[-1] if ran else None
    whole = count == len(stage.texts)
    ended = "none ran" if last is None else f"{last.outcome}, effect {last.effect}"
    return Check(
        name="build",
        claim=f"The second build ended as said: {ended}",
        holds=last is not None and (whole if last.ok else last.effect == "unknown"),
        seen=f"{count} of {len(stage.texts)} pages are in print quality",
    )


def _publishing(stage: Stage) -> Check:
    now = world.snapshot(stage.directory / "public")
    refused = "refused" if not stage.late_yes else "taken"
    return Check(
        name="approval",
        claim="What was not approved before the stop is not online; a late yes changes nothing",
        holds=bool(now) and now == stage.published and not stage.late_yes,
        seen=f"{len(now)} pages online, "
        f"{'as before the second reply' if now == stage.published else 'changed since'}; "
        f"the late yes was {refused}",
    )


def _stillness(stage: Stage) -> Check:
    before, after = stage.still or ({}, {})
    moved = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return Check(
        name="stillness",
        claim="After the report nothing in the workspace moves",
        holds=bool(before) and not moved,
        seen=f"changed: {', '.join(moved)}"
        if moved
        else f"{len(after)} files unchanged for {0.8 * stage.pace.unit_s:g} s, the daemon's too",
    )


def _ledger(stage: Stage, rows: list[Row]) -> Check:
    charges = stage.service.read_ledger()
    charged = sum((one.amount for one in charges), _ZERO)
    spent = sum((row.spent for row in rows), _ZERO)
    keys = sorted(one.key for one in charges)
    paid = sorted(row.call_id for row in rows if row.spent)
    return Check(
        name="ledger",
        claim=f"endstop says {spent} USD were spent, by {len(paid)} calls",
        holds=charged == spent and keys == paid,
        seen=f"the ledger says {charged} USD, keys {', '.join(keys) or 'none'}; "
        f"it was asked to take back {stage.service.refused} and refused",
    )


def _nothing_charged_later(stage: Stage) -> Check:
    charges = stage.service.read_ledger()
    late = [one.key for one in charges if one.at_s >= stage.stopped_at_s]
    last_s = max((one.at_s for one in charges), default=0.0)
    return Check(
        name="no_late_charge",
        claim="Nothing was charged after the stop",
        holds=stage.stopped_at_s > 0 and not late,
        seen=f"charged late: {', '.join(late)}"
        if late
        else f"the last entry is {stage.stopped_at_s - last_s:.2f} s older than the stop",
    )


def _saved(stage: Stage, rows: list[Row]) -> Check:
    keys = {one.key for one in stage.service.read_ledger()}
    unstarted = [row for row in rows if row.cost and not row.started]
    saved = sum((row.saved for row in rows), _ZERO)
    paid = [row.call_id for row in unstarted if row.call_id in keys]
    return Check(
        name="saved",
        claim=f"{saved} USD were saved: {len(unstarted)} paid calls never started",
        holds=bool(unstarted) and not paid,
        seen=f"in the ledger nevertheless: {', '.join(paid)}"
        if paid
        else "their keys are not in the ledger",
    )


def _daemon(stage: Stage) -> Check:
    daemon = stage.daemon
    there = daemon is not None and world.alive(daemon)
    return Check(
        name="daemon",
        claim="The daemon that ignored every signal is dead",
        holds=daemon is not None and not there,
        seen="there was none"
        if daemon is None
        else f"{daemon} was alive at the stop and {'still is' if there else 'is gone'}",
    )


def threads_in(function: str) -> list[str]:
    """The names of threads of this process that are inside a function now."""
    names = {one.ident: one.name for one in threading.enumerate()}
    found = []
    for ident, top in sys._current_frames().items():
        frame: Any = top
        while frame is not None and frame.f_code.co_name != function:
            frame = frame.f_back
        if frame is not None:
            found.append(names.get(ident, str(ident)))
    return found


def _wedge(stage: Stage) -> Check:
    listed = [view for view in stage.wedged if view.tool == "fetch_reviews"]
    where = next((line for view in listed for line in view.stack if "in fetch_reviews" in line), "")
    return Check(
        name="wedge",
        claim="The call that cannot be stopped is on the books, with its stack",
        holds=len(listed) == len(stage.wedged_frames) == 1 and bool(where),
        seen=f"listed at {where.rpartition('/')[2] or 'nothing'}; "
        f"thread in it: {', '.join(stage.wedged_frames) or 'none'}",
    )


def _late_end(stage: Stage, rows: list[Row]) -> Check:
    abandoned = sorted(row.call_id for row in rows if row.stopped_by == "abandoned")
    running = threads_in("fetch_reviews")
    return Check(
        name="late_end",
        claim="When its server hangs up, its late end is noted and no call is open any more",
        holds=sorted(stage.late_ends) == abandoned and not stage.left_open and not running,
        seen=f"late ends: {', '.join(stage.late_ends) or 'none'}; calls still open: "
        f"{len(stage.left_open)}; threads in it: {len(running)}",
    )


def _messages(stage: Stage) -> Check:
    asked = [row.model_id for scene in stage.scenes for row in scene.rows]
    answered = [
        found for scene in stage.scenes for message in scene.messages for found in _ids(message)
    ]
    return Check(
        name="messages",
        claim="Each call has exactly one answer for the model, in its order",
        holds=bool(asked) and asked == answered,
        seen=f"{len(asked)} calls, {len(answered)} answers",
    )


def _ids(message: dict[str, Any]) -> list[str]:
    if "tool_call_id" in message:
        return [message["tool_call_id"]]
    return [part["tool_use_id"] for part in message["content"] if "tool_use_id" in part]


def wait_gone(token: str, limit_s: float) -> None:
    """Wait until no process of the story is left, at most `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while world.marked(token) and time.monotonic() < deadline:
        time.sleep(0.02)


def of_what_is_left(stage: Stage, journal: Path) -> list[Check]:
    """What the process table and the journal's file say once the runtime is closed."""
    left = world.marked(stage.token)
    names = ", ".join(f"{one} ({one.words[:40]})" for one in left)
    return [
        Check(
            name="processes",
            claim="No process of the story is left anywhere",
            holds=not left,
            seen=f"alive: {names}" if left else f"0 of {len(stage.crowd)} that there were",
        ),
        _journal(stage, journal),
        _other_process(stage, journal),
    ]


def _journal(stage: Stage, path: Path) -> Check:
    rows = [row for scene in stage.scenes for row in scene.rows]
    endings: list[str] = []
    late: list[str] = []
    for events in recorded(path):
        cancelled = False
        for event in events:
            cancelled = cancelled or isinstance(event, e.RunCancelled)
            if isinstance(event, e.CallSettled):
                endings.append(event.call)
            elif isinstance(event, e.CallStarted) and cancelled:
                late.append(event.call)
    return Check(
        name="journal",
        claim="The journal has one ending for each call, and no start after the cancel",
        holds=sorted(endings) == sorted(row.call_id for row in rows) and not late,
        seen=f"{len(endings)} endings for {len(rows)} calls, {len(late)} late starts",
    )


def recorded(path: Path) -> list[list[e.Event]]:
    """What the journal's file has, run by run."""
    journal = open_journal(str(path))
    try:
        return [[one.event for one in journal.read(run)] for run in journal.runs()]
    finally:
        journal.close()


def events_of(path: Path, run: str) -> list[e.Event]:
    """What a journal's file has of a run and of the runs below it."""
    return [one for events in recorded(path) for one in events if one.run.startswith(run)]


def _other_process(stage: Stage, path: Path) -> Check:
    """The yes of the first scene came through the file, and the call began after it, once."""
    answered = stage.answered
    story = [
        type(event)
        for events in recorded(path)
        for event in events
        if answered is not None
        and getattr(event, "call", None) == answered.target
        and isinstance(event, e.ApprovalAsked | e.ApprovalAnswered | e.CallStarted)
    ]
    return Check(
        name="other_process",
        claim="The yes of the first scene came from another process, and counted once",
        holds=answered is not None
        and answered.exit_code == 0
        and answered.pid != os.getpid()
        and story == [e.ApprovalAsked, e.ApprovalAnswered, e.CallStarted],
        seen="nobody answered"
        if answered is None
        else f"pid {answered.pid} left with exit code {answered.exit_code}; recorded: "
        f"{', '.join(kind.__name__ for kind in story) or 'nothing'}",
    )


def of_the_cleaning(directory: Path) -> Check:
    """Whether the scratch directory is gone."""
    there = directory.exists()
    return Check(
        name="scratch",
        claim="The scratch directory is gone",
        holds=not there,
        seen=f"{directory.name} {'is still there' if there else 'is no more'}",
    )
