"""An agent that is served over A2A, and a task of it that is stopped.

`endstop serve examples/serve_agent.py` serves it; run as a program, it serves itself and asks.
"""

import asyncio

from a2a.client import ClientConfig, create_client
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    CancelTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)

from endstop import Runtime
from endstop.a2a import EndstopRequestHandler
from endstop.server import Serving, card_for

pages = []


class Writer(AgentExecutor):
    """Writes a book, a page at a time."""

    async def execute(self, context, event_queue):
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        for number in range(int(context.get_user_input())):
            await asyncio.sleep(0.1)
            pages.append(number)
            await updater.add_artifact([Part(text=f"page {number}")], artifact_id=f"p{number}")
        await updater.complete()

    async def cancel(self, context, event_queue):
        raise NotImplementedError  # Most executors say so. It changes nothing here.


agent = Writer()
agent_card = card_for("Writer", "Writes books, page by page.")


def message(text):
    parts = [Part(text=text)]
    return SendMessageRequest(
        message=Message(role=Role.ROLE_USER, message_id=f"say {text}", parts=parts)
    )


async def main():
    runtime = Runtime(bodies="own-loop")
    handler = EndstopRequestHandler(agent, agent_card=agent_card, runtime=runtime)
    async with Serving(handler, agent_card, runtime=runtime) as serving:
        client = await create_client(serving.url, ClientConfig(streaming=True))
        async for event in client.send_message(message("2")):
            if event.HasField("artifact_update"):
                print(event.artifact_update.artifact.parts[0].text)
            elif event.HasField("status_update"):
                print(TaskState.Name(event.status_update.status.state))
        async for event in client.send_message(message("1000")):
            if event.HasField("task"):
                task = event.task.id
            if event.HasField("artifact_update"):
                break  # The reader leaves: the task goes on.
        stopped = await client.cancel_task(CancelTaskRequest(id=task))
        print(TaskState.Name(stopped.status.state))
        print(stopped.status.message.parts[0].text)
        written = len(pages)
        await asyncio.sleep(0.5)
        print("written after the answer:", len(pages) - written)
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
