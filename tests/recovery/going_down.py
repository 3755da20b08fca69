"""A program that goes down in mid-batch when it is told to, and leaves the rest for another one.

What really happened is told by a file to which the bodies append, one line at a time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from endstop import Config, Context, RunSuspended, Runtime, ToolCall, tool


def tell(log: str, line: str) -> None:
    """One write is one line, whoever else writes."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


@tool(isolation="process", resources=["file:/steps"], retries=3, effect="idempotent")
def step(ctx: Context, log: str, n: int, hangs: bool) -> int:
    """One step; the one that hangs starts a process that would go on without it."""
    tell(log, f"begun {n} {ctx.effect_key}")
    if hangs:
        ticking = "import sys, time\nwhile True: open(sys.argv[1], 'a').write('t'); time.sleep(.02)"
        subprocess.Popen([sys.executable, "-c", ticking, f"{log}.ticks"])
        while True:
            time.sleep(1)
    return n


async def main(journal: str, log: str) -> None:
    """Run four steps, of which the second hangs, until SIGTERM comes."""
    config = Config.load(directory="/", environ={}, grace_s=0.3, kill_s=2.0)
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    rt = Runtime([step], journal=journal, config=config)
    run = rt.run("r")
    calls = [
        ToolCall(model_id=str(n), tool="step", arguments={"log": log, "n": n, "hangs": n == 1})
        for n in range(4)
    ]
    going = asyncio.create_task(run.execute(calls))
    await told.wait()
    await rt.close(suspend=True)
    try:
        await going
    except RunSuspended:
        print("let go", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
