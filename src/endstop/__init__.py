"""endstop executes an AI agent's tool calls so that stop means stop.

Every call ends with one honest answer. These are the public names; everything else may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from endstop.adapters.reply import Reply, read_reply
from endstop.config import Config
from endstop.core.terms import (
    Backoff,
    Effect,
    EffectClass,
    Flag,
    Isolation,
    Limits,
    Mode,
    Money,
    Outcome,
    Reason,
    StoppedBy,
    ToolCall,
)
from endstop.errors import (
    CallerError,
    ContractError,
    EndstopError,
    InvalidArguments,
    JournalError,
    NotFound,
    RunSuspended,
    StaleWriter,
    Stopped,
    Unanswered,
)
from endstop.run.approvals import Approve, Edit, Pending, Reject, Respond
from endstop.run.blocking import BlockingRun, BlockingRuntime
from endstop.run.handles import Cancellation, Run
from endstop.run.hooks import Block, HookCall, Rewrite
from endstop.run.plans import Ask
from endstop.run.questions import Question
from endstop.run.remembering import Remember, Rule
from endstop.run.results import BatchResult, CallResult, CallView, CancelReport
from endstop.run.runtime import Runtime
from endstop.tools.context import AsyncContext, Context, current
from endstop.tools.reconcile import LostCall, Reconciled
from endstop.tools.resources import shared
from endstop.tools.tool import Tool, tool, tool_from_schema
from endstop.work.loops import WorkerLoops

if TYPE_CHECKING:
    from endstop.adapters.mcp import McpError as McpError
    from endstop.adapters.mcp import McpServer as McpServer
    from endstop.adapters.mcp import McpTerms as McpTerms
    from endstop.adapters.mcp import McpToolError as McpToolError
    from endstop.agents import (
        AsyncAgent,
        DeferredAgent,
        DelegationFailed,
        DroppedHandles,
        Ended,
        Handle,
        HandleCancelled,
        LocalAgent,
        Loop,
        LoopLimits,
        LoopResult,
        ModelAgent,
        RemoteAgent,
        agent_tool,
        close_turn,
        delegate,
        delegate_all,
    )
    from endstop.agents.models import (
        Anthropic,
        HttpLimits,
        Model,
        ModelError,
        OpenAICompatible,
        OpenAIResponses,
        Prices,
        Say,
        Scripted,
        Usage,
    )

__version__ = "0.1.0"

__all__ = [
    "Anthropic",
    "Approve",
    "Ask",
    "AsyncAgent",
    "AsyncContext",
    "Backoff",
    "BatchResult",
    "Block",
    "BlockingRun",
    "BlockingRuntime",
    "CallResult",
    "CallView",
    "CallerError",
    "CancelReport",
    "Cancellation",
    "Config",
    "Context",
    "ContractError",
    "DeferredAgent",
    "DelegationFailed",
    "DroppedHandles",
    "Edit",
    "Effect",
    "EffectClass",
    "Ended",
    "EndstopError",
    "Flag",
    "Handle",
    "HandleCancelled",
    "HookCall",
    "HttpLimits",
    "InvalidArguments",
    "Isolation",
    "JournalError",
    "Limits",
    "LocalAgent",
    "Loop",
    "LoopLimits",
    "LoopResult",
    "LostCall",
    "Mode",
    "Model",
    "ModelAgent",
    "ModelError",
    "Money",
    "NotFound",
    "OpenAICompatible",
    "OpenAIResponses",
    "Outcome",
    "Pending",
    "Prices",
    "Question",
    "Reason",
    "Reconciled",
    "Reject",
    "Remember",
    "RemoteAgent",
    "Reply",
    "Respond",
    "Rewrite",
    "Rule",
    "Run",
    "RunSuspended",
    "Runtime",
    "Say",
    "Scripted",
    "StaleWriter",
    "Stopped",
    "StoppedBy",
    "Tool",
    "ToolCall",
    "Unanswered",
    "Usage",
    "WorkerLoops",
    "agent_tool",
    "close_turn",
    "current",
    "delegate",
    "delegate_all",
    "read_reply",
    "shared",
    "tool",
    "tool_from_schema",
]


# Not in `__all__`: importing everything must work where the extra is not installed.
_MCP = frozenset({"McpError", "McpServer", "McpTerms", "McpToolError"})

_MODELS = frozenset(
    {
        "Anthropic",
        "HttpLimits",
        "Model",
        "ModelError",
        "OpenAICompatible",
        "OpenAIResponses",
        "Prices",
        "Say",
        "Scripted",
        "Usage",
    }
)


def __getattr__(name: str) -> Any:
    """What not every program needs (models, sub-agents, MCP) is imported when first asked for."""
    if name in _MCP:
        from endstop.adapters import mcp

        return getattr(mcp, name)
    if name in _MODELS:
        from endstop.agents import models

        return getattr(models, name)
    if name in __all__:
        from endstop import agents

        return getattr(agents, name)
    raise AttributeError(f"module 'endstop' has no attribute {name!r}")
