"""Agents for the tests of the command line; what they say follows from what stands in their ask."""

from __future__ import annotations

import os
import time
from decimal import Decimal
from pathlib import Path

from endstop import AsyncContext, Money, tool
from endstop.agents import ModelAgent
from endstop.agents.models import Ask, ModelError, Say, Scripted, Usage

FOLDER = Path(os.environ.get("SAMPLE_FOLDER", "."))


def mark(word: str) -> None:
    """One line in a file that survives whoever wrote it."""
    with open(FOLDER / "marks", "a", encoding="utf-8") as file:
        file.write(word + "\n")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    mark(f"add {a} {b}")
    return a + b


@tool
async def wait(ctx: AsyncContext) -> str:
    """Wait for a long time."""
    mark("wait")
    await ctx.sleep(60)
    return "waited"


@tool(approval="always")
async def pay(amount: int) -> str:
    """Pay."""
    mark(f"pay {amount}")
    return f"paid {amount}"


def said(ask: Ask) -> list[str]:
    return [m["content"] or "" for m in ask.messages if m["role"] == "assistant"]


def adding(ask: Ask) -> Say:
    if not said(ask):
        calls = [("add", {"a": 1, "b": 2}), ("add", {"a": "x"})]
        price = Usage(input_tokens=3, cost=Money(amount=Decimal("0.02"), currency="USD"))
        return Say(text="let me add", calls=calls, usage=price)
    return Say(text="it is\n\x1b[31mthree")


def waiting(ask: Ask) -> Say:
    match len(said(ask)):
        case 0:
            return Say(text="first", calls=[("add", {"a": 1, "b": 1})])
        case 1:
            # Asked for once the first call is recorded as over.
            return Say(text="second", calls=[("wait", {})])
        case _:
            return Say(text="gone on with")


def paying(ask: Ask) -> Say:
    return Say(text="thank you") if said(ask) else Say(text="now", calls=[("pay", {"amount": 5})])


def thinking(ask: Ask) -> Say:
    mark("asked")
    return Say(text="a very long thought " * 1_000, delay_s=0.05)


def failing(ask: Ask) -> Say:
    raise ModelError("auth", "No key was given: set SAMPLE_KEY to one")


def blocking(ask: Ask) -> Say:
    mark("asked")
    time.sleep(120)
    return Say(text="at last")


TOOLS = [add, wait, pay]
AGENTS = {
    function.__name__: ModelAgent(name=function.__name__, model=Scripted(function), tools=TOOLS)
    for function in (adding, waiting, paying, thinking, failing, blocking)
}
globals().update(AGENTS)
agent = AGENTS["adding"]
