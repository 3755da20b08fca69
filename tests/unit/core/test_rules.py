"""The rules table: one door to running, one ending, and a diagram that shows just this."""

from __future__ import annotations

from typing import get_args

import pytest

from endstop.core import events as e
from endstop.core.rules import RULES, diagram, next_phase
from endstop.core.terms import Phase
from endstop.errors import IllegalMove
from tests.exhaustive.samples import CALL_EVENTS, sample
from tests.stories import Story, asked, begin


def to(phase: Phase) -> set[tuple[Phase, type]]:
    """The rows that lead to a phase from another one."""
    return {(came, kind) for (came, kind), went in RULES.items() if went is phase != came}


def test_law_1_running_has_one_door_and_granted_has_one_door() -> None:
    assert to(Phase.RUNNING) == {(Phase.GRANTED, e.CallStarted)}
    assert to(Phase.GRANTED) == {(Phase.QUEUED, e.CallGranted)}


def test_law_3_nothing_leaves_settled() -> None:
    rows = {kind: to for (phase, kind), to in RULES.items() if phase is Phase.SETTLED}
    assert rows == {e.CallSpent: Phase.SETTLED, e.LateEnd: Phase.SETTLED}


def test_law_6_every_phase_but_settled_can_be_settled() -> None:
    assert {came for came, _ in to(Phase.SETTLED)} == set(Phase) - {Phase.SETTLED}


def test_every_call_event_has_a_row_and_no_other_has() -> None:
    assert {kind for _, kind in RULES} == set(CALL_EVENTS)
    assert not {kind for _, kind in RULES} & set(get_args(e.RunEvent))


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", CALL_EVENTS)
def test_the_table_decides_alone(phase: Phase, kind: type) -> None:
    story = Story()
    story.say(*begin(asked()))
    event = sample(kind, story.call("r/0.0"))
    if (phase, kind) in RULES:
        assert next_phase(phase, event) is RULES[phase, kind]
    else:
        with pytest.raises(IllegalMove, match=f"{phase} cannot take {kind.__name__}"):
            next_phase(phase, event)


def test_the_diagram_has_every_row() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = {line.strip() for line in lines}
    for (came, kind), went in RULES.items():
        assert f"{came} --> {went}: {kind.__name__}" in arrows
    assert len(lines) == len(RULES) + 3
