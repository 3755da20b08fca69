"""Runs whose driver is gone: what the journal says of them is made honest when it is opened.

Nothing here runs a body. Whoever has settled an orphan lets go of it again, so that any process may
resume it; see `resume.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from endstop.core import events as e
from endstop.core.recovery import Unfinished
from endstop.core.terms import Mode, Reason
from endstop.errors import CallerError, JournalError, NotFound
from endstop.run.answers import recorded_answers
from endstop.run.results import CallResult
from endstop.run.takeover import stopping
from endstop.store.protocol import Durability, Journal, Recorded

log = logging.getLogger("endstop.run")


def settle_orphans(journal: Journal) -> list[str]:
    """Settle what cannot be resumed in runs that nobody owns (law 16); returns those runs."""
    settled = []
    for run in journal.orphans():
        left = Unfinished(run)
        try:
            left.read(recorded.event for recorded in journal.read(run))
        except JournalError as error:
            # Left as it is: the others must not wait for what nobody here can read.
            log.warning("run %s is not made honest: %s", run, error)
            continue
        # Looked at first: whoever takes up a run that only waits for that must not find it taken.
        if left.is_marked and not _is_attached(left.opened):
            continue
        if not journal.adopt(run):
            continue
        left.read(recorded.event for recorded in journal.read(run, left.seq))
        if _settle(journal, left):
            settled.append(run)
        journal.release(run)
    return settled


def _settle(journal: Journal, left: Unfinished) -> bool:
    """Settle what cannot be resumed in a run that was adopted; whether there was anything to do."""
    seq, closing = left.seq, list[e.Event]()
    if not left.ended and _is_attached(left.opened):
        # Its driver was that of the body which waited for it: nobody does any more (law 17).
        closing = [_cancelled(left.run, Reason.PARENT_CANCELLED)]
        left.read(closing)
    closing += left.closing()
    if closing:
        journal.append(left.run, seq, closing, Durability.PROCESS)
    return bool(closing)


def _is_attached(opened: e.RunOpened | None) -> bool:
    return opened is not None and opened.parent_call is not None and not opened.detached


def _cancelled(run: str, reason: Reason) -> e.RunCancelled:
    return e.RunCancelled(run=run, reason=reason, mode=Mode.INTERRUPT)


class Orphan:
    """A run that was taken over: all that is recorded of it, read once, and what it leaves open.

    Where it has ended, nobody drives it and nothing was taken over. Raises NotFound for a run that
    the journal does not know, and CallerError for one that somebody drives.
    """

    def __init__(self, journal: Journal, run: str) -> None:
        self.run = run
        self.left = Unfinished(run)
        self.added: list[e.Event] = []
        self._journal = journal
        adopted = journal.adopt(run)
        self.recorded: list[Recorded] = list(journal.read(run))
        self.left.read(recorded.event for recorded in self.recorded)
        if adopted:
            # Its driver may have gone just now, after this journal was opened.
            self._append(self.left.closing())
        elif self.left.opened is None:
            raise NotFound(f"the journal has no run {run!r}")
        elif not self.left.ended:
            who = journal.driver(run)
            raise CallerError(
                f"run {run!r} is driven by a program that lives{f' ({who})' if who else ''}; only "
                "a run whose driver is gone can be taken over"
            )

    def _append(self, events: list[e.Event]) -> None:
        if not events:
            return
        seq = self.left.seq
        self._journal.append(self.run, seq, events, Durability.PROCESS)
        self.recorded += [
            Recorded(run=self.run, seq=seq + number, at_s=time.time(), event=event)
            for number, event in enumerate(events, 1)
        ]
        self.left.read(events)
        self.added += events

    def end(self, reason: Reason) -> None:
        """End the run: nothing of it goes on, and what may have begun is lost."""
        cancel = _cancelled(self.run, reason)
        after = Unfinished(self.run)
        after.read(recorded.event for recorded in self.recorded)
        after.read([cancel])
        self._append([cancel, *after.closing()])

    def let_go(self) -> None:
        """Leave the run as it is, for whoever comes."""
        self._journal.release(self.run)


def stop_orphan(
    journal: Journal, run: str, target: str, reason: Reason, mode: Mode
) -> tuple[bool, list[CallResult]] | None:
    """Stop a run that nobody drives, or a batch or call of it.

    Returns whether there was anything to stop, and the calls that are over by that.
    What never began is cancelled, and of the rest nothing is claimed (laws 5 and 16). None where
    there is nothing to take over: no such run, or one that has ended. Raises CallerError where it
    is driven.
    """
    try:
        orphan = Orphan(journal, run)
    except NotFound:
        return None
    try:
        before = [one.event for one in orphan.recorded]
        if orphan.left.ended and not orphan.added:
            return None
        found = stopping(before, target, reason, mode, may_live=False)
        orphan._append(found)
    finally:
        orphan.let_go()
    if any(isinstance(event, e.RunEnded) for event in found):
        _stop_below(journal, run, mode)
    # What was found lost when the run was taken over is over by this as well.
    ends = {
        event.call
        for event in orphan.added
        if isinstance(event, e.CallSettled)
        and target in (run, event.call, event.call.rpartition(".")[0])
    }
    answers, _ = recorded_answers([*before, *found])
    return bool(found or ends), [answer for answer in answers if answer.call_id in ends]


def _stop_below(journal: Journal, run: str, mode: Mode) -> None:
    """End the attached runs that worked for a run that was ended (law 17 children-settle)."""
    children: Callable[[str], list[str]] | None = getattr(journal, "children", None)
    for child in children(run) if children is not None else ():
        opened = next(iter(journal.read(child))).event
        if isinstance(opened, e.RunOpened) and _is_attached(opened):
            # Whoever drives it, drove its parent: if it lives after all, it stops it itself.
            with suppress(CallerError):
                stop_orphan(journal, child, child, Reason.PARENT_CANCELLED, mode)
