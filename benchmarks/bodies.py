"""Bodies that another process finds by their address. They do what their names say."""

from __future__ import annotations


def nothing() -> None:
    """Does nothing, in a process."""
