"""Agents: the notes that a loop keeps in its run, and what they mean.

One vocabulary for whoever reads the journal: the loop itself after a crash, a projection, a viewer.
Nothing here waits or decides; a note is written by `Run.note` and read from `Noted`.

- `user`: a human, or a program in their place, says `text`. `when` is "now" or "after"; see `When`.
- `reply`: the model answered with `body`, as its provider sent it, in `format`. `heard` lists the
  user notes, by their number from 0, that were new in what it was asked; `usage` are its tokens and
  `ran_s` is how long the loop had run by then. What it cost is `spent` of the note.
- `limit`: the loop ends because the limit `what` was reached; `why` says so in words.
- `failure`: the loop ends because the model gave no usable reply; `why` says so in words, `what` is
  the kind of a `ModelError` or "reply".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from endstop.agents.models.protocol import ModelReply
from endstop.errors import CallerError

USER = "user"
REPLY = "reply"
LIMIT = "limit"
FAILURE = "failure"

TEXT_CHARS = 5_000_000
"""The longest text that a user may say at once."""


class When(StrEnum):
    """When the model hears what a user says: as soon as it can, or after all it has to do."""

    NOW = "now"
    AFTER = "after"


def user_note(text: str, when: When, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body of a `user` note; `more` is kept with it and never shown to the model.

    Raises CallerError for what is no text, blank, or too long.
    """
    if not isinstance(text, str):
        raise CallerError(f"what a user says is text, not {type(text).__name__}")
    if not text.strip():
        raise CallerError("what a user says is empty; no provider takes a blank message")
    if len(text) > TEXT_CHARS:
        raise CallerError(f"a text of {len(text)} characters is too long; {TEXT_CHARS} at most")
    return {**(more or {}), "text": text, "when": str(when)}


def reply_note(reply: ModelReply, format: str, heard: list[int], ran_s: float) -> dict[str, Any]:
    """The body of a `reply` note; `Run.note` refuses one that is no JSON."""
    usage = reply.usage
    body: dict[str, Any] = {"body": reply.body, "format": format, "ran_s": round(ran_s, 3)}
    if heard:
        body["heard"] = heard
    if usage.reported:
        body["usage"] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        }
    return body


def tokens_of(body: dict[str, Any]) -> int:
    """The tokens that a `reply` note tells of, input and output together."""
    told = body.get("usage") or {}
    return int(told.get("input_tokens", 0)) + int(told.get("output_tokens", 0))


def end_note(what: str, why: str) -> dict[str, Any]:
    """The body of a `limit` or `failure` note: which one, and why in words."""
    return {"what": what, "why": why}
