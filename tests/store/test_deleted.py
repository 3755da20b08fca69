"""A journal whose file goes away while it is open (law 15 record-first)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from endstop import BlockingRuntime, JournalError, ToolCall, tool
from endstop.core.events import RunClosing, RunOpened
from endstop.store.protocol import Durability
from endstop.store.sqlite import SqliteJournal


def _removed(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def _replaced(path: Path) -> None:
    _removed(path)
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_removed, _replaced])
def test_what_goes_to_a_file_that_is_gone_is_not_called_recorded(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    journal.append("r", 0, [RunOpened(run="r")], Durability.PROCESS)
    journal.flush()
    harm(path)
    heard: list[Exception | None] = []
    told = threading.Event()
    ticket = journal.append("r", 1, [RunClosing(run="r")], Durability.PROCESS)
    assert ticket is not None
    ticket.then(lambda error: (heard.append(error), told.set()))  # type: ignore[func-returns-value]
    assert told.wait(20)
    assert isinstance(heard[0], JournalError)
    assert "deleted or replaced" in str(heard[0])
    with pytest.raises(JournalError, match="deleted or replaced"):
        journal.append("r", 2, [RunClosing(run="r")], Durability.PROCESS)
    journal.close()


def test_a_run_whose_journal_is_deleted_shows_no_ending_that_is_not_recorded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    ran: list[str] = []

    @tool
    def send(text: str) -> str:
        ran.append(text)
        return text

    calls = [ToolCall(model_id="1", tool="send", arguments={"text": "a"})]
    runtime = BlockingRuntime([send], journal=f"sqlite:{path}")
    run = runtime.run()
    assert run.execute(calls)[0].ok
    _removed(path)
    with pytest.raises(JournalError, match="deleted or replaced"):
        run.execute(calls)
    assert ran == ["a"], "an effectful body begins only once its grant is recorded"
    runtime.close()
