"""How far the explorer goes: `ENDSTOP_EXPLORE` is quick, ci (the default) or deep."""

from __future__ import annotations

import os

_NODES: dict[str, int | None] = {"quick": 300, "ci": 12000, "deep": None}

DEPTH = os.environ.get("ENDSTOP_EXPLORE", "ci")
MAX_NODES = _NODES[DEPTH]
"""The states of a world that are visited, nearest first; None for every one."""
