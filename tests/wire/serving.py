"""The stock server of these tests: `python -m tests.wire.serving STORE`.

The SDK's default handler over `memory`, the path of a SQLite file, or `cluster:PATH`, with the
agent and the cards that ours gets, and all three bindings, 1.0 and 0.3, on loopback ports that the
system picks. One line of JSON on standard output says which, once they answer; it is the line that
`endstop serve --json` writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
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
from a2a.types import AgentCard, AgentInterface
from starlette.applications import Starlette

from tests.wire.cards import BINDINGS, VERSIONS, card, extended
from tests.wire.executors import Agent


def card_of(url: str, grpc: str) -> AgentCard:
    """The card of the agent, with every way to reach it."""
    where = {"JSONRPC": f"{url}/", "HTTP+JSON": url, "GRPC": grpc}
    made = card()
    made.supported_interfaces.extend(
        AgentInterface(protocol_binding=binding, protocol_version=version, url=where[binding])
        for version in VERSIONS
        for binding in BINDINGS
    )
    return made


async def handler_of(store: str, card: AgentCard) -> DefaultRequestHandler:
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


async def serve(store: str) -> None:
    import grpc.aio

    # Named as TCP, so that asyncio turns off the delay of small packets on what it accepts.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    rpc = grpc.aio.server()
    address = f"127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}"
    mine = card_of(url, address)
    handler = await handler_of(store, mine)
    await serve_grpc(handler, rpc)
    app = Starlette(routes=routes_of(handler, mine))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2))
    print(json.dumps({"url": url, "grpc": address, "pid": os.getpid()}), flush=True)
    try:
        await server.serve(sockets=[listening])
    finally:
        await rpc.stop(0.2)
        await handler.aclose()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    asked = parser.parse_args()
    try:
        asyncio.run(serve(asked.store))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
