"""Names that nobody else has, drawn in bulk: asking the system for each costs more than a call.

Every ask gives the interpreter's lock away, and whoever holds it then may keep it for a while.
"""

from __future__ import annotations

import os

_BYTES = 6
_DRAWN = 512

_names: list[str] = []


def random_name() -> str:
    """Twelve hexadecimal digits that come from the system's own chance; from any thread."""
    while True:
        try:
            return _names.pop()
        except IndexError:
            drawn = os.urandom(_BYTES * _DRAWN).hex()
            _names.extend(drawn[at : at + 2 * _BYTES] for at in range(0, len(drawn), 2 * _BYTES))


if hasattr(os, "register_at_fork"):
    # A child that went on drawing from the same names would use them twice.
    os.register_at_fork(after_in_child=_names.clear)
