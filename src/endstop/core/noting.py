"""Making a note: what an application wants in the history of a run, bounded and safe, once.

Pure. Whoever may write notes (a run's handle, a body's context, a process that speaks for its body)
comes by here, so that everything behind may trust them (law 19 any-payload).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from endstop.core.inputs import Note
from endstop.core.payload import PayloadLimits, Unserialisable, safe_text, to_data
from endstop.core.terms import Money
from endstop.errors import CallerError

KIND_CHARS = 100
"""Longest kind of a note."""

BODY = PayloadLimits(chars=10_000_000)
"""Bounds of the body of one note; what is large lies beside a journal, not in it."""


def make_note(
    run: str,
    kind: str,
    body: Mapping[str, object],
    call: str | None = None,
    spent: Money | None = None,
) -> Note:
    """The input for one note, with a copy of `body` as plain data.

    Raises CallerError for a kind that is no short text, a body that is no JSON object, and a
    `spent` that is no amount.
    """
    if not isinstance(kind, str) or not 0 < len(kind) <= KIND_CHARS:
        raise CallerError(
            f"note(): the kind is text of 1 to {KIND_CHARS} characters, such as 'user'; "
            f"this is {kind!r:.60}"
        )
    if not isinstance(body, Mapping):
        raise CallerError(
            f"note(): the body is a JSON object, such as {{'text': 'hello'}}, "
            f"not a {type(body).__name__}"
        )
    # The core believes what it is told: a wrong kind would fail every later decision.
    if spent is not None and not (isinstance(spent, Money) and _is_amount(spent.amount)):
        raise CallerError(f"note(): spent is Money of 0 or more, not {spent!r:.80}")
    try:
        data = to_data(body, limits=BODY, where="note")
    except Unserialisable as problem:
        raise CallerError(f"note(): {problem}") from None
    assert isinstance(data, dict), "a mapping becomes an object"
    return Note(run=run, kind=safe_text(kind, KIND_CHARS), body=data, call=call, spent=spent)


def _is_amount(value: object) -> bool:
    return isinstance(value, Decimal) and value.is_finite() and value >= 0
