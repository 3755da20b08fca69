"""Fixtures for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import ROOT, SHARED

# A shared machine makes single examples slow now and then; the timeout per test is the bound.
settings.register_profile("default", deadline=None)
# In CI the examples are the same on every run, so that a red build can be repeated.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture
def shared() -> Path:
    """The folder ../shared beside the checkout; the test is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip("needs the data folder ../shared, which is not beside this checkout")
    return SHARED
