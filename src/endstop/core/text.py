"""The pure core: text and JSON text as they arrive (law 19 any-payload).

Text from models, tools and processes may be endless, cut in the middle or not UTF-8; JSON text
may be anything. `payload` builds on this. Nothing here may wait, log or do I/O.
"""

from __future__ import annotations

import json
import re
from typing import Any

TEXT_LIMIT = 100_000
"""Characters of one text, unless the caller says otherwise."""

_SMALLEST_LIMIT = 100
_NUMBER_CUT = re.compile(r"(\.|[eE][+-]?)")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


class InvalidJson(ValueError):
    """A text is not JSON; the message says what is wrong and where."""


class Doubled(dict[str, Any]):
    """An object that named a key twice; which one was meant cannot be known."""

    __slots__ = ("key",)
    key: str


def scrub(text: str) -> str:
    """`text` as valid UTF-8: split surrogate pairs are joined, lone ones become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub(_surrogate, text)
    return text


def _surrogate(found: re.Match[str]) -> str:
    units = found.group()
    if len(units) == 1:
        return "\ufffd"
    return chr(0x10000 + ((ord(units[0]) - 0xD800) << 10) + (ord(units[1]) - 0xDC00))


def safe_text(text: str | bytes | bytearray | memoryview, limit: int = TEXT_LIMIT) -> str:
    """Text that is safe to store, send and show, at most `limit` characters (law 19 any-payload).

    Over the limit, head and tail are kept around a line that says how much was left out.
    A limit under 100 counts as 100. Safe text goes through unchanged.
    """
    limit = max(limit, _SMALLEST_LIMIT)
    if not isinstance(text, str):
        text = bytes(text)
        # Four bytes are the longest character: what is cut here would not be shown anyway.
        if len(text) > 16 * limit:
            front = text[: 4 * limit].decode(errors="replace")
            back = text[-4 * limit :].decode(errors="replace")
            return _cut(_visible(front), _visible(back), limit, len(text), "bytes")
        text = text.decode(errors="replace")
    if len(text) <= limit:
        return _visible(text)
    # Split surrogate pairs only shrink when joined, so the ends are long enough.
    head, tail = _visible(text[: 2 * limit]), _visible(text[-2 * limit :])
    return _cut(head, tail, limit, len(text), "characters")


def _visible(text: str) -> str:
    text = scrub(text)
    return text.replace("\0", "\u2400") if "\0" in text else text


def _cut(head: str, tail: str, limit: int, total: int, unit: str) -> str:
    room = limit - len(f"\n[… {total} {unit} left out …]\n")
    assert room > 0, "the smallest limit leaves room for the line"
    front = room - room // 3
    head, tail = head[:front], tail[-(room - front) :]
    kept = room
    if unit == "bytes":
        kept = len(head.encode()) + len(tail.encode())
    return f"{head}\n[… {max(total - kept, 1)} {unit} left out …]\n{tail}"


def describe_error(error: BaseException) -> str:
    """Name and message of an exception, bounded, even when its message cannot be made."""
    try:
        message = safe_text(str(error), 300)
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        message = "(its message could not be made)"
    name = safe_text(type(error).__name__, 100)
    return f"{name}: {message}" if message else name


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    doubled = Doubled(made)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            doubled.key = safe_text(key, 100)
            break
        seen.add(key)
    return doubled


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs)


def loads(text: str) -> Any:
    """Parse JSON. Raises `InvalidJson`, and nothing else, with words that say what and where.

    An object with a doubled key keeps the last value and remembers the doubling, which strict
    `to_data` refuses. NaN and the infinities come through as floats, likewise refused there.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(_what_is_wrong(text, error)) from None
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None
    except ValueError:
        # The decoder's only other ValueError: a number longer than Python will convert.
        raise InvalidJson("it contains a number with too many digits") from None


def _what_is_wrong(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos : error.pos + 12].strip()
    cut = (
        error.pos >= len(text.rstrip())
        or error.msg.startswith("Unterminated string")
        or (error.msg.startswith("Invalid \\u") and len(text) - error.pos < 6)
        or any(word != rest and word.startswith(rest) for word in ("true", "false", "null", "-0"))
        or _NUMBER_CUT.fullmatch(rest) is not None
    )
    if cut:
        return f"it ends too early, after {len(text)} characters, as if it had been cut off"
    near = scrub(text[max(error.pos - 20, 0) : error.pos + 20])
    return (
        f"{error.msg[:1].lower()}{error.msg[1:]} at line {error.lineno} column {error.colno},"
        f" near {near!r}"
    )
