"""The agent of these tests as `endstop serve` finds it: unchanged, with its cards."""

from __future__ import annotations

from tests.wire.cards import card, extended
from tests.wire.executors import Agent

agent = Agent()
agent_card = card()
extended_agent_card = extended(agent_card)
