"""Tools: what a reconciler is asked of a lost call, and what it may answer.

A reconciler finds out what became of a call whose ending was never recorded, such as by looking up
the effect key at the provider. It is asked when the run is resumed, before anything of the call
runs again; what it says is recorded (law 10 no-blind-retry).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall:
    """A call that had begun when its driver was lost, as its reconciler sees it.

    `effect_key` is the key that the body was given; `arguments` are the validated ones, as the
    body got them.
    """

    call_id: str
    run_id: str
    tool: str
    effect_key: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of a lost call.

    `done=True`: its effect has happened, `value` is its result, and it does not run again.
    `done=False`: it has not happened and cannot happen any more; the call runs again under the same
    effect key. `done=None`: it cannot be told; the outcome stays unknown.
    """

    done: bool | None
    value: Any = None


Reconcile = Callable[[LostCall], Any]
"""Returns `Reconciled`, or an awaitable of it. What it raises means that it cannot be told."""
