"""Agents on top of the drivers: delegated calls, and the handles, groups and turns around them.

Nothing here may start a tool except through `endstop.run`.
"""

from __future__ import annotations

from endstop.agents.agent import (
    Agent,
    AsyncAgent,
    DeferredAgent,
    Failure,
    Patience,
    Status,
    Task,
)
from endstop.agents.delegate import close_turn, delegate, delegate_all, open_handles
from endstop.agents.endings import Began, Ended, LoopEvent, LoopResult, Replied, Spoke, Voided
from endstop.agents.errors import AgentError, DelegationFailed, DroppedHandles, HandleCancelled
from endstop.agents.group import BlockingGroup, Group, gather
from endstop.agents.handle import BlockingHandle, Handle, Proof
from endstop.agents.limits import Limit, LoopLimits
from endstop.agents.local import LocalAgent
from endstop.agents.loop import Loop
from endstop.agents.model_agent import ModelAgent
from endstop.agents.offer import agent_tool, recognise
from endstop.agents.remote import RemoteAgent

__all__ = [
    "Agent",
    "AgentError",
    "AsyncAgent",
    "Began",
    "BlockingGroup",
    "BlockingHandle",
    "DeferredAgent",
    "DelegationFailed",
    "DroppedHandles",
    "Ended",
    "Failure",
    "Group",
    "Handle",
    "HandleCancelled",
    "Limit",
    "LocalAgent",
    "Loop",
    "LoopEvent",
    "LoopLimits",
    "LoopResult",
    "ModelAgent",
    "Patience",
    "Proof",
    "RemoteAgent",
    "Replied",
    "Spoke",
    "Status",
    "Task",
    "Voided",
    "agent_tool",
    "close_turn",
    "delegate",
    "delegate_all",
    "gather",
    "open_handles",
    "recognise",
]
