"""The servers of the serving benchmark: the same executor behind our server and the SDK's own.

`python -m benchmarks.served KIND STORE` serves one on a loopback port of its own choosing and says
which on its first line. A KIND is `endstop`, which is what `endstop serve` runs; `stock`, the SDK's
default handler behind the SDK's routes; or `swapped`, our handler behind those routes. Each answers
a line on its standard input with what it holds: its resident memory, and the number of its asyncio
tasks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import RequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette

PAGE = 4096
_kept: list[Any] = []
"""What serves, for as long as the process lives."""


class Nothing(AgentExecutor):
    """Says that it works and that it is done; a message that says `wait` is waited with for ever.

    The stock handler wants to be handed the task first; ours does not mind.
    """

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Two events, and nothing done."""
        task_id, context_id = context.task_id or "", context.context_id or ""
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                Task(id=task_id, context_id=context_id, status=status, history=[context.message])
            )
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        if "wait" in context.get_user_input():
            await asyncio.Event().wait()
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """What most executors do."""
        raise NotImplementedError


def card() -> AgentCard:
    """The least of a card."""
    return AgentCard(
        name="bench",
        description="does nothing",
        version="1",
        supported_interfaces=[
            AgentInterface(
                url="http://127.0.0.1/", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
        skills=[AgentSkill(id="nothing", name="nothing", description="nothing", tags=["bench"])],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )


async def stock(store: str) -> RequestHandler:
    """The SDK's default handler; on SQLite with a write-ahead log, which is its faster way."""
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import InMemoryTaskStore

    tasks: Any = InMemoryTaskStore()
    if store != "memory":
        from a2a.server.tasks import DatabaseTaskStore
        from sqlalchemy import event
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"sqlite+aiosqlite:///{store}")

        def faster(connection: Any, record: object) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")

        event.listen(engine.sync_engine, "connect", faster)
        tasks = DatabaseTaskStore(engine)
        await tasks.initialize()
    return DefaultRequestHandler(agent_executor=Nothing(), task_store=tasks, agent_card=card())


def ours(store: str) -> RequestHandler:
    """Our handler, with everything on."""
    from endstop.a2a import EndstopRequestHandler

    journal = None if store == "memory" else f"sqlite:{store}"
    return EndstopRequestHandler(agent_executor=Nothing(), agent_card=card(), journal=journal)


def held() -> dict[str, int]:
    """What this process holds now."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return {"resident": resident, "tasks": len(asyncio.all_tasks())}


async def behind_routes(handler: RequestHandler) -> int:
    """Serve a handler as users of the SDK do; returns the port."""
    app = Starlette(routes=create_jsonrpc_routes(handler, rpc_url="/"))
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    _kept.append(asyncio.create_task(server.serve(sockets=[listening])))
    port: int = listening.getsockname()[1]
    return port


async def behind_ours(handler: RequestHandler) -> int:
    """Serve a handler as `endstop serve` does, without a token, as on a loopback address."""
    from endstop.server import Serving
    from endstop.server.collecting import collect_less

    serving = Serving(handler, card())
    await serving.start()
    _kept.append(serving)
    collect_less()
    return urlsplit(serving.url).port or 0


async def serve(kind: str, store: str) -> None:
    """Serve until standard input ends."""
    match kind:
        case "endstop":
            port = await behind_ours(ours(store))
        case "swapped":
            port = await behind_routes(ours(store))
        case _:
            port = await behind_routes(await stock(store))
    print(port, flush=True)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(json.dumps(held()), flush=True)


def main() -> None:
    """Serve what the command line names, on the loop that a server would use."""
    import uvloop

    kind, store = sys.argv[1:]
    uvloop.run(serve(kind, store))


if __name__ == "__main__":
    main()
