"""A paid call: one effect key, a commit point, a price, and a budget for the run."""

import asyncio
from decimal import Decimal

from endstop import AsyncContext, Limits, Money, Run, Runtime, ToolCall, tool

CHARGES: dict[str, str] = {}
"""Stands for the provider: what it was asked to do, by idempotency key."""

at_work = asyncio.Event()


@tool(effect="once", cost="0.04 USD", commits=True, resources=[])
async def paint(prompt: str, ctx: AsyncContext) -> str:
    """Paint a picture."""
    if prompt == "a dog":
        at_work.set()
        await ctx.sleep(60)  # work that costs nothing yet
    async with ctx.commit():  # asks the gate once more; a stop waits until the block is left
        CHARGES[ctx.effect_key] = prompt
        ctx.spend("0.04", "USD")
    return f"{prompt}.png"


async def press_stop(run: Run) -> None:
    await at_work.wait()
    await run.cancel()


async def main() -> None:
    limits = Limits(money=(Money(amount=Decimal("0.10"), currency="USD"),))
    prompts = ["a cat", "a dog", "a cow"]
    calls = [ToolCall(model_id="", tool="paint", arguments={"prompt": one}) for one in prompts]
    async with Runtime([paint]) as runtime, runtime.run("album", limits=limits) as run:
        results, _ = await asyncio.gather(run.execute(calls), press_stop(run))
        for result in results:
            print(result.arguments["prompt"], result.outcome, result.reason, result.effect)
            print("   ", result.text.splitlines()[0])
    print("charged:", CHARGES)


if __name__ == "__main__":
    asyncio.run(main())
