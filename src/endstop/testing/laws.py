"""The laws as functions: what must be true of a state after every step and of a story when it ends.

Public test tools. Everything here only reads, and nothing here uses the machinery that it checks:
what may be held together is worked out from the claims themselves, not from the resource table.
Each complaint begins with the law that was broken.
"""

from __future__ import annotations

from endstop.testing.state_laws import at_rest, check_state, conflict
from endstop.testing.story_laws import check_story

__all__ = ["at_rest", "check_state", "check_story", "conflict"]
