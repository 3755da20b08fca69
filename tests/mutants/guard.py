"""A pytest plugin: the package under test is the copy with the bug, not the one in the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import endstop


def pytest_configure() -> None:
    """Stop before the first test if the wrong package would be tested."""
    place = Path(os.environ["PYTHONPATH"]).resolve()
    if place not in Path(endstop.__file__).resolve().parents:
        pytest.exit(f"{endstop.__file__} is not the copy in {place}", returncode=3)
