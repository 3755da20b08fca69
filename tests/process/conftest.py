"""Fixtures for real processes: whatever a test starts is gone after it, also when it fails."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from endstop.work import tree
from tests.process.desk import Bench

TEST_MARK = "ENDSTOP_TEST"


def remains(mark: str, folder: Path) -> list[tree.Identity]:
    """Live processes of this test, by environment or by command line."""
    found = []
    for pid in tree.table():
        if pid == os.getpid():
            continue
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if f"{TEST_MARK}={mark}".encode() in environ or str(folder).encode() in words:
            who = tree.identify(pid)
            if who is not None and tree.alive(who):
                found.append(who)
    return found


class Family:
    """The folder in which descendants sign in, and who of them is alive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def members(self) -> list[tree.Identity]:
        files = [path for path in self.folder.iterdir() if path.name.isdigit()]
        return [tree.Identity(int(p.name), int(p.read_text())) for p in files]

    def alive(self) -> list[tree.Identity]:
        return [who for who in self.members() if tree.alive(who)]


@pytest.fixture(autouse=True)
def _swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    mark = secrets.token_hex(8)
    monkeypatch.setenv(TEST_MARK, mark)
    yield
    for _ in range(50):
        left = remains(mark, tmp_path)
        if not left:
            return
        for who in left:
            tree.send(who, signal.SIGKILL)


@pytest.fixture
def test_remains(tmp_path: Path) -> object:
    """A function that lists what still lives of this test."""
    return lambda: remains(os.environ[TEST_MARK], tmp_path)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    folder = tmp_path / "family"
    folder.mkdir()
    return Family(folder)


@pytest.fixture
def bench(_swept: None) -> Iterator[Bench]:
    made = Bench(slots=2)
    yield made
    assert made.close(), "the worker did not come to an end"


@pytest.fixture
def lone_bench(_swept: None) -> Iterator[Bench]:
    """A worker without a spare host: calls in a row run in one process."""
    made = Bench(slots=4, spare=False)
    yield made
    assert made.close(), "the worker did not come to an end"
