"""Every planted bug is caught; `ENDSTOP_MUTANTS_REPORT` names a file for the table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mutants.planted import MUTANTS
from tests.mutants.runner import PACKAGE, CannotPlant, Caught, Mutant, mutate, run, table, unharmed


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Caught]]]:
    """Two at a time, begun ahead of the tests that wait for them."""
    chosen = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    with ThreadPoolExecutor(2) as pool:
        futures = {m.name: pool.submit(run, m) for m in MUTANTS if m.name in chosen}
        yield futures
        for future in futures.values():
            future.cancel()
    done = [f for f in futures.values() if f.done() and not f.cancelled()]
    found = [future.result() for future in done if future.exception() is None]
    if path := os.environ.get("ENDSTOP_MUTANTS_REPORT"):
        Path(path).write_text(table(found), encoding="utf-8")
    else:
        print(table(found))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant: Mutant, results: dict[str, Future[Caught]]) -> None:
    caught = results[mutant.name].result()
    assert caught.test is not None, f"nothing in {mutant.tests} notices: {mutant.law} is not tested"


@pytest.mark.timeout(300)
def test_without_a_bug_the_same_tests_pass() -> None:
    every = sorted({test for mutant in MUTANTS for test in mutant.tests})
    code, said = unharmed(every)
    assert code == 0, said


def test_every_bug_can_still_be_planted_and_has_a_name_of_its_own() -> None:
    for mutant in MUTANTS:
        mutate((PACKAGE / mutant.file).read_text(encoding="utf-8"), mutant)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_bug_whose_text_is_gone_is_an_error() -> None:
    gone = Mutant(name="gone", law="-", file="errors.py", old="no such text", new="", tests=())
    with pytest.raises(CannotPlant, match=r"0 times in errors\.py"):
        mutate("", gone)
