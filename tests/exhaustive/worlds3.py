"""Worlds of three calls, and of runs that stand beside each other."""

from __future__ import annotations

from endstop.core import inputs as i
from endstop.core.state import State
from endstop.core.terms import ApprovalTerms, How, Isolation, Limits, Mode, Verdict
from tests.exhaustive.explorer import World
from tests.exhaustive.worlds import (
    C0,
    C1,
    C2,
    MODES,
    TICK,
    body,
    cancels,
    opens_once,
)
from tests.stories import CALM, PLAIN, asked, begin, contract, eur, s, x


def pauses_once(state: State, call: str) -> bool:
    """A body asks one human at a time."""
    return call not in state.calls or not state.calls[call].humans


_THREAD = contract(PLAIN, isolation=Isolation.THREAD)
_CALM_THREAD = contract(isolation=Isolation.THREAD)
_TWO = (How.RETURNED, How.STOPPED)
_SOFT = (Mode.DRAIN, Mode.INTERRUPT)

THREE_CALLS: tuple[World, ...] = (
    World(
        name="three that are independent",
        setup=begin(asked(), asked(), asked()),
        alphabet=(*body(0, 1, 2), *cancels("r", C1, modes=_SOFT), *TICK),
    ),
    World(
        name="one resource",
        setup=begin(asked(x("k")), asked(x("k")), asked(x("k"))),
        alphabet=(*body(0, 1, 2, how=_TWO), *cancels("r", C0, C1, modes=MODES), *TICK),
    ),
    World(
        name="readers and a writer",
        setup=begin(asked(s("k")), asked(x("k")), asked(s("k"))),
        alphabet=(*body(0, 1, 2), *cancels("r", C0, C1), *TICK),
    ),
    World(
        name="nested paths",
        setup=begin(asked(s("file:/a/b")), asked(x("file:/a")), asked(x("file:/a/b/c"), x("k"))),
        alphabet=(*body(0, 1, 2), *cancels("r", C0, C1), *TICK),
    ),
    World(
        name="a barrier",
        setup=begin(asked(), asked(terms=contract(exclusive=True)), asked()),
        alphabet=(*body(0, 1, 2, how=_TWO), *cancels("r", C0, C1, modes=_SOFT), *TICK),
    ),
    World(
        name="one at a time",
        setup=begin(asked(terms=PLAIN), asked(), asked(), parallel=1),
        alphabet=(*body(0, 1, 2, how=_TWO), *cancels("r", C0, C1, modes=_SOFT), *TICK),
    ),
    World(
        name="two lanes and a deadline for all",
        setup=begin(asked(x("k")), asked(), asked(s("j")), parallel=2, deadline_s=6.0),
        alphabet=(*body(0, 1, 2), *cancels("r", "r/0", C1, C2, modes=_SOFT), *TICK),
    ),
    World(
        name="a failure stops the siblings",
        setup=begin(
            asked(terms=contract(PLAIN, deadline_s=4.0)),
            asked(),
            asked(x("k")),
            stop_on_failure=True,
        ),
        alphabet=(
            *body(0, 1, 2, how=(How.RETURNED, How.RAISED)),
            *cancels("r", C1),
            *TICK,
        ),
    ),
    World(
        name="one slot",
        setup=begin(asked(terms=_THREAD), asked(terms=_CALM_THREAD), asked(terms=_CALM_THREAD)),
        alphabet=(*body(0, 1, 2, how=_TWO), *cancels("r", C0, C1), *TICK),
        slots={Isolation.THREAD: 1},
    ),
    World(
        name="a budget of two calls",
        setup=begin(
            asked(x("k"), cost=eur("1")),
            asked(x("k")),
            asked(x("k"), tool="u"),
            limits=Limits(calls=2, money=(eur("5"),), tool_calls=(("t", 1),)),
        ),
        alphabet=(
            *body(0, 1, 2),
            i.StartFailed(call=C0, message="no worker"),
            *cancels("r", C2),
            *TICK,
        ),
    ),
    World(
        name="a parent, its child and a stranger",
        setup=(
            *begin(asked(x("k"), x("j"), terms=_THREAD)),
            i.OpenRun(run="q"),
            i.SubmitBatch(run="q", calls=(asked(x("k"), x("l"), terms=_CALM_THREAD),)),
        ),
        alphabet=(
            *body(0, how=_TWO),
            *body(0, run="q"),
            i.OpenRun(run="c", parent_call=C0, limits=Limits(calls=1)),
            i.SubmitBatch(run="c", calls=(asked(x("l"), x("k"), terms=_CALM_THREAD),)),
            *body(0, run="c"),
            i.ParkBegan(call=C0),
            i.ParkEnded(call=C0),
            *cancels("r", "c", "q"),
            *TICK,
        ),
        slots={Isolation.THREAD: 2},
        allows=opens_once,
    ),
    World(
        name="a child that asks a human",
        setup=begin(asked(terms=contract(deadline_s=4.0)), deadline_s=6.0),
        alphabet=(
            *body(0),
            i.OpenRun(run="c", parent_call=C0),
            i.SubmitBatch(run="c", calls=(asked(terms=PLAIN, ready=False),), deadline_s=9.0),
            i.Prepared(
                call="c/0.0",
                arguments={},
                claims=(),
                approval=ApprovalTerms(digest="d", expires_s=7.0),
            ),
            i.Answered(call="c/0.0", digest="d", verdict=Verdict.APPROVE),
            *(said(call=c) for c in (C0, "c/0.0") for said in (i.HumanBegan, i.HumanEnded)),
            *body(0, run="c"),
            *cancels("r", "c"),
            *TICK,
        ),
        allows=lambda state, said: (
            opens_once(state, said)
            and (not isinstance(said, i.HumanBegan) or pauses_once(state, said.call))
        ),
    ),
    World(
        name="a detached child",
        setup=begin(asked(x("k"), terms=CALM)),
        alphabet=(
            *body(0, how=_TWO),
            i.OpenRun(run="c", parent_call=C0, detached=True),
            i.SubmitBatch(run="c", calls=(asked(x("k"), terms=PLAIN), asked(s("k")))),
            *body(0, 1, run="c", how=_TWO),
            *cancels("r", "c", modes=_SOFT),
            *TICK,
        ),
        allows=opens_once,
    ),
)
