"""What the tests share: where things are, and how a test says that its data is not here."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
"""The top of the checkout."""

SHARED = ROOT.parent / "shared"
"""A folder of public data that may lie beside the checkout."""

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs the data folder ../shared, which is not beside this checkout"
)


def shared_lines(name: str) -> list[str]:
    """The non-empty lines of a file in `SHARED`, or none where the folder is missing.

    For `pytest.mark.parametrize`, together with `needs_shared`. A file missing from a folder that
    is there is an error, not a reason to skip.
    """
    if not SHARED.is_dir():
        return []
    text = (SHARED / name).read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line.strip()]
