"""The servers that many of these tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from endstop.server import build_app, card_for
from tests.server.house import ALICE, BOB, Served
from tests.server.pair import TOKEN, Echo, Pair


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two owners and every binding."""
    folder = tmp_path_factory.mktemp("served")
    server = Served(
        folder, "--grpc-port", "0", "--grace", "0.3", ENDSTOP_TOKEN=f"alice={ALICE} bob={BOB}"
    )
    yield server
    server.end()


@pytest.fixture(scope="package")
def pair() -> Iterator[Pair]:
    """An app that answers as it is, and as the SDK would."""
    handler = Echo()
    app = build_app(handler, card_for("App", "Of the tests."), token=TOKEN)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x")
    with asyncio.Runner() as runner:
        yield Pair(runner.get_loop(), handler, client)
        runner.run(client.aclose())
