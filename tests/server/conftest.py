"""The server that most of these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.house import ALICE, BOB, Served


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two owners and every binding."""
    folder = tmp_path_factory.mktemp("served")
    server = Served(
        folder, "--grpc-port", "0", "--grace", "0.3", ENDSTOP_TOKEN=f"alice={ALICE} bob={BOB}"
    )
    yield server
    server.end()
