"""A paid call: one effect key, a commit point, a price, and a budget for the run."""

import asyncio
from decimal import Decimal

from endstop import AsyncContext, Limits, Money, Runtime, ToolCall, tool

CHARGES: dict[str, str] = {}
"""Stands for the provider: what it was asked to do, by idempotency key."""


@tool(effect="once", cost="0.04 USD", commits=True, resources=[])
async def paint(prompt: str, ctx: AsyncContext) -> str:
    """Paint a picture."""
    await ctx.sleep(0.2 if prompt == "a cat" else 60)  # work that costs nothing yet
    async with ctx.commit():  # asks the gate once more; a stop waits until the block is left
        CHARGES[ctx.effect_key] = prompt
        ctx.spend("0.04", "USD")
    return f"{prompt}.png"


async def main() -> None:
    limits = Limits(money=(Money(amount=Decimal("0.10"), currency="USD"),))
    prompts = ["a cat", "a dog", "a cow"]
    calls = [ToolCall(model_id="", tool="paint", arguments={"prompt": one}) for one in prompts]
    async with Runtime([paint]) as runtime, runtime.run("album", limits=limits) as run:
        asyncio.get_running_loop().call_later(1.0, run.cancel)
        for result in await run.execute(calls):
            print(result.arguments["prompt"], result.outcome, result.reason, result.effect)
            print("   ", result.text.splitlines()[0])
    print("charged:", CHARGES)


if __name__ == "__main__":
    asyncio.run(main())
