"""Budgets: money and counts for a run, what it started draws on them too, and the books."""

import asyncio
import subprocess
import sys
from decimal import Decimal

from endstop import AsyncContext, Limits, Money, Runtime, ToolCall, current, tool

JOURNAL = "sqlite:budgets.db"


def price(arguments: dict) -> str:
    """What it costs at most, known before the start."""
    return f"{len(arguments['text']) * Decimal('0.01')} USD"


@tool(cost=price, resources=[])
async def translate(text: str, ctx: AsyncContext) -> str:
    ctx.spend("0.03", "USD")  # what the provider really charged
    return text.upper()


@tool(cost="0.10 USD", resources=[])
async def draw(what: str) -> str:
    if what == "nothing":
        raise ValueError("nothing cannot be drawn")
    return f"{what}.png"


@tool(effect="read_only", resources=[])
async def search(query: str) -> str:
    return f"found {query}"


@tool(resources=[])
async def illustrate(pages: int) -> list[str]:
    """Works for its caller: what its own calls spend, its caller spends."""
    at_most = Limits(money=(usd("0.15"),))
    async with runtime.run(parent=current().call_id, limits=at_most) as below:
        results = await below.execute([call("draw", what=f"page {n}") for n in range(pages)])
    return [result.text for result in results]


def usd(amount: str) -> Money:
    return Money(amount=Decimal(amount), currency="USD")


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(model_id="", tool=name, arguments=arguments)


async def main() -> None:
    global runtime
    limits = Limits(money=(usd("0.40"),), calls=20, tool_calls=(("search", 2),))
    calls = [
        call("translate", text="good morning"),
        call("illustrate", pages=2),
        call("draw", what="nothing"),
        *[call("search", query=query) for query in ("bees", "wasps", "ants")],
        call("translate", text="a long letter to a friend"),
    ]
    async with (
        Runtime([translate, draw, search, illustrate], journal=JOURNAL) as runtime,
        runtime.run("day", limits=limits) as run,
    ):
        for result in await run.execute(calls, parallel=1):
            print(f"{result.tool}: {result.text}")


def show_books() -> None:
    """What `endstop budget day --journal budgets.db` prints."""
    command = [sys.executable, "-m", "endstop.cli.main", "budget", "day", "--journal", "budgets.db"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print("\n".join(line.rstrip() for line in shown.splitlines()))


if __name__ == "__main__":
    asyncio.run(main())
    show_books()
