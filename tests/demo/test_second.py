"""The proof of the second act can fail: it is told once, and each test meddles with a copy of it.

What is broken in the runtime itself gets a telling of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from endstop.core.budget import Budget
from endstop.demo import child, second, world
from endstop.demo.proof_second import of_the_act
from endstop.demo.second import Act
from endstop.demo.watch import Line, Narrator
from endstop.run.handles import Run
from endstop.run.runtime import Runtime


def tell(top: Path) -> tuple[Act, list[Line]]:
    lines: list[Line] = []
    act = second.open_act(
        top,
        Narrator(lines.append, str(top)),
        unit_s=0.1,
        grace_s=0.3,
        kill_s=2.0,
        charges=1,
        shown=lambda runtime: contextlib.nullcontext(),
        until=world.until,
    )
    try:
        asyncio.run(second.play(act))
    finally:
        act.service.close()
    return act, lines


def false_claims(act: Act) -> set[str]:
    return {check.name for check in of_the_act(act) if not check.holds}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Act, list[Line]]:
    return tell(tmp_path_factory.mktemp("told"))


@pytest.fixture
def act(told: tuple[Act, list[Line]], tmp_path: Path) -> Act:
    """A copy of the act, with files and a ledger that may be changed."""
    mine = copy.copy(told[0])
    mine.directory = tmp_path / second.FOLDER
    shutil.copytree(told[0].directory, mine.directory)
    mine.service = copy.copy(mine.service)
    mine.service.ledger = mine.directory / mine.service.ledger.name
    mine.service.repeated = list(mine.service.repeated)
    return mine


def _write(name: str, text: str) -> Callable[[Act], None]:
    def write(act: Act) -> None:
        with (act.directory / name).open("a", encoding="utf-8") as opened:
            opened.write(text)

    return write


def _charge(key: str) -> Callable[[Act], None]:
    line = {"at": time.time(), "key": key, "usd": "0.04", "image": "img_extra"}
    return _write("ledger.jsonl", json.dumps(line) + "\n")


def _not_take_back(act: Act) -> None:
    act.taken_back = 0


def _stop_slowly(act: Act) -> None:
    act.stop_s += act.bound_s


def _leave_a_handle(act: Act) -> None:
    act.open_handles = 1


def _rerun_the_finished(act: Act) -> None:
    act.service.repeated.append("shop/0.0")


def _kill_nobody(act: Act) -> None:
    act.killed = world.look_up(os.getpid())


@pytest.mark.parametrize(
    ("meddle", "false"),
    [
        pytest.param(_charge("album/0.2"), {"budget"}, id="a refused call charged"),
        pytest.param(_write("album/autumn.svg", "<svg/>"), {"budget"}, id="it delivered"),
        pytest.param(_write("tour/harbour.svg", "<svg/>"), {"one_grace"}, id="it went on"),
        pytest.param(_not_take_back, {"one_grace"}, id="the stop never reached the call below"),
        pytest.param(_stop_slowly, {"one_grace"}, id="a grace for each level"),
        pytest.param(_write("tour/pier.svg", "x"), {"sibling"}, id="a result that is lost"),
        pytest.param(_leave_a_handle, {"sibling"}, id="a handle left open"),
        pytest.param(_kill_nobody, {"killed"}, id="the killed one lives"),
        pytest.param(_rerun_the_finished, {"heir"}, id="a finished call made again"),
        pytest.param(_charge("shop/0.1"), {"heir"}, id="the idempotent order paid twice"),
        pytest.param(_charge("shop/0.2"), {"heir", "unknown"}, id="the lost order paid twice"),
        pytest.param(_write("shop/frame.svg", "<svg/>"), {"unknown"}, id="it was known"),
    ],
)
def test_a_false_claim_is_found_out(
    act: Act, meddle: Callable[[Act], None], false: set[str]
) -> None:
    meddle(act)
    assert false_claims(act) == false


def test_the_untouched_act_holds(told: tuple[Act, list[Line]], act: Act) -> None:
    assert false_claims(act) == set(), of_the_act(act)
    texts = [line.text for line in told[1]]
    [refusal] = [at for at, text in enumerate(texts) if "the model reads of album_3" in text]
    assert "0.02 USD of 0.10 are left" in texts[refusal]
    assert "never started (over_budget)" in texts[:refusal], "told in the order of its happening"
    assert "ran again under its key; succeeded, effect done" in texts
    assert "did not run again; lost, effect unknown" in texts


def test_a_budget_that_refuses_nothing_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Budget, "refuses", lambda *given: None)
    assert false_claims(tell(tmp_path)[0]) == {"budget"}


def test_a_program_that_never_worked_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "__name__", "endstop.demo.no_such_program")
    act, lines = tell(tmp_path)
    assert false_claims(act) == {"killed", "heir", "unknown"}
    assert any(line.text.startswith("it cannot: ") for line in lines)


def test_an_heir_that_starts_over_is_found_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def start_over(runtime: Runtime, run_id: str) -> Run:
        run = runtime.run(f"{run_id}-again")
        run.batches.append(await run.execute(child.orders()[:1]))
        return run

    monkeypatch.setattr(Runtime, "resume", start_over)
    act = tell(tmp_path)[0]
    assert false_claims(act) == {"heir", "unknown"}
    assert len(act.charges(child.RUN)) == 4, "one picture was paid twice"
