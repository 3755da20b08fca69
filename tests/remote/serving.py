"""The remote agent of these tests, in a process of its own: `python -m tests.remote.serving`.

With `stock` the SDK's default handler serves it, with `endstop` ours; the executor is the same. It
does what the first word of the prompt says, and writes what really happens to the file given.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, RequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse

from endstop import current

EVERY_S = 0.05


class Agent(AgentExecutor):
    """Does what it is told."""

    def __init__(self, file: Path) -> None:
        self.file = file
        # What each task waits for, by its id.
        self.waits: dict[str, str] = {}

    def note(self, word: str) -> None:
        with self.file.open("a", encoding="utf-8") as out:
            out.write(word + "\n")

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        prompt = context.get_user_input()
        what, _, rest = prompt.partition(" ")
        self.note(f"got {context.message.message_id} {prompt}")
        if what == "message" and context.current_task is None:
            reply = Message(message_id="m", role=Role.ROLE_AGENT, parts=[new_text_part(rest)])
            await event_queue.enqueue_event(reply)
            return
        up = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        if context.task_id in self.waits:
            what, rest = "echo", f"{self.waits.pop(context.task_id)} {prompt}"
        await up.start_work()
        await self.do(what, rest, up)

    async def do(self, what: str, rest: str, up: TaskUpdater) -> None:
        def say(text: str) -> Message:
            return up.new_agent_message([new_text_part(text)])

        match what:
            case "echo":
                await up.add_artifact([new_text_part(rest)], name="echo")
                await up.complete()
            case "work" | "stubborn":
                for number in range(int(rest)):
                    self.note("tick")
                    if number % 10 == 0:
                        await up.start_work(say(f"step {number}"))
                    await asyncio.sleep(EVERY_S)
                await up.add_artifact([new_text_part(f"did {rest}")], name="work")
                await up.complete()
            case "ask":
                self.waits[up.task_id] = "answered"
                await up.requires_input(say(rest or "which one?"))
            case "secret":
                code = await current().ask(rest, secret=True)  # type: ignore[misc]
                await up.add_artifact([new_text_part(f"{len(code)} characters")], name="secret")
                await up.complete()
            case "auth":
                self.waits[up.task_id] = "authorised"
                await up.requires_auth(say(rest))
            case "fail":
                await up.failed(say(rest) if rest else None)
            case "reject":
                await up.reject(say(rest))
            case "parts":
                await up.add_artifact(
                    [
                        new_text_part("one"),
                        Part(raw=b"\x00\xff", filename="f.bin", media_type="app/x"),
                        Part(url="https://example.com/x", filename="x"),
                        new_text_part("two"),
                    ],
                    name="parts",
                )
                await up.complete(say("ready"))
            case _:
                raise ValueError(f"what is {what}?")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.note("cancel")
        prompt = context.current_task.history[0].parts[0].text if context.current_task else ""
        if "stubborn" in prompt or not context.task_id or not context.context_id:
            raise RuntimeError("I do not stop")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card_of(url: str, streaming: bool) -> AgentCard:
    return AgentCard(
        name="remote",
        description="Does what it is told.",
        version="1",
        supported_interfaces=[
            AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url=f"{url}/"),
            AgentInterface(protocol_binding="HTTP+JSON", protocol_version="1.0", url=url),
        ],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="Does it.", tags=["test"])],
    )


class Guard:
    """Lets nobody in without the token, but for the card."""

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        guarded = scope["type"] == "http" and not scope["path"].startswith("/.well-known/")
        if guarded and Request(scope).headers.get("authorization") != f"Bearer {self.token}":
            await JSONResponse({"error": "who?"}, status_code=401)(scope, receive, send)
            return
        await self.app(scope, receive, send)


async def serve(asked: argparse.Namespace) -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", asked.port))
    listening.listen(64)
    card = card_of(asked.url or f"http://127.0.0.1:{listening.getsockname()[1]}", not asked.polling)
    agent = Agent(asked.file)
    async with AsyncExitStack() as stack:
        handler: RequestHandler
        if asked.kind == "stock":
            stock = DefaultRequestHandler(agent, InMemoryTaskStore(), card)
            stack.push_async_callback(stock.aclose)
            handler = stock
        else:
            from endstop.a2a import EndstopRequestHandler
            from endstop.a2a.push import Pusher

            card.capabilities.push_notifications = True
            ours = EndstopRequestHandler(
                agent,
                agent_card=card,
                journal=asked.journal,
                grace_s=0.3,
                # The webhooks of these tests are on this machine.
                make_pusher=functools.partial(Pusher, allow_private=True),
            )
            handler = await stack.enter_async_context(ours)
        routes = [
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/"),
            *create_rest_routes(handler),
        ]
        guard = [Middleware(Guard, token=asked.token)] if asked.token else []
        app = Starlette(routes=routes, middleware=guard)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
        await uvicorn.Server(config).serve(sockets=[listening])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("stock", "endstop"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--url")
    parser.add_argument("--journal")
    parser.add_argument("--token")
    parser.add_argument("--polling", action="store_true")
    try:
        asyncio.run(serve(parser.parse_args()))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
