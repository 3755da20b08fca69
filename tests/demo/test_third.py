"""The proof of the third act can fail: it is told once, and each test meddles with a copy of it."""

from __future__ import annotations

import asyncio
import copy
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from endstop.demo import third, world
from endstop.demo.proof_third import of_the_act
from endstop.demo.third import Act
from endstop.demo.watch import Line, Narrator


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Act, list[Line]]:
    lines: list[Line] = []
    top = tmp_path_factory.mktemp("told")
    return asyncio.run(third.play(top, Narrator(lines.append, str(top)))), lines


@pytest.fixture
def act(told: tuple[Act, list[Line]], tmp_path: Path) -> Act:
    """A copy of the act, with files that may be changed."""
    mine = copy.copy(told[0])
    mine.directory = tmp_path / third.FOLDER
    shutil.copytree(told[0].directory, mine.directory)
    return mine


def false_claims(act: Act) -> set[str]:
    return {check.name for check in of_the_act(act) if not check.holds}


def test_the_untouched_act_holds(told: tuple[Act, list[Line]]) -> None:
    act, lines = told
    assert not act.skipped
    assert false_claims(act) == set(), of_the_act(act)
    texts = [line.text for line in lines]
    assert any("offers the agent at http://127.0.0.1:" in text for text in texts)
    assert any(text.startswith("TASK_STATE_CANCELED: Canceled. ") for text in texts)


def _bake_late(act: Act) -> None:
    with (act.directory / third.LOAVES).open("a", encoding="utf-8") as book:
        book.write(f"{time.time()}\n")


def _stay(act: Act) -> None:
    act.server = world.look_up(1)


def _say_otherwise(act: Act) -> None:
    act.again = {**act.again, "status": {"state": "TASK_STATE_COMPLETED"}}


def _stop_nothing(act: Act) -> None:
    act.stopper = None


@pytest.mark.parametrize(
    ("meddle", "false"),
    [
        pytest.param(_bake_late, {"served_stop"}, id="a loaf after the stop"),
        pytest.param(_stop_nothing, {"served_stop"}, id="nobody stopped it"),
        pytest.param(_say_otherwise, {"served_answer"}, id="told otherwise"),
        pytest.param(_stay, {"served_exit"}, id="a server that stays"),
    ],
)
def test_a_false_claim_is_found_out(
    act: Act, meddle: Callable[[Act], None], false: set[str]
) -> None:
    meddle(act)
    assert false_claims(act) == false


def test_without_the_server_the_act_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(third, "available", lambda: False)
    lines: list[Line] = []
    act = asyncio.run(third.play(tmp_path, Narrator(lines.append, str(tmp_path))))
    assert act.skipped
    assert of_the_act(act) == []
    assert 'pip install "endstop[server]"' in lines[-1].text
    assert not list(tmp_path.iterdir())
