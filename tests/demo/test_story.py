"""The proof can fail: for each claim the world is meddled with, and the claim must come out false.

The stories run in this process, quickly, with the real service, the real tools and a real stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from endstop.demo import proof, world
from endstop.demo.story import Pace, Stage, Story
from endstop.demo.table import Report
from endstop.demo.tools import BEATS_FILE
from endstop.demo.watch import Line
from endstop.work import tree

QUICK = Pace(unit_s=0.1, grace_s=0.3)


def false_claims(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.holds}


def told(**how: Any) -> tuple[Report, list[Line]]:
    lines: list[Line] = []
    report = asyncio.run(Story(lines.append, pace=QUICK, **{"served": False, **how}).tell())
    return report, lines


@pytest.fixture
def strays() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_the_untouched_story_holds() -> None:
    report, lines = told()
    assert false_claims(report) == set(), report.checks
    assert report.ok
    assert not Path(report.directory).exists()
    assert world.MARK not in os.environ
    assert [line.at_s for line in lines] == sorted(line.at_s for line in lines)
    texts = [line.text for line in lines]
    assert any(text.endswith("was told: menu/0.4 is approved") for text in texts)
    assert any("waits for image-account:main" in text for text in texts)
    assert any(text.startswith("the model reads of album_3") for text in texts)
    assert any("0.02 USD of 0.10 are left" in text for text in texts)
    assert "ran again under its key; succeeded, effect done" in texts
    assert "did not run again; lost, effect unknown" in texts
    assert any("the kill goes to its whole tree" in text for text in texts)
    assert not any(report.directory in text for text in texts), "paths are shown short"


def test_a_service_that_charges_twice_is_found_out() -> None:
    report, _ = told(charges=2)
    assert false_claims(report) == {"ledger", "budget", "heir", "unknown"}
    assert not report.ok


def test_a_survivor_is_found_out(strays: list[subprocess.Popen[bytes]]) -> None:
    def plant(stage: Stage) -> None:
        mine = {**os.environ, world.MARK: stage.token}
        strays.append(subprocess.Popen(["sleep", "600"], env=mine, start_new_session=True))

    report, _ = told(meddle=plant)
    assert false_claims(report) == {"processes"}
    (check,) = (check for check in report.checks if check.name == "processes")
    assert f"pid {strays[0].pid} (sleep 600)" in check.seen


def test_a_daemon_that_lives_is_found_out(strays: list[subprocess.Popen[bytes]]) -> None:
    def plant(stage: Stage) -> None:
        strays.append(subprocess.Popen(["sleep", "600"]))
        stage.daemon = world.look_up(strays[0].pid)

    report, _ = told(meddle=plant)
    assert false_claims(report) == {"daemon", "processes"}, "it carries the mark as well"


def _write(name: str, text: str) -> Callable[[Stage], None]:
    def write(stage: Stage) -> None:
        file = stage.directory / name
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(text)

    return write


def _charge_late(stage: Stage) -> None:
    unstarted = next(row for row in stage.scenes[1].rows if row.cost and not row.started)
    line = {"at": time.time(), "key": unstarted.call_id, "usd": "0.04", "image": "img_late"}
    _write("ledger.jsonl", json.dumps(line) + "\n")(stage)


def _forget_the_wedge(stage: Stage) -> None:
    stage.wedged = []


def _forget_the_late_end(stage: Stage) -> None:
    stage.late_ends = []


def _be_slow(stage: Stage) -> None:
    stage.stop_s += stage.pace.grace_s + stage.pace.kill_s


def _move(stage: Stage) -> None:
    assert stage.still is not None
    stage.still = stage.still[0], {**stage.still[1], "indexer.beats": "longer"}


def _answer_from_here(stage: Stage) -> None:
    assert stage.answered is not None
    stage.answered = replace(stage.answered, pid=os.getpid())


def _take_the_late_yes(stage: Stage) -> None:
    stage.late_yes = True


@pytest.mark.parametrize(
    ("meddle", "false"),
    [
        pytest.param(_write("site/about.md", "late\n"), {"files"}, id="a late edit"),
        pytest.param(_write("press/garden.svg", "<svg/>"), {"pictures"}, id="a late picture"),
        pytest.param(_write("public/menu.html", "late\n"), {"approval"}, id="published late"),
        pytest.param(_take_the_late_yes, {"approval"}, id="a late yes taken"),
        pytest.param(_charge_late, {"ledger", "no_late_charge", "saved"}, id="charged late"),
        pytest.param(_forget_the_wedge, {"wedge"}, id="a forgotten thread"),
        pytest.param(_forget_the_late_end, {"late_end"}, id="a late end that nobody noted"),
        pytest.param(_be_slow, {"in_time"}, id="a slow stop"),
        pytest.param(_move, {"stillness"}, id="something moved"),
        pytest.param(_answer_from_here, {"other_process"}, id="answered by the story itself"),
    ],
)
def test_a_false_claim_is_found_out(meddle: Callable[[Stage], None], false: set[str]) -> None:
    report, _ = told(meddle=meddle)
    assert false_claims(report) == false
    assert not report.ok


def test_a_kill_that_kills_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime itself is broken: it says that the tree is gone, and has not touched it."""
    tokens: list[str] = []
    monkeypatch.setattr(tree, "sweep", lambda *given, **options: tree.Swept((), ()))
    try:
        report, _ = told(meddle=lambda stage: tokens.append(stage.token))
    finally:
        for left in world.marked(tokens[0]) if tokens else ():
            os.kill(left.pid, signal.SIGKILL)
    assert {"daemon", "processes", "stillness"} <= false_claims(report)
    (check,) = (check for check in report.checks if check.name == "stillness")
    assert BEATS_FILE in check.seen
    assert not report.ok


def test_a_scratch_directory_that_stays_is_found_out(tmp_path: Path) -> None:
    assert not proof.of_the_cleaning(tmp_path).holds
    assert proof.of_the_cleaning(tmp_path / "gone").holds
