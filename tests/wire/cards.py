"""The cards of the agent of these tests, without where it is: the server writes that in."""

from __future__ import annotations

from a2a.types import AgentCapabilities, AgentCard, AgentSkill

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
VERSIONS = ("1.0", "0.3")


def card() -> AgentCard:
    return AgentCard(
        name="wire",
        description="Does what the message says.",
        version="1",
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="Does it.", tags=["test"])],
    )


def extended(card: AgentCard) -> AgentCard:
    """The card for those that the agent knows."""
    more = AgentCard()
    more.CopyFrom(card)
    more.description = "Does what the message says, for those it knows."
    return more
