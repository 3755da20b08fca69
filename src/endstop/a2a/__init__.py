"""A2A: a run offered as a task. The rest of the package; `endstop.server` puts it on a socket.

The protocol's types and transports are those of `a2a-sdk`; the life of a task is ours: a run, and
its status a reading of the journal. Nothing in here may keep a state of a task that the journal
does not have. Needs the extra `server`; the base install imports nothing of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endstop.a2a.handler import EndstopRequestHandler
    from endstop.a2a.limits import TaskLimits

_HOMES = {
    "EndstopRequestHandler": "endstop.a2a.handler",
    "TaskLimits": "endstop.a2a.limits",
}

__all__ = ["EndstopRequestHandler", "TaskLimits"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need_sdk()
    return getattr(importlib.import_module(home), name)


def need_sdk() -> None:
    """Raise ImportError, in words, where the SDK of the protocol is not installed."""
    try:
        importlib.import_module("a2a.types")
    except ImportError as error:
        raise ImportError("A2A needs the SDK of the protocol: install endstop[server]") from error
