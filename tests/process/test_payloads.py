"""Whatever a body raises, returns or writes ends one call (law 19 any-payload)."""

from __future__ import annotations

import pytest

from endstop.core.terms import How
from tests.process import bodies
from tests.process.desk import Bench


def test_a_body_that_writes_nonsense_to_the_channel_is_lost(bench: Bench) -> None:
    for kind in ("frame", "bytes"):
        end = bench.run(bodies.write_nonsense, kind=kind)
        assert end.how is How.LOST
    assert bench.run(bodies.add, a=1, b=1).value == 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("plain", "ValueError: told so"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "CancelledError"),
        ("unpicklable", "Unpicklable"),
        ("mute", "MuteError"),
        ("huge", "ValueError: xxx"),
        ("surrogate", "ValueError: lone"),
        ("base", "BaseException: bare"),
        ("mean", "an error that raises when it is asked"),
    ],
)
def test_BH73_whatever_a_body_raises_ends_one_call(bench: Bench, kind: str, words: str) -> None:
    end = bench.run(bodies.fail, kind=kind)
    assert end.how is How.RAISED
    assert end.error is not None
    assert end.error.startswith(words)
    assert len(end.error) < 10_000
    end.error.encode()
    assert "bodies.py" in end.error
    assert end.output == {"stdout": "printed before\n"}
    assert bench.run(bodies.add, a=1, b=1).value == 2


@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancelled"])
def test_whatever_an_async_body_raises_ends_one_call(bench: Bench, kind: str) -> None:
    assert bench.run(bodies.fail_later, kind=kind).how is How.RAISED
    assert bench.run(bodies.add, a=1, b=1).value == 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cycle", "result.a[1]: contains itself"),
        ("deep", "nested"),
        ("object", "result.thing: is of type object"),
    ],
)
def test_a_result_without_a_form_is_named_by_its_path(bench: Bench, kind: str, words: str) -> None:
    end = bench.run(bodies.give, kind=kind)
    assert end.how is How.UNSERIALISABLE
    assert end.error is not None
    assert words in end.error
    assert bench.run(bodies.add, a=1, b=1).value == 2


def test_a_result_above_the_limit_of_the_wire_says_so() -> None:
    bench = Bench(slots=1, frame_bytes=1 << 20)
    try:
        end = bench.run(bodies.give, kind="huge")
        assert end.how is How.UNSERIALISABLE
        assert end.error is not None
        assert "5000" in end.error
        assert "1048576" in end.error
        call = bench.start(bodies.fail, kind="x" * (1 << 21))
        assert "1048576" in bench.desk.failure(call).message
        assert bench.run(bodies.add, a=1, b=1).value == 2
    finally:
        assert bench.close()


def test_results_that_can_be_repaired_are(bench: Bench) -> None:
    assert bench.run(bodies.give, kind="nan").value == [None, None, 1.5]
    assert bench.run(bodies.give, kind="surrogate").value == "a\ufffdb"
    assert len(bench.run(bodies.give, kind="huge").value) == 5_000_000
