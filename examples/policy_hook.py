"""Hooks: one that blocks, one that rewrites, one that does not answer in time."""

import asyncio

from endstop import Block, CallResult, Config, HookCall, Rewrite, Runtime, ToolCall, tool


@tool(resources=["file:{path}"])
async def write(path: str, text: str) -> str:
    """Write a file (here: only say so)."""
    return f"{len(text)} characters into {path}"


async def policy(call: HookCall) -> Block | Rewrite | None:
    """Decides before anything starts. What it raises, or no answer in time, is a refusal."""
    path = call.arguments["path"]
    if path.startswith("/etc/"):
        return Block("files below /etc are not written")
    if path == "slow.txt":
        await asyncio.sleep(60)
    if "secret" in call.arguments["text"]:
        return Rewrite({**call.arguments, "text": "[removed]"})
    return None


async def audit(result: CallResult) -> None:
    """Sees what is recorded already; it can change nothing."""
    print("audit:", result.arguments, result.outcome)


async def main() -> None:
    files = {"a.txt": "hello", "/etc/passwd": "x", "b.txt": "a secret", "slow.txt": "x"}
    calls = [
        ToolCall(model_id="", tool="write", arguments={"path": path, "text": text})
        for path, text in files.items()
    ]
    config = Config.load(timeouts={"hooks": 1})
    async with Runtime([write], config=config, before=[policy], after=[audit]) as runtime:
        results = await runtime.execute(calls)
    for result in results:
        print(result.outcome, result.reason)


if __name__ == "__main__":
    asyncio.run(main())
