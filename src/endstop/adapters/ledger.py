"""The adapters: which result of a transcript belongs to which call.

Knows calls and results, not messages: the format files read a transcript into a ledger and write
it out again. A result finds its call by id, in the last message with calls before it. Ids are
trusted no further than that, because models use one id twice, in one message and again in later
ones; a result that stands before its call is taken only if nothing else bears its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from endstop.adapters.parts import UNREADABLE, Message, Wanted

Place = tuple[int, int]
"""Where a result stands: its message, and the block inside that message (or 0)."""


@dataclass(slots=True, kw_only=True)
class Found:
    """One result as it stands in the transcript; `key` is an id, or with `by_name` a tool."""

    place: Place
    key: str
    body: Message
    by_name: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One call of the transcript, and its result once it is found."""

    wanted: Wanted
    found: Found | None = None

    @property
    def half(self) -> bool:
        """Whether the call was never whole, so that it cannot have been started."""
        call = self.wanted.call
        return call.problem is not None or set(call.arguments or ()) == {UNREADABLE}

    def matches(self, found: Found, *, made: bool) -> bool:
        """Whether a result names this call, by the id it got here (`made`) or had before."""
        if found.by_name:
            return self.wanted.kind == "legacy" and self.wanted.call.tool == found.key
        return found.key == (self.wanted.id if made else self.wanted.call.model_id)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """All calls and results of one transcript, in order, and what had to be changed."""

    unrecorded: str
    unstarted: str
    removed: str
    unit: str = "message"
    changes: list[str] = field(default_factory=list)
    groups: list[list[Slot]] = field(default_factory=list)
    early: list[Found] = field(default_factory=list)
    keys: Counter[str] = field(default_factory=Counter)

    def note(self, index: int, what: str) -> None:
        """Record one change, with the message it was made in."""
        self.changes.append(f"{self.unit} {index}: {what}")

    def open(self, index: int, wanted: Sequence[Wanted]) -> list[Slot]:
        """The calls of one message begin to wait for their results."""
        slots = [Slot(wanted=one) for one in wanted]
        for one in wanted:
            if one.id != one.call.model_id:
                self.note(index, f"call id {one.call.model_id!r} was not unique, now {one.id!r}")
        self.groups.append(slots)
        return slots

    def take(self, found: Found) -> None:
        """A result is there: give it to its call, or find out that it has none."""
        self.keys[found.key] += 1
        for group in reversed(self.groups):
            named = [s for s in group if s.matches(found, made=True)]
            named += [s for s in group if s.matches(found, made=False) and s not in named]
            if not named:
                continue
            free = next((slot for slot in named if slot.found is None), None)
            if free is None:
                self.note(found.place[0], f"second result of call {found.key!r} dropped")
            else:
                free.found = found
            return
        # Calls without ids were answered under ids that somebody made up: their order decides.
        last = self.groups[-1] if self.groups else []
        for slot in last:
            if slot.found is None and not slot.wanted.call.model_id and not found.by_name:
                slot.found = found
                return
        self.early.append(found)

    def close(self) -> None:
        """Everything was read: settle the results that stood before any call of their id."""
        slots = [slot for group in self.groups for slot in group]
        for found in self.early:
            named = [s for s in slots if found.key and s.matches(found, made=False)]
            if len(named) == 1 and named[0].found is None and self.keys[found.key] == 1:
                named[0].found = found
            else:
                self.note(found.place[0], f"result without a call ({found.key!r}) dropped")
        self.early.clear()

    def closing(self, index: int, slot: Slot) -> str:
        """The words that stand in for a result that is not there."""
        assert slot.found is None, "a recorded result is never replaced"
        what = "never whole, closed as not started" if slot.half else "closed as unknown"
        self.note(index, f"call {slot.wanted.id!r} had no result: {what}")
        return self.unstarted if slot.half else self.unrecorded

    def note_moves(self, index: int, slots: Sequence[Slot], first: Place, step: Place) -> bool:
        """Whether results stood elsewhere than from `first` on, in call order; notes it if so."""
        places = [slot.found.place for slot in slots if slot.found is not None]
        right = [(first[0] + n * step[0], first[1] + n * step[1]) for n in range(len(places))]
        if places != right:
            self.note(index, "results moved directly behind their calls")
        return places != right


def changed(message: Message, **fields: Any) -> Message:
    """`message` with `fields` set; the same object where that changes nothing."""
    if all(key in message and message[key] == value for key, value in fields.items()):
        return message
    return {**message, **fields}
