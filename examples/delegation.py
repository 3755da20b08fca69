"""Sub-agents: handles and groups, one offered to the model, one that is dropped, one that stops."""

import asyncio

from endstop import (
    AsyncAgent,
    DeferredAgent,
    DelegationFailed,
    DroppedHandles,
    HandleCancelled,
    LocalAgent,
    Runtime,
    ToolCall,
    agent_tool,
    close_turn,
    delegate,
    delegate_all,
)


async def write(task):
    if "lawsuit" in task.prompt:
        raise PermissionError("not without a lawyer")
    return f"a text on {task.prompt}"


class Elsewhere:
    """Stands for a service: it takes a job, is asked how far it is, and can be told to stop."""

    def __init__(self):
        self.asked = {}
        self.stopped = set()

    async def submit(self, task):
        self.asked[task.effect_key] = 0
        return task.effect_key

    async def status(self, job):
        self.asked[job] += 1
        if job in self.stopped:
            return "cancelled"
        return "succeeded" if self.asked[job] == 3 else "running"

    async def fetch(self, job):
        return f"figures for {job}"

    async def cancel(self, job):
        self.stopped.add(job)


async def edit(task, run):
    drafts = await delegate_all([(writer, f"{task.prompt}, {part}") for part in ("one", "two")])
    return " and ".join(drafts)


async def wait_long(task):
    await asyncio.sleep(60)


place = Elsewhere()
writer = DeferredAgent(name="writer", submit=write)
analyst = AsyncAgent(
    name="analyst",
    submit=place.submit,
    status=place.status,
    fetch=place.fetch,
    cancel=place.cancel,
)
editor = LocalAgent(name="editor", fn=edit)
sleeper = DeferredAgent(name="sleeper", submit=wait_long)


async def main():
    offered = agent_tool(writer, description="Writes a text.")
    async with Runtime([offered]) as runtime, runtime.run("demo") as run:
        first = delegate(writer, "bees", run=run)
        print(first.id, first.sent, "->", await first, first.sent)
        print(await delegate_all([(analyst, "sales"), (editor, "honey")], run=run))

        try:
            await delegate(writer, "a lawsuit", run=run)
        except DelegationFailed as failed:
            print("failed:", failed.answer.error)

        asked = ToolCall(model_id="m1", tool="writer", arguments={"prompt": "a lawsuit"})
        [answer] = await run.execute([asked])
        print("the model reads:", answer.text.splitlines()[0])

        handle = delegate(sleeper, "sleep", run=run)
        handle.send()
        asyncio.get_running_loop().call_later(0.1, handle.cancel)
        try:
            await handle
        except HandleCancelled as cancelled:
            print("cancelled:", cancelled.handle_id, cancelled.proof)

        forgotten = delegate(writer, "wasps", run=run)
        try:
            await close_turn(run)
        except DroppedHandles as dropped:
            print("dropped:", dropped.handle_ids, forgotten.answer.outcome)


asyncio.run(main())
