"""A program under a host of its own: its pipes, its environment, its end and its whole tree."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from endstop.errors import WorkerError
from endstop.work import tree
from endstop.work.program import STDERR_BYTES, Program

BOUND_S = 20.0


@contextmanager
def program(*argv: str, env: dict[str, str] | None = None) -> Iterator[Program]:
    made = Program(argv, env=env)
    try:
        yield made
    finally:
        made.end()
        os.close(made.stdin)
        os.close(made.stdout)


def everything(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65_536):
        parts.append(part)
    return b"".join(parts)


def test_it_is_spoken_to_on_its_pipes() -> None:
    with program("sh", "-c", "read word; echo heard $word; exit 7") as running:
        os.write(running.stdin, b"hello\n")
        assert everything(running.stdout) == b"heard hello\n"
        assert running.wait(BOUND_S)
        remains = running.end()
    assert (remains.status, remains.survivors) == (7, ())


def test_it_sees_little_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "do not tell")
    with program("env", env={"GIVEN": "yes"}) as running:
        lines = everything(running.stdout).decode().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert {"GIVEN", "PATH"} <= names
    assert "A_SECRET" not in names


def test_what_it_complains_is_kept_bounded() -> None:
    script = "import sys; sys.stderr.write('first' + 'x' * 5_000_000 + 'last')"
    with program(sys.executable, "-S", "-c", script) as running:
        assert running.wait(BOUND_S), "a flood does not block its writer"
        remains = running.end()
    assert remains.stderr.startswith("first")
    assert remains.stderr.endswith("last")
    assert len(remains.stderr) <= STDERR_BYTES + 200


@pytest.mark.parametrize(
    ("argv", "words"),
    [(("no-such-program-at-all",), "No such file"), (("/",), "Permission denied")],
)
def test_what_cannot_be_started_says_so(argv: tuple[str, ...], words: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WorkerError, match=words):
        Program(argv)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.serial
def test_its_end_is_the_end_of_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
        trap '' TERM
        (trap '' TERM; echo $BASHPID >> {pids}; sleep 600) &
        setsid sh -c 'trap "" TERM; echo $$ >> {pids}; sleep 600' &
        (setsid sh -c 'echo $$ >> {pids}; env -i sleep 600' &) &
        echo $$ >> {pids}
        sleep 600
    """
    with program("bash", "-c", script) as running:
        until = time.monotonic() + BOUND_S
        while not pids.exists() or len(pids.read_text().split()) < 4:
            assert time.monotonic() < until, "its children have started"
            time.sleep(0.01)
        running.ask_to_end()
        remains = running.end()
        assert remains.survivors == ()
        found = [tree.look_up(int(pid)) for pid in pids.read_text().split()]
        assert not [one for one in found if one is not None and not one.dead], "law 11 whole-tree"
        assert running.end() is remains, "the second time it only says what was"
