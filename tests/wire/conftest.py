"""The servers of a file of rows: started once, shared, ended with the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.rows import Playing, playing


@pytest.fixture(scope="module")
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Playing]:
    folder: Path = tmp_path_factory.mktemp("wire")
    items = [i for i in request.session.items if i.path == request.path]
    cases = [item.callspec.params.get("case") for item in items if hasattr(item, "callspec")]
    with playing(folder, [case for case in cases if case]) as made:
        yield made
