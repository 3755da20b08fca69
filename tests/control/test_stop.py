"""`endstop stop` with a driver that lives, is gone, or is wedged: real processes, one journal."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from endstop.core import events as e
from endstop.core.terms import StoppedBy
from tests.cli.program import endstop, gone, marked
from tests.control.programs import Driver, driving
from tests.store.helpers import python


def endings(driver: Driver) -> dict[str, tuple[str, str, str]]:
    """Outcome, reason and effect of each call; law 3: at most one ending each."""
    settled = [one.event for one in driver.events() if isinstance(one.event, e.CallSettled)]
    found = {
        one.call.partition("/")[2]: (str(one.outcome), str(one.reason), str(one.effect))
        for one in settled
    }
    assert len(found) == len(settled)
    return found


def test_a_living_driver_stops_and_says_how_each_call_ended(tmp_path: Path) -> None:
    waits = ("waits", {"mark": str(tmp_path / "mark")})
    with driving(tmp_path, waits, waits, ("read_file", {"path": "a"})) as driver:
        marked(tmp_path / "mark")
        driver.until(e.CallSettled, "0.2")
        done = driver.ask("stop", driver.run, "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["how"], said["run_outcome"]) == ("driver", "cancelled")
        assert said["ended"] == [f"{driver.run}/0.0", f"{driver.run}/0.1"]
        told = [(one["outcome"], one["effect"]) for one in said["calls"]]
        assert told == [("cancelled", "unknown"), ("cancelled", "none"), ("succeeded", "done")]
        code, document, _ = driver.over()
        assert code == 1
        assert [(one["outcome"], one["effect"]) for one in document["calls"]] == told
        again = driver.ask("stop", driver.run)
        assert again.returncode == 0
        assert "was over or stopped already: nothing was changed" in again.stdout


def test_one_call_is_stopped_and_its_sibling_goes_on(tmp_path: Path) -> None:
    """BH13: the cancel of one call is a no-op on any other."""
    calls = [("stubborn", {"mark": str(tmp_path / "one")}), ("pay", {"to": "ann", "amount": 1})]
    with driving(tmp_path, *calls) as driver:
        marked(tmp_path / "one")
        done = driver.ask("stop", f"{driver.run[:6]}/0.0")
        assert done.returncode == 0, done.stderr
        assert "may still be running" in done.stdout
        assert "0.1" not in endings(driver)
        assert driver.ask("respond", f"{driver.run}/0.1", "paid by hand").returncode == 0
        assert endings(driver)["0.1"] == ("succeeded", "answered_by_human", "none")
        wrong = driver.ask("stop", f"{driver.run}/0.7")
        assert wrong.returncode == 2
        assert f"has no '{driver.run}/0.7'" in wrong.stderr
        assert driver.ask("stop", "nothing").returncode == 2


def test_drain_lets_what_runs_finish(tmp_path: Path) -> None:
    calls = [("pay", {"to": "ann", "amount": 1}), ("get_weather", {"city": "Rome"})]
    with driving(tmp_path, *calls) as driver:
        driver.until(e.ApprovalAsked, "0.0")
        driver.until(e.CallSettled, "0.1")
        done = driver.ask("stop", driver.run, "--drain", "--json")
        assert json.loads(done.stdout)["ended"] == [f"{driver.run}/0.0"]
        assert driver.ask("stop", driver.run, "--drain", "--kill").returncode == 2


@pytest.mark.parametrize("target", ["run", "call"])
def test_a_run_whose_driver_was_killed_reaches_its_ending(tmp_path: Path, target: str) -> None:
    """BH70: a cancel reaches a terminal though the loop that would finish it is gone."""
    waits = ("waits", {"mark": str(tmp_path / "mark")})
    with driving(tmp_path, waits, waits, ("pay", {"to": "ann", "amount": 1})) as driver:
        marked(tmp_path / "mark")
        driver.until(e.CallStarted, "0.0")
        driver.until(e.ApprovalAsked, "0.2")
        driver.kill()
        name = driver.run if target == "run" else f"{driver.run}/0.1"
        done = driver.ask("stop", name, "--json")
        said = json.loads(done.stdout)
        assert said["how"] == "driver_gone"
        found = endings(driver)
        # The body had begun and nobody knows how it ended; the others never will.
        assert found["0.0"] == ("lost", "driver_lost", "unknown")
        assert found["0.1"] == ("cancelled", "cancelled_by_user", "none")
        if target == "run":
            assert found["0.2"] == ("cancelled", "cancelled_by_user", "none")
            assert said["run_outcome"] == "cancelled"
            assert done.returncode == 1, "some call is lost"
        else:
            assert "0.2" not in found, "it may still be resumed"
            assert said["run_outcome"] is None
            listed = json.loads(driver.ask("approvals", "--json").stdout)["approvals"]
            assert [one["call_id"] for one in listed] == [f"{driver.run}/0.2"]
        again = driver.ask("stop", name, "--json")
        assert json.loads(again.stdout)["how"] == "already_over"


def test_a_driver_that_dies_while_it_stops_leaves_no_run_that_is_stopping_for_ever(
    tmp_path: Path,
) -> None:
    """BH70: cancelling is not a state to stay in."""
    deaf = ("deaf_process", {"mark": str(tmp_path / "mark")})
    with driving(tmp_path, deaf, grace_s=300.0) as driver, ThreadPoolExecutor(1) as pool:
        marked(tmp_path / "mark")
        asked = pool.submit(driver.ask, "stop", driver.run, "--json")
        driver.until(e.StopRequested, "0.0")
        driver.kill()
        done = asked.result()
        said = json.loads(done.stdout)
        assert (said["how"], said["run_outcome"]) == ("driver_gone", "cancelled")
        assert endings(driver) == {"0.0": ("lost", "driver_lost", "unknown")}
        ends = [one for one in driver.events() if isinstance(one.event, e.RunEnded)]
        assert len(ends) == 1


def test_a_wedged_driver_loses_its_run_and_stops_its_workers_when_it_goes_on(
    tmp_path: Path,
) -> None:
    """Law 16: two processes never both drive one run; the loser records nothing more."""
    deaf = ("deaf_process", {"mark": str(tmp_path / "mark")})
    with driving(tmp_path, deaf, ("pay", {"to": "ann", "amount": 1})) as driver:
        worker = marked(tmp_path / "mark")
        child = marked(tmp_path / "mark.child")
        driver.until(e.CallStarted, "0.0")
        driver.until(e.ApprovalAsked, "0.1")
        driver.freeze()
        done = driver.ask("stop", driver.run)
        assert done.returncode == 1
        assert "which did not answer within 2 s" in done.stdout
        assert "may still be running" in done.stdout
        assert endings(driver) == {
            "0.0": ("lost", "driver_lost", "unknown"),
            "0.1": ("cancelled", "cancelled_by_user", "none"),
        }
        before = driver.events()
        driver.thaw()
        code, document, _ = driver.over()
        assert code == 3
        assert "was taken over by another process" in document["error"]
        assert driver.events() == before
        assert gone(worker)
        assert gone(child)


def test_a_blocked_loop_is_no_wedged_driver(tmp_path: Path) -> None:
    with driving(tmp_path, ("blocks_the_loop", {"mark": str(tmp_path / "mark")})) as driver:
        marked(tmp_path / "mark")
        done = driver.ask("stop", driver.run, "--json")
        assert json.loads(done.stdout)["how"] == "driver"
        settled = driver.until(e.CallSettled, "0.0").event
        assert isinstance(settled, e.CallSettled)
        assert settled.stopped_by is StoppedBy.ABANDONED


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    done = endstop("stop", "r1", cwd=tmp_path)
    assert done.returncode == 2
    assert "no journal is named; give --journal FILE.db" in done.stderr
    done = endstop("runs", "--journal", tmp_path / "none.db")
    assert done.returncode == 3
    assert "there is no journal" in done.stderr
    assert not (tmp_path / "none.db").exists()


NESTED = """
import sys, threading
from endstop import BlockingRuntime, Context, ToolCall, tool

@tool(resources=[])
def waits(ctx: Context) -> str:
    \"\"\"Wait.\"\"\"
    ctx.sleep(3600)
    return "never"

runtime = BlockingRuntime([waits], journal=sys.argv[1])
call = ToolCall(model_id="", tool="waits", arguments={})

def drive(name, parent=None, detached=False, calls=1):
    started = threading.Semaphore(0)
    watch = runtime.observe(lambda one: started.release() if one.run == name else None)
    run = runtime.run(name, parent=parent, detached=detached)
    threading.Thread(target=run.execute, args=([call] * calls,), daemon=True).start()
    while sum(v.phase == "running" and v.call_id.startswith(name) for v in runtime.calls()) < calls:
        started.acquire()

drive("top", calls=2)
drive("attached", "top/0.0")
drive("deeper", "attached/0.0")
drive("other", "top/0.1")
drive("detached", "top/0.0", detached=True)
runtime.engine.journal.flush()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("target", "below"), [("top", ["attached", "deeper", "other"]), ("top/0.1", ["other"])]
)
def test_what_works_below_a_run_without_driver_ends_with_it(
    tmp_path: Path, target: str, below: list[str]
) -> None:
    """Law 17 children-settle: attached runs end, detached ones and finished siblings stay."""
    journal = tmp_path / "runs.db"
    program = python(NESTED, journal)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.kill()
    program.communicate()
    said = json.loads(endstop("stop", target, "--journal", journal, "--json").stdout)
    assert said["how"] == "driver_gone"
    assert sorted(said["ended_runs_below"]) == below
    runs = json.loads(endstop("runs", "--journal", journal, "--json").stdout)["runs"]
    ended = {one["run"] for one in runs if one["state"] == "ended"}
    assert ended == {*below, *([target] if target == "top" else [])}
