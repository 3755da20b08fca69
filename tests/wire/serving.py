"""The server process of these tests: `python -m tests.wire.serving HANDLER STORE`.

HANDLER is `stock` (the SDK's default handler) or `endstop` (ours); STORE is `memory`, or the path
of a SQLite file. `stock` also takes `cluster:PATH`. Both get the same executor, the same card and
all three bindings, 1.0 and 0.3, on loopback ports that the system picks; one line of JSON on
standard output says which, once they answer.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler, RequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

from tests.wire.executors import Agent

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
VERSIONS = ("1.0", "0.3")
GRACE_S = 0.3
"""How long a body is asked to stop before it is let go: shorter than what the bad ones do."""


def card_of(url: str, grpc: str) -> AgentCard:
    """The card of the agent, with every way to reach it."""
    where = {"JSONRPC": f"{url}/", "HTTP+JSON": url, "GRPC": grpc}
    return AgentCard(
        name="wire",
        description="Does what the message says.",
        version="1",
        supported_interfaces=[
            AgentInterface(protocol_binding=b, protocol_version=v, url=where[b])
            for v in VERSIONS
            for b in BINDINGS
        ],
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=True
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="Does it.", tags=["test"])],
    )


def extended(card: AgentCard) -> AgentCard:
    more = AgentCard()
    more.CopyFrom(card)
    more.description = "Does what the message says, for those it knows."
    return more


async def stock_handler(store: str, card: AgentCard) -> DefaultRequestHandler:
    """The SDK's own handler, set up as its documentation shows."""
    more: dict[str, Any] = {}
    kind, _, path = store.rpartition(":")
    if store == "memory":
        more["task_store"] = InMemoryTaskStore()
    else:
        from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
        from a2a.server.tasks import DatabaseTaskStore
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        if kind == "cluster":
            more["event_stream"] = DatabaseTaskEventStream(engine)
            more["task_store"] = VersionedDatabaseTaskStore(engine)
            await more["event_stream"].initialize()
        else:
            more["task_store"] = DatabaseTaskStore(engine)
        await more["task_store"].initialize()
    configs = InMemoryPushNotificationConfigStore()
    return DefaultRequestHandler(
        agent_executor=Agent(),
        agent_card=card,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(timeout=5), configs),
        extended_agent_card=extended(card),
        **more,
    )


@asynccontextmanager
async def handler_of(kind: str, store: str, card: AgentCard) -> AsyncIterator[RequestHandler]:
    """The handler, closed at the end."""
    if kind == "stock":
        stock = await stock_handler(store, card)
        try:
            yield stock
        finally:
            await stock.aclose()
        return
    from endstop.a2a import EndstopRequestHandler
    from endstop.a2a.push import Pusher

    async with EndstopRequestHandler(
        agent_executor=Agent(),
        agent_card=card,
        extended_agent_card=extended(card),
        journal=None if store == "memory" else store,
        grace_s=GRACE_S,
        # The webhooks of these tests are on this machine.
        make_pusher=functools.partial(Pusher, allow_private=True),
    ) as ours:
        yield ours


def routes_of(handler: RequestHandler, card: AgentCard) -> list[Any]:
    return [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
        *create_rest_routes(handler, enable_v0_3_compat=True),
    ]


async def serve_grpc(handler: RequestHandler, server: Any) -> None:
    from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
    from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
    from a2a.server.request_handlers import GrpcHandler
    from a2a.types import a2a_pb2_grpc

    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
    await server.start()


async def serve(kind: str, store: str) -> None:
    import grpc.aio

    # Named as TCP, so that asyncio turns off the delay of small packets on what it accepts.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    rpc = grpc.aio.server()
    address = f"127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}"
    card = card_of(url, address)
    async with handler_of(kind, store, card) as handler:
        await serve_grpc(handler, rpc)
        app = Starlette(routes=routes_of(handler, card))
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        print(json.dumps({"url": url, "grpc": address, "pid": os.getpid()}), flush=True)
        try:
            await server.serve(sockets=[listening])
        finally:
            await rpc.stop(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("handler", choices=("stock", "endstop"))
    parser.add_argument("store")
    asked = parser.parse_args()
    try:
        asyncio.run(serve(asked.handler, asked.store))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
