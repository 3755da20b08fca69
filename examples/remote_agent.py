"""Remote agents: an answer, a question that a human here answers, and a stop that is confirmed."""

import asyncio

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types import Part

from endstop import DelegationFailed, HandleCancelled, RemoteAgent, Runtime, delegate
from endstop.a2a import EndstopRequestHandler
from endstop.server import Serving, card_for

asked = set()


class Printer(AgentExecutor):
    """Stands for an agent that somebody else runs."""

    async def execute(self, context, event_queue):
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        text = context.get_user_input()
        if "poster" in text:
            asked.add(context.task_id)
            await updater.requires_input(updater.new_agent_message([Part(text="Which size?")]))
        elif "banknote" in text:
            await updater.reject(updater.new_agent_message([Part(text="that is not allowed")]))
        else:
            await updater.start_work()
            await asyncio.sleep(60 if "thousand" in text else 0)
            what = f"a poster of size {text}" if context.task_id in asked else text
            await updater.add_artifact([Part(text=f"printed {what}")], name="receipt")
            await updater.complete()

    async def cancel(self, context, event_queue):
        raise NotImplementedError


async def main():
    # Elsewhere: the agent, served over A2A.
    card = card_for("Printer", "Prints what it is given.")
    theirs = Runtime(bodies="own-loop")
    handler = EndstopRequestHandler(Printer(), agent_card=card, runtime=theirs)
    async with Serving(handler, card, runtime=theirs) as serving:
        # Here: all that is known of it is where it is.
        printer = RemoteAgent(serving.url, name="printer")
        async with Runtime() as runtime, runtime.run() as run:
            answer = await delegate(printer, "a page", run=run)
            print(answer["text"])

            runtime.answer_with(lambda question: print("asked:", question.text) or "A2")
            answer = await delegate(printer, "a poster", run=run)
            print(answer["text"])

            try:
                await delegate(printer, "a banknote", run=run)
            except DelegationFailed as failed:
                print(failed.answer.outcome, "effect", failed.answer.effect)

            handle = delegate(printer, "a thousand pages", run=run)
            await handle.wait(1.0)
            handle.cancel()
            try:
                await handle
            except HandleCancelled as cancelled:
                print(handle.answer.outcome, "at the agent:", cancelled.proof)


if __name__ == "__main__":
    asyncio.run(main())
