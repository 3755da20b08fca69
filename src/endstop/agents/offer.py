"""Offering an agent: as a tool to the model, and as the hidden tool of delegated calls.

Both are calls in the core, with everything that a call has: policy hooks, approval, budget,
deadline, the stop ladder, one ending. Model-driven, whatever fails in submit, status, fetch or
normalising is therefore a failed observation, and the handle, which is the call, is closed by the
supervisor (law 17 children-settle).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from endstop.agents.agent import Agent, Task, check_agent, is_async
from endstop.agents.steps import converse
from endstop.run.base import BaseRuntime
from endstop.tools.context import AsyncContext
from endstop.tools.tool import Tool, tool_from_schema

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What the agent is to do, in full sentences."}
    },
    "required": ["prompt"],
    "additionalProperties": False,
}

_KEPT = "_endstop_tool"


def agent_tool(
    agent: Agent, *, name: str | None = None, description: str | None = None, **contract: Any
) -> Tool:
    """Offer an agent to the model as a tool that takes a prompt.

    `contract` is what `@tool` takes and goes over the agent's own. The tool's name is the agent's
    unless given; it does not collide with the calls that `delegate` makes. Raises CallerError for
    what is no agent, ContractError for a contract that contradicts itself.
    """
    check_agent(agent)
    text = description if description is not None else getattr(agent, "description", "")
    return _tool(agent, name if name is not None else agent.name, text, contract)


def hidden_tool(agent: Agent) -> Tool:
    """The tool of the calls that are delegated to an agent; no model is offered it."""
    found = getattr(agent, _KEPT, None)
    if isinstance(found, Tool):
        return found
    made = _tool(agent, f"agent:{agent.name}", "", {})
    # With the agent, not in a table here: the tool holds the agent, and both shall go together.
    with suppress(AttributeError, TypeError):
        object.__setattr__(agent, _KEPT, made)
    return made


def recognise(runtime: BaseRuntime, *agents: Agent) -> None:
    """Know these agents by name, so that `resume` can go on with what was delegated to them.

    Without it a call that had begun is lost, as one of a tool that is gone; one that had not is
    refused. Raises CallerError for two agents of one name.
    """
    for agent in agents:
        check_agent(agent)
        runtime.planner.recognise(hidden_tool(agent))


def _tool(agent: Agent, name: str, description: str, contract: dict[str, Any]) -> Tool:
    async def body(prompt: str, ctx: AsyncContext) -> Any:
        return await converse(agent, Task(prompt, ctx))

    terms: dict[str, Any] = {"isolation": "remote", "resources": ()}
    terms |= getattr(agent, "contract", {})
    terms |= contract
    made = tool_from_schema(name, PARAMETERS, body, description, context_param="ctx", **terms)
    if not is_async(agent):
        return made
    # It works elsewhere: whoever has its reference can go on with the same task.
    return replace(made, declared=replace(made.declared, reattaches=True))
