"""The agent of the wire tests in a server with the original bug: its cancel tells nobody.

It is loaded by the server, so that the bug is planted in the process that serves.
"""

from __future__ import annotations

from endstop.core import events as e
from endstop.run import engine
from tests.wire.served import agent, agent_card, extended_agent_card

__all__ = ["agent", "agent_card", "extended_agent_card"]

del engine._ACT[e.AskSent]
