"""BH56 with real processes: a worker that is shut down in mid-batch, and the one that goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from endstop import Config
from endstop.core import events as e
from endstop.store.sqlite import SqliteJournal
from tests.driving import Street, until
from tests.recovery import going_down
from tests.recovery.crashing import Resumed, recorded
from tests.support import ROOT


def test_bh56_a_program_that_is_told_to_end_leaves_what_has_not_begun(
    street: Street, tmp_path: Path
) -> None:
    path, log = tmp_path / "runs.db", tmp_path / "log"
    ticks = tmp_path / "log.ticks"
    program = subprocess.Popen(
        [sys.executable, going_down.__file__, f"sqlite:{path}", str(log)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: ticks.exists() and ticks.stat().st_size > 2, 30.0)
        program.send_signal(signal.SIGTERM)
        out, err = program.communicate(timeout=30)
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    assert (program.returncode, out) == (0, "let go\n"), err
    ticked = ticks.stat().st_size
    journal = SqliteJournal(path)
    assert journal.orphans() == ["r"], "nobody owns it any more"
    told = [one.event for one in journal.read("r")]
    journal.close()
    settled = {one.call: one for one in told if isinstance(one, e.CallSettled)}
    assert [(name, str(one.outcome), str(one.effect)) for name, one in settled.items()] == [
        ("r/0.0", "succeeded", "done"),
        ("r/0.1", "cancelled", "unknown"),
    ]
    assert not settled["r/0.1"].survivors
    assert not [one for one in told if isinstance(one, e.CallRetried)]
    assert told[-1] == e.RunInterrupted(run="r", clean=True)
    config = Config.load(directory="/", environ={})
    house = street.open("async", [going_down.step], journal=f"sqlite:{path}", config=config)
    (batch,) = Resumed(house).finish()
    assert [(str(one.outcome), one.value, one.retried) for one in batch] == [
        ("succeeded", 0, 0),
        ("cancelled", None, 0),
        ("succeeded", 2, 0),
        ("succeeded", 3, 0),
    ]
    assert log.read_text().splitlines() == [f"begun {n} r/0.{n}" for n in range(4)], "each once"
    assert ticks.stat().st_size == ticked, "law 11 whole-tree: its child went on"
    assert recorded(house)[-1] != told[-1]
