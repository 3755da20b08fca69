"""From declaration and configuration to contract: whose word counts, and what junk does."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.config import Timeouts, ToolTimeouts
from endstop.core.terms import EffectClass, Isolation
from endstop.tools import contract, resolve, tool

UNSET: Any = None


def body() -> None: ...


def deadline(
    *,
    call: Any = None,
    own: Any = None,
    sequential_call: Any = None,
    concurrent_batch: Any = None,
    sequential: bool,
) -> float | None:
    timeouts = Timeouts(
        tools=ToolTimeouts(sequential_call=sequential_call, concurrent_batch=concurrent_batch)
    )
    declared = tool(timeout=own)(body).declared
    return resolve(
        declared, timeouts=timeouts, sequential=sequential, call_timeout_s=call
    ).deadline_s


@pytest.mark.parametrize("sequential", [True, False])
def test_the_default_is_420_seconds_for_one_call_and_for_many(sequential: bool) -> None:
    assert deadline(sequential=sequential) == 420.0


ROWS: list[tuple[dict[str, Any], float | None, float | None]] = [
    # what is set, then the deadline of a sequential call, and of one in a concurrent batch
    ({"concurrent_batch": 60}, 60.0, 60.0),
    ({"concurrent_batch": "off"}, None, None),
    ({"concurrent_batch": 0}, None, None),
    ({"sequential_call": 60}, 60.0, 420.0),
    ({"sequential_call": 0}, None, 420.0),
    ({"sequential_call": -1, "concurrent_batch": 60}, None, 60.0),
    ({"sequential_call": 30, "concurrent_batch": "off"}, 30.0, None),
    ({"own": 600, "concurrent_batch": 60}, 600.0, 600.0),
    ({"own": "off", "concurrent_batch": 60}, None, None),
    ({"own": 0}, None, None),
    ({"call": 5, "own": 600}, 5.0, 5.0),
    ({"call": 0, "own": 600}, None, None),
    ({"call": "7.5"}, 7.5, 7.5),
    ({"call": True, "own": 600}, 600.0, 600.0),
    ({"call": float("nan"), "concurrent_batch": 9}, 9.0, 9.0),
    ({"call": "soon", "concurrent_batch": "later"}, 420.0, 420.0),
    ({"sequential_call": [], "concurrent_batch": 9}, 9.0, 9.0),
    ({"sequential_call": False, "concurrent_batch": False}, 420.0, 420.0),
    ({"call": 1e300}, threading.TIMEOUT_MAX, threading.TIMEOUT_MAX),
    ({"call": 10**400}, threading.TIMEOUT_MAX, threading.TIMEOUT_MAX),
    ({"concurrent_batch": float("inf")}, threading.TIMEOUT_MAX, threading.TIMEOUT_MAX),
    ({"call": -(10**400)}, None, None),
    ({"call": float("-inf")}, None, None),
]


@pytest.mark.parametrize(("given_values", "one", "many"), ROWS, ids=lambda value: repr(value)[:60])
def test_whose_word_counts(
    given_values: dict[str, Any], one: float | None, many: float | None
) -> None:
    assert deadline(sequential=True, **given_values) == one
    assert deadline(sequential=False, **given_values) == many


def test_the_longest_deadline_can_be_waited_for_with_a_lock() -> None:
    longest = deadline(call=10**400, sequential=True)
    assert longest is not None
    assert threading.Lock().acquire(timeout=longest)


def test_junk_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    contract._warned.clear()
    with caplog.at_level(logging.WARNING, "endstop.config"):
        for _ in range(3):
            deadline(call="junk-a", sequential=True)
            deadline(concurrent_batch="junk-b", sequential=True)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert "the call's timeout = 'junk-a'" in texts[0]
    assert "timeouts.tools.concurrent_batch = 'junk-b'" in texts[1]


def test_the_same_tool_and_way_of_running_give_the_same_object() -> None:
    declared, timeouts = tool(body).declared, Timeouts()
    first = resolve(declared, timeouts=timeouts, sequential=True)
    assert resolve(declared, timeouts=timeouts, sequential=True) is first
    assert resolve(declared, timeouts=timeouts, sequential=False) is not first
    timed = resolve(declared, timeouts=timeouts, sequential=True, call_timeout_s=1)
    assert timed.deadline_s == 1.0
    assert resolve(declared, timeouts=timeouts, sequential=True, call_timeout_s="1") is timed
    other = Timeouts(tools=ToolTimeouts(concurrent_batch=3))
    assert resolve(declared, timeouts=other, sequential=True).deadline_s == 3.0
    assert resolve(declared, timeouts=timeouts, sequential=True) is first


def test_the_cache_is_bounded_and_never_answers_for_other_timeouts() -> None:
    declared = tool(body).declared
    for n in range(1, 1_000):
        timeouts = Timeouts(tools=ToolTimeouts(concurrent_batch=n))
        assert resolve(declared, timeouts=timeouts, sequential=True).deadline_s == n
    assert len(declared.contracts) <= contract.CONTRACTS_MAX


def test_everything_else_of_the_contract() -> None:
    declared = tool(
        effect="once",
        isolation="process",
        exclusive=True,
        commits=True,
        idle_timeout=7,
        grace=0,
    )(body).declared
    timeouts = Timeouts(grace_s=1, kill_s=2, commit_s=3, start_s=None)
    made = resolve(declared, timeouts=timeouts, sequential=True)
    assert (made.effect, made.isolation) == (EffectClass.ONCE, Isolation.PROCESS)
    assert made.exclusive
    assert made.commits
    assert (made.idle_s, made.grace_s, made.kill_s, made.commit_s) == (7.0, 0.0, 2, 3)
    assert made.start_s is None
    plain = resolve(tool(body).declared, timeouts=timeouts, sequential=True)
    assert plain.grace_s == 1
    assert plain.idle_s is None
    assert resolve(tool(idle_timeout=0)(body).declared, timeouts=timeouts, sequential=True) == plain


@given(
    junk=st.none()
    | st.booleans()
    | st.text()
    | st.integers()
    | st.floats()
    | st.lists(st.integers())
    | st.binary()
)
def test_no_value_breaks_a_call(junk: Any) -> None:
    found = deadline(call=junk, concurrent_batch=junk, sequential=True)
    assert found is None or 0 < found <= threading.TIMEOUT_MAX
