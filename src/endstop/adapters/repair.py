"""The adapters: a broken transcript made valid and honest (laws 4 one-answer, 5 honest-effect).

A provider refuses a transcript in which a call has no result or a result no call, and goes on
refusing it. Repair closes such gaps without inventing anything: where a result is missing, the
truth takes its place, that nothing is recorded. Nothing here changes what it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endstop.adapters import anthropic, openai_chat, openai_responses
from endstop.adapters.ledger import Ledger
from endstop.adapters.parts import (
    ANTHROPIC,
    CHAT,
    FORMATS,
    RESPONSES,
    Message,
    clean,
    mapping_of,
    text_of,
)
from endstop.errors import CallerError

NO_RESULT = "Tool call has no recorded result: it may or may not have run."
"""What the model reads of a call whose result is missing."""

NOT_STARTED = "Tool call was not started: the call was incomplete or its arguments were invalid."
"""What the model reads of a call that never was whole."""

REMOVED = "[A tool result that stood here was moved to its call, or left out for want of one.]"
"""What stands where a message held nothing but results that do not belong there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A transcript that pairs, and what was changed for it; a valid one has no changes."""

    messages: list[Message]
    changes: tuple[str, ...]


def repair(messages: Sequence[Any], format: str | None = None) -> Repaired:
    """Make a transcript valid: each call has one result, directly behind it, in call order.

    A call without result is closed as unknown, or as not started if it never was whole; a result
    without call is dropped; of two results the first stays; ids become unique and results follow
    by position; arguments become valid JSON. A call that is being run right now counts as
    unanswered: repair transcripts at rest. A valid transcript comes back equal and unchanged,
    untouched messages are the same objects, and repairing twice changes nothing more. Message
    objects of an SDK come back as plain messages.

    Raises `CallerError` when the format is unknown or not to be told, or a message is none.
    """
    if format is not None and format not in FORMATS:
        raise CallerError(f"Unknown format {format!r}: use one of {', '.join(FORMATS)}")
    ledger = Ledger(unrecorded=NO_RESULT, unstarted=NOT_STARTED, removed=REMOVED)
    plain = [_plain(index, message, ledger) for index, message in enumerate(messages)]
    match format or _detect(plain):
        case "openai-chat":
            mended = openai_chat.mend(plain, ledger)
        case "openai-responses":
            ledger.unit = "item"
            mended = openai_responses.mend(plain, ledger)
        case "anthropic-messages":
            mended = anthropic.mend(plain, ledger)
        case _:
            mended = plain
    return Repaired(messages=mended, changes=tuple(ledger.changes))


def _plain(index: int, message: Any, ledger: Ledger) -> Message:
    made = clean(message, f"messages[{index}]")
    if not isinstance(made, dict):
        raise CallerError(f"messages[{index}] is a {type(message).__name__}, not a message")
    if made == message:
        return message if isinstance(message, dict) else made
    if isinstance(message, Mapping):
        ledger.note(index, "values that are not plain JSON in UTF-8 were replaced")
    return made


def _detect(messages: list[Message]) -> str | None:
    """The one format that the calls and results are in; None where there are none."""
    found = {format for message in messages if (format := _format_of(message)) is not None}
    if len(found) > 1:
        raise CallerError(
            f"The transcript mixes {' and '.join(sorted(found))}: convert it to one, or name one"
        )
    return next(iter(found), None)


def _format_of(message: Message) -> str | None:
    kind = text_of(message.get("type"))
    if kind in openai_responses.OUTPUT_OF or kind in openai_responses.OUTPUTS:
        return RESPONSES
    if message.get("role") in ("tool", "function") or "tool_calls" in message:
        return CHAT
    if message.get("function_call"):
        return CHAT
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if mapping_of(block).get("type") in ("tool_use", "tool_result"):
            return ANTHROPIC
    return None
