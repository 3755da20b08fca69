"""What a caller says of a run, checked: what it may be found by, and how it is declared to end.

Pure checks; what follows is the core's to decide.
"""

from __future__ import annotations

from collections.abc import Mapping

from endstop.core.terms import DECLARABLE, Outcome
from endstop.errors import CallerError

LABELS_MAX = 20
LABEL_CHARS = 500


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """A copy of the labels of a run. Raises CallerError for what is no short text, or too many."""
    if not isinstance(labels, Mapping):
        raise CallerError(f"labels are a dictionary of text, not {type(labels).__name__}")
    if len(labels) > LABELS_MAX:
        raise CallerError(f"a run has at most {LABELS_MAX} labels, not {len(labels)}")
    for name, value in labels.items():
        if not (_is_label(name) and _is_label(value)):
            text = value if _is_label(name) else name
            raise CallerError(
                f"label {name!r:.60}: names and values are text of at most {LABEL_CHARS} "
                f"characters; this is not: {text!r:.60}"
            )
    return dict(labels)


def _is_label(text: object) -> bool:
    if not isinstance(text, str) or len(text) > LABEL_CHARS:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def declared_outcome(outcome: Outcome | str | None) -> Outcome | None:
    """How a run is declared to end. Raises CallerError for what nobody can declare."""
    if outcome is None:
        return None
    if outcome not in DECLARABLE:
        known = ", ".join(sorted(DECLARABLE))
        raise CallerError(f"a run cannot be declared {outcome!r:.60}; it is one of {known}")
    return Outcome(outcome)
