"""A program that drives an agent and stays in one phase until it is killed; see `test_killed.py`.

What really happened is told by a file to which bodies and model append, one line at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys

from endstop import AsyncContext, Runtime, tool
from endstop.agents import Loop, ModelAgent
from endstop.agents.models import Ask, Say, Scripted
from endstop.core import events as e

PHASES = ("first reply", "batch", "steered", "approval", "second reply", "last reply")
LOG = "LOOP_LOG"
STAY_S = 120.0

held = asyncio.Event()


def note(word: str) -> None:
    """Append one line to the log."""
    file = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{word}\n".encode())
    finally:
        os.close(file)


@tool
async def pay(name: str) -> str:
    note(f"pay {name}")
    return f"paid {name}"


@tool
async def hold(ctx: AsyncContext) -> str:
    note("hold")
    held.set()
    await ctx.sleep(STAY_S)
    return "held"


@tool(approval="always")
async def ask_first(name: str) -> str:
    note(f"ask {name}")
    return f"asked {name}"


def make(phase: str) -> ModelAgent:
    """An agent that comes to a phase and stays there; one that comes to its end for no phase."""

    def answer(ask: Ask) -> Say:
        turn = sum(message["role"] == "assistant" for message in ask.messages)
        stay = ("first reply", "second reply", "last reply")[turn] == phase
        note(f"asked {turn + 1}")
        delay_s = STAY_S if stay else 0.0
        if turn == 0:
            calls: list[tuple[str, dict[str, str]]] = [("pay", {"name": "1"})]
            if phase in ("batch", "steered"):
                calls += [("hold", {}), ("pay", {"name": "2"})]
            if phase == "approval":
                calls.append(("ask_first", {"name": "1"}))
            return Say(text="first", calls=calls, delay_s=delay_s)
        if turn == 1:
            return Say(text="second", calls=[("pay", {"name": "3"})], delay_s=delay_s)
        return Say(text="last", delay_s=delay_s)

    tools = [pay, hold, ask_first]
    return ModelAgent(name="a", model=Scripted(answer), tools=tools, parallel=1)


async def main(phase: str, journal: str) -> None:
    """Drive it until somebody kills this program."""

    seen: set[type] = set()

    def watch(event: e.Event) -> None:
        if isinstance(event, e.ApprovalAsked | e.CallSettled) and type(event) not in seen:
            seen.add(type(event))
            if len(seen) == 2:
                note("approval asked, and the call before it is over")
        if isinstance(event, e.Noted) and event.body.get("text") == "faster":
            note("steered")

    async with Runtime(journal=f"sqlite:{journal}") as runtime:
        runtime.observe(watch)
        agent = make(phase)
        loop = Loop(runtime, runtime.run("r"), agent)
        loop.say("go")
        going = asyncio.create_task(loop.drive(close=True))
        if phase == "steered":
            await held.wait()
            loop.steer("faster")
        await going


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
