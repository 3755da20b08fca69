"""`endstop demo` as a command: told for real, then its claims are looked up without its help."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from endstop.cli import demo as command
from endstop.cli.main import app
from endstop.demo.story import Pace, Story
from tests.demo.outside import contents, marked, marked_after, start, tell

QUICK = Pace(unit_s=0.1, grace_s=0.3)


def test_what_it_prints_is_true(tmp_path: Path) -> None:
    code, out, error = tell(tmp_path, "--fast", "--keep")
    assert code == 0, f"{out}\n{error}"
    assert "Traceback" not in error
    assert "✗" not in out

    (scratch,) = tmp_path.iterdir()
    spent = re.search(r"Spent ([0-9.]+) USD, saved ([0-9.]+) USD", out)
    assert spent is not None
    ledger = [json.loads(line) for line in (scratch / "ledger.jsonl").read_text().splitlines()]
    assert sum(Decimal(one["usd"]) for one in ledger) == Decimal(spent[1]) > 0
    assert Decimal(spent[2]) > 0
    # The keys of the provider's ledger are ids that the table shows as started.
    for one in ledger:
        assert re.search(rf"^{one['key']} +generate_image .* done ", out, re.M), one["key"]

    menu = (scratch / "site" / "menu.md").read_text()
    assert "Lentil soup 4.20" in menu
    assert "Apple cake" in menu
    assert "(reviews)" in (scratch / "site" / "about.md").read_text(), "an edit ran after the stop"
    assert (scratch / "site" / "soup.svg").exists()
    assert not (scratch / "press").exists(), "a picture of the stopped reply was saved"

    daemon = re.search(r"the daemon is pid ([0-9]+)", out)
    assert daemon is not None
    assert int(daemon[1]) == int((scratch / "indexer.pid").read_text())
    assert not psutil.pid_exists(int(daemon[1]))
    assert marked(tmp_path) == []

    with sqlite3.connect(scratch / "runs.db") as journal:
        tables = [row[0] for row in journal.execute("select name from sqlite_master")]
    journal.close()
    assert tables, "the journal is empty"


def test_the_report_as_json_is_all_of_its_output(tmp_path: Path) -> None:
    code, out, error = tell(tmp_path, "--fast", "--json")
    assert code == 0, f"{out}\n{error}"
    assert "Traceback" not in error
    report = json.loads(out)
    assert report["ok"] is True
    assert report["seconds"] < 60, "7 s on a machine that has nothing else to do"
    assert all(check["holds"] and check["seen"] for check in report["checks"])
    calls = [call for scene in report["scenes"] for call in scene["calls"]]
    assert len(calls) == report["totals"]["calls"]
    assert [len(scene["calls"]) for scene in report["scenes"]] == [5, 10]
    unstarted = [call for call in calls if not call["started"]]
    assert unstarted
    assert all(call["effect"] == "none" for call in unstarted)
    assert sum(Decimal(call["saved"]) for call in calls) == Decimal(report["totals"]["saved"])
    assert {call["stopped_by"] for call in calls} == {None, "asked", "killed", "abandoned"}
    assert len(report["scenes"][0]["messages"]) == 5
    assert len(report["scenes"][1]["messages"][0]["content"]) == 10
    assert contents(tmp_path) == []
    assert marked(tmp_path) == []


@pytest.mark.parametrize("moment", ["left a daemon behind", "4. Two sub-agents"])
def test_ctrl_c_in_the_middle_leaves_nothing(moment: str, tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                break
        else:
            pytest.fail(f"the story never came to: {moment}")
        assert len(marked(tmp_path)) > 1, "nothing was running that could be left behind"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    assert process.returncode == 130, out + error
    assert "nothing was proved" in error
    assert "Traceback" not in out + error
    assert marked_after(tmp_path) == []
    assert contents(tmp_path) == []


def test_a_reader_that_goes_away_does_not_break_it(tmp_path: Path) -> None:
    with start(tmp_path, "--fast") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(timeout=30) == 0, error
    assert "Traceback" not in error
    assert marked_after(tmp_path) == []
    assert contents(tmp_path) == []


def test_a_claim_that_does_not_hold_is_shown_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(command, "FAST", QUICK)
    monkeypatch.setattr(command, "Story", partial(Story, charges=2))
    shown = CliRunner().invoke(app, ["demo", "--fast"])
    assert shown.exit_code == 1, shown.output
    assert re.search(r"4 of [0-9]+ claims do not hold", shown.output)
    assert re.search(r"(✗|NO) endstop says", shown.output)
    as_json = CliRunner().invoke(app, ["demo", "--fast", "--json"])
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["ok"] is False


def test_on_a_terminal_the_open_calls_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "REFRESH_PER_S", 50)
    drawing = command.Drawing(
        command._Console(force_terminal=True, width=120, file=sys.stdout, highlight=False)
    )
    report = command._draw(drawing, pace=QUICK)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    assert report.ok, [check for check in report.checks if not check.holds]
    assert re.search(r"press/0\.7 +start_indexer +running +[0-9.]+ s", shown)
    assert re.search(r"press/0\.5 +generate_image the garden +queued +waits for image-acc", shown)
    assert re.search(r"press/0\.9 +publish site +awaiting approval +waits for a yes", shown)
