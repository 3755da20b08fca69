import asyncio

from endstop import AsyncContext, Runtime, read_reply, tool


@tool(effect="read_only")
async def weather(city: str) -> str:
    return f"{city}: 21 degrees"


@tool
async def book(city: str, ctx: AsyncContext) -> str:
    await ctx.sleep(60)
    return f"a room in {city}"


REPLY = {
    "role": "assistant",
    "content": [
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "b", "name": "book", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "c", "name": "book", "input": {"city": "Rome"}},
    ],
}


async def main() -> None:
    reply = read_reply(REPLY)
    async with Runtime([weather, book]) as runtime, runtime.run() as run:
        asyncio.get_running_loop().call_later(0.5, run.cancel)
        results = await run.execute(reply.calls)
    for result in results:
        print(result.tool, result.outcome, result.effect)
    [answer] = reply.answer(results.observations)
    for block in answer["content"]:
        print(block["tool_use_id"], block["content"])


asyncio.run(main())
