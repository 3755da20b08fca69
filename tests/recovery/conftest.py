"""Houses for the tests of recovery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.driving import KINDS, Street


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Both drivers."""
    name: str = request.param
    return name


@pytest.fixture
def street() -> Iterator[Street]:
    """Runtimes that are closed and checked after the test."""
    made = Street()
    yield made
    made.close()
