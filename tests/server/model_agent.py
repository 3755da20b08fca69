"""An agent that is a model with tools, for the servers of these tests. Its model is scripted."""

from __future__ import annotations

import asyncio
from typing import Any

from endstop import AsyncContext, ModelAgent, tool
from endstop.agents.models import Ask, Say, Scripted
from tests.server.agent import tick


@tool(effect="read_only", resources=[])
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} is 42"


@tool(approval="always", resources=[])
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool(resources=[])
async def choose(ctx: AsyncContext) -> str:
    """Ask which."""
    return await ctx.ask("which one?")


@tool(resources=[])
async def work() -> None:
    """Work for ever."""
    while True:
        tick("model")
        await asyncio.sleep(0.02)


def talk(ask: Ask) -> Any:
    """What the model says, by what the user said first."""
    said, last = ask.messages[0]["content"], ask.messages[-1]
    if last["role"] != "user":
        return Say(text=f"So {last['content']} then.", delay_s=0.1)
    match said:
        case "look":
            return Say(text="Let me see.", calls=[("look", {"what": "it"})])
        case "delete":
            return Say(calls=[("delete", {"path": "a.txt"})])
        case "choose":
            return Say(calls=[("choose", {})])
        case "work":
            return Say(calls=[("work", {})])
        case _:
            raise RuntimeError("the model is broken")


agent = ModelAgent(
    name="Finder",
    description="Finds things.",
    model=Scripted(talk),
    tools=[look, delete, choose, work],
)
