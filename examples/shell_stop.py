"""Stop a command with everything that it started: a child, and a daemon that left its session."""

import asyncio
import sys

from endstop import Config, Runtime, ToolCall
from endstop.core.events import CallProgressed
from endstop.work.shell import shell

# The child ignores SIGTERM. The daemon is in a session of its own.
COMMAND = """
(trap '' TERM; while :; do sleep 300; done) &
setsid sleep 300 &
echo $! $(jobs -p)
wait
"""


async def main() -> None:
    loop = asyncio.get_running_loop()
    printed = asyncio.Event()

    def watch(event: object) -> None:
        if isinstance(event, CallProgressed):
            loop.call_soon_threadsafe(printed.set)

    config = Config.load(grace_s=1)
    async with (
        Runtime([shell], config=config, observers=[watch]) as runtime,
        runtime.run() as run,
    ):
        call = ToolCall(model_id="", tool="shell", arguments={"command": COMMAND})
        batch = asyncio.create_task(run.execute([call]))
        await printed.wait()
        report = await run.cancel()
        await batch
    [result] = report.ended
    print(result.outcome, result.reason, "stopped by", result.stopped_by)
    print("survivors:", list(result.survivors))
    pids = result.output["output"].split()
    print("started:", len(pids), "still there:", sum(exists(pid) for pid in pids))


def exists(pid: str) -> bool:
    if sys.platform != "linux":
        import psutil

        return bool(psutil.pid_exists(int(pid)))
    from pathlib import Path

    return Path(f"/proc/{pid}").exists()


if __name__ == "__main__":
    asyncio.run(main())
