import asyncio

from endstop import AsyncContext, Run, Runtime, read_reply, tool

begun = asyncio.Event()


@tool
async def book(city: str, minutes: float, ctx: AsyncContext) -> str:
    if minutes:
        begun.set()
    await ctx.sleep(60 * minutes)
    return f"a room in {city}"


async def press_stop(run: Run) -> None:
    await begun.wait()
    await run.cancel()


wishes = [{"city": c, "minutes": m} for c, m in [("Oslo", 0), ("Rome", 1), ("Bonn", 0)]]
content = [{"type": "tool_use", "id": w["city"], "name": "book", "input": w} for w in wishes]
reply = read_reply({"role": "assistant", "content": content})


async def main() -> None:
    async with Runtime([book]) as runtime, runtime.run() as run:
        results, _ = await asyncio.gather(run.execute(reply.calls), press_stop(run))
    for result in results:
        print(f"{result.model_id}: {result.outcome}, effect {result.effect}")
        print(f"  {result.text}")
    messages = reply.answer(results.observations)  # what to send to the model
    print(f"{len(messages)} message with {len(messages[0]['content'])} results")


asyncio.run(main())
