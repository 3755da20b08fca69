"""This folder drives both runtimes."""

from __future__ import annotations

from tests.driving_fixtures import ctrl_c, kind, street

__all__ = ["ctrl_c", "kind", "street"]
