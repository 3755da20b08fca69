"""Signatures of what is pushed: made by the server, checked by whoever receives.

HMAC-SHA256 over the time and the body, with the token or the credentials of the config as its key.
Pure; the receiving side needs nothing but this module and the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping

TOKEN = "X-A2A-Notification-Token"
"""The protocol's own: the config's token as it was given."""
TIMESTAMP = "X-Endstop-Timestamp"
"""When it was signed, in seconds since 1970."""
SIGNATURE = "X-Endstop-Signature"
DELIVERY = "X-Endstop-Delivery"
"""The same for every attempt at one delivery, so that whoever receives it twice can tell."""

_SCHEME = "sha256="
MAX_AGE_S = 300.0


def sign(body: bytes, secret: str, at_s: int) -> dict[str, str]:
    """The headers that prove a body and its time to whoever knows the secret."""
    assert secret, "an empty secret proves nothing"
    return {TIMESTAMP: str(at_s), SIGNATURE: _SCHEME + _digest(body, secret, str(at_s))}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str,
    *,
    now_s: float,
    max_age_s: float = MAX_AGE_S,
) -> bool:
    """Whether a body came from whoever knows the secret, at most `max_age_s` ago.

    `headers` as they were received, their names in any case; `now_s` is wall time. Never raises for
    what a stranger sends.
    """
    found = {name.lower(): value for name, value in headers.items()}
    at, signature = found.get(TIMESTAMP.lower(), ""), found.get(SIGNATURE.lower(), "")
    if not secret or not at.isascii() or not at.isdecimal() or len(at) > 15:
        return False
    age_s = now_s - int(at)
    if not math.isfinite(age_s) or abs(age_s) > max_age_s:
        return False
    expected = _SCHEME + _digest(body, secret, at)
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))


def _digest(body: bytes, secret: str, at: str) -> str:
    signed = at.encode("ascii") + b"." + body
    return hmac.new(secret.encode("utf-8", "replace"), signed, hashlib.sha256).hexdigest()
