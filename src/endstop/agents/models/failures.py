"""Models: what failed, in words: the provider's own message, without secrets, and what to do.

The one place that knows what a status or an error body means. Nothing here waits or asks again; it
only says whether asking again could help.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from endstop.agents.models.protocol import Kind, ModelError
from endstop.core.text import InvalidJson, loads, safe_text

AGAIN: frozenset[Kind] = frozenset({"rate_limited", "overloaded", "unavailable"})
"""The kinds of failure that may pass if the same is asked a little later."""

WORDS_LIMIT = 500
"""Characters of a provider's own message that an error carries."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TOO_LONG = re.compile(
    r"prompt is too long|context[ _](?:length|window|size)|maximum context", re.IGNORECASE
)
_SHORTEST_SECRET = 6

_BY_STATUS: dict[int, Kind] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "unavailable",
    409: "unavailable",
    413: "too_large",
    425: "unavailable",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}
# What goes on being refused however often it is asked, though its class of status says otherwise.
_LASTING_STATUS = frozenset({501, 505, 511})

_BY_CODE: dict[str, Kind] = {
    "api_error": "unavailable",
    "authentication_error": "auth",
    "billing_error": "auth",
    "context_length_exceeded": "too_large",
    "insufficient_quota": "auth",
    "internal_server_error": "unavailable",
    "invalid_api_key": "auth",
    "invalid_request_error": "bad_request",
    "not_found_error": "bad_request",
    "overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "permission_error": "auth",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "request_too_large": "too_large",
    "server_error": "unavailable",
    "timeout_error": "unavailable",
}

REMEDY: dict[Kind, str] = {
    "auth": "Check the API key, and what the account behind it may use and pay.",
    "bad_request": "Asking the same again will not help: check the model's name and base_url.",
    "rate_limited": "Wait, or ask less often.",
    "overloaded": "Try again later.",
    "unavailable": "Try again later.",
    "broken_stream": "Nothing of the reply is used; ask again.",
    "timeout": "Ask again, or allow more time.",
    "too_large": "Shorten the transcript, or use a model with more room.",
}


class Redactor:
    """Takes secrets out of text that came from outside."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first, so that no part of one remains beside another.
        usable = {one for one in secrets if len(one) >= _SHORTEST_SECRET}
        self._secrets = sorted(usable, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """`text` in one bounded line, without control characters and secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return safe_text(_CONTROL.sub(" ", safe_text(text, 20_000)).strip(), WORDS_LIMIT)


def from_status(
    where: str, status: int, headers: Mapping[str, str], body: bytes, redact: Redactor
) -> tuple[ModelError, bool]:
    """The error of an answer that is no success, and whether asking again could help."""
    parsed = _parsed(body)
    words = redact(error_words(parsed) or plain_words(body))
    kind = _narrowed(_kind_of_status(status, parsed), words)
    again = kind in AGAIN and status not in _LASTING_STATUS
    if headers.get("x-should-retry") == "false":
        again = False
    remedy = REMEDY[kind]
    if 300 <= status < 400:
        place = redact(headers.get("location", "elsewhere"))
        words = f"it points to {place}"
        remedy = "Redirects are not followed, so that no key goes astray: correct base_url."
    error = ModelError(
        kind,
        sentence(f"{where} answered {_status_text(status)}", words, remedy),
        status=status,
        retry_after_s=retry_after_s(headers),
    )
    return error, again


def from_error(where: str, body: object, redact: Redactor) -> ModelError:
    """The error that a provider sent in the middle of a stream, or in place of a reply."""
    words = redact(error_words(body)) or "it does not say which"
    kind = _narrowed(_kind_of_code(body) or "unavailable", words)
    status = _number(_error_object(body).get("status_code"), _error_object(body).get("code"))
    return ModelError(
        kind, sentence(f"{where} reported an error", words, REMEDY[kind]), status=status
    )


def broken(where: str, what: str) -> ModelError:
    """A reply that ended, or went wrong, before it was whole."""
    return ModelError("broken_stream", sentence(f"{where}: {what}", "", REMEDY["broken_stream"]))


def sentence(what: str, words: str, remedy: str) -> str:
    """What happened, the provider's words if any, and what to do."""
    first = f"{what}: {words}" if words else what
    return f"{first}{'' if first.endswith(('.', '!', '?')) else '.'} {remedy}"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the provider wants to be left alone; None where it does not say, or says junk."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or value is None:
        return seconds
    try:
        at = parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(at - time.time(), 0.0)


def error_words(body: object, depth: int = 6) -> str:
    """The provider's own message in an error body of any of the usual shapes; "" where none is."""
    if isinstance(body, str):
        return body
    if depth == 0:
        return ""
    if isinstance(body, list):
        return "; ".join(filter(None, (error_words(item, depth - 1) for item in body[:3])))
    if not isinstance(body, Mapping):
        return ""
    for key in ("error", "message", "msg", "detail", "errors"):
        words = error_words(body.get(key), depth - 1)
        if words:
            return words + _raw_words(body, depth - 1)
    return _raw_words(body, depth - 1)


def _raw_words(body: Mapping[str, Any], depth: int) -> str:
    # A router puts what the provider behind it said beside its own "Provider returned error".
    metadata = body.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if not raw:
        return ""
    inner = _parsed(raw.encode(errors="replace")) if isinstance(raw, str) else raw
    words = error_words(inner, depth) or (raw if isinstance(raw, str) else "")
    return f" ({words})" if words else ""


def _parsed(body: bytes) -> object:
    try:
        return loads(body.decode(errors="replace").lstrip("\ufeff"))
    except InvalidJson:
        return None


def plain_words(body: bytes) -> str:
    """A body that is not JSON, in words: its text, or that it is a web page."""
    text = body.decode(errors="replace").strip()
    if not text.startswith("<"):
        return text
    title = _TITLE.search(text)
    return f"a web page, {title.group(1).strip()!r}" if title else "a web page"


def _error_object(body: object) -> Mapping[str, Any]:
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, Mapping) else body


def _kind_of_code(body: object) -> Kind | None:
    error = _error_object(body)
    for key in ("code", "type"):
        word = error.get(key)
        if isinstance(word, str) and word.lower() in _BY_CODE:
            return _BY_CODE[word.lower()]
    status = _number(error.get("status_code"), error.get("code"), error.get("status"))
    return None if status is None else _kind_of_status(status, None)


def _kind_of_status(status: int, parsed: object) -> Kind:
    if 400 <= status < 500 and parsed is not None:
        found = _kind_of_code({**_error_object(parsed), "status_code": None, "status": None})
        # A code is more exact than a status where both tell of a request that will not pass.
        if found in ("auth", "too_large"):
            return found
    return _BY_STATUS.get(status, "unavailable" if status >= 500 else "bad_request")


def _narrowed(kind: Kind, words: str) -> Kind:
    # Several servers say only in words that a transcript does not fit into the model's context.
    return "too_large" if kind == "bad_request" and _TOO_LONG.search(words) else kind


def _number(*candidates: object) -> int | None:
    for one in candidates:
        text = str(one) if isinstance(one, int | str) and not isinstance(one, bool) else ""
        if re.fullmatch(r"[1-5][0-9][0-9]", text):
            return int(text)
    return None


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
