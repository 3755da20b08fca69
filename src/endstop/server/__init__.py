"""The server: an A2A request handler put on sockets, over JSON-RPC, HTTP+JSON and gRPC.

Who may ask, how much, and what a log may say. Nothing in here knows how a task lives: that is the
handler's. Needs the extra `server`, and `grpc` for gRPC; the base install imports nothing of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endstop.server.app import build_app
    from endstop.server.auth import Tokens
    from endstop.server.card import card_for
    from endstop.server.limits import CannotServe, ServerLimits
    from endstop.server.serve import Serving

_HOMES = {
    "CannotServe": "endstop.server.limits",
    "ServerLimits": "endstop.server.limits",
    "Serving": "endstop.server.serve",
    "Tokens": "endstop.server.auth",
    "build_app": "endstop.server.app",
    "card_for": "endstop.server.card",
}

__all__ = ["CannotServe", "ServerLimits", "Serving", "Tokens", "build_app", "card_for"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need_extra()
    return getattr(importlib.import_module(home), name)


def need_extra() -> None:
    """Raise ImportError, in words, where what the server needs is not installed."""
    for module in ("a2a.types", "starlette", "sse_starlette", "uvicorn"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"serving an agent needs {module.partition('.')[0]}: install endstop[server]"
            ) from error
