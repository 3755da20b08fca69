"""The fixtures of `tests.driving`, for the folders that drive both runtimes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.driving import KINDS, Street


@pytest.fixture
def street() -> Iterator[Street]:
    """Opens runtimes; closes and checks them when the test is over."""
    made = Street()
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of runtime: the test is run once on each."""
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as a program has it, whatever runs the tests has made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
