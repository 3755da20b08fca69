"""The worlds about runs: notes, declared endings, and runs that are let go."""

from __future__ import annotations

from endstop.core import inputs as i
from endstop.core.terms import How, Mode, Outcome
from tests.exhaustive.explorer import Crash, World
from tests.exhaustive.worlds import C0, C1, MODES, TICK, body, cancels
from tests.stories import PLAIN, asked, begin, x

_NOTES = (
    i.Note(run="r", kind="k", body={}),
    i.Note(run="r", kind="k", body={}, call=C0),
    i.Note(run="r", kind="k", body={}, call=C1),
)
_CLOSES = (
    i.CloseRun(run="r"),
    i.CloseRun(run="r", outcome=Outcome.SUCCEEDED),
    i.CloseRun(run="r", outcome=Outcome.FAILED),
)

RUNS: tuple[World, ...] = (
    World(
        name="notes and declared endings",
        setup=begin(asked(x("k"), terms=PLAIN), asked(x("k"))),
        alphabet=(
            *_NOTES,
            *_CLOSES,
            *body(0, 1, how=(How.RETURNED, How.STOPPED)),
            *cancels("r", modes=MODES),
            i.RunFenced(run="r"),
            *TICK,
        ),
    ),
    World(
        name="declared, and the driver is lost",
        setup=begin(asked(x("k"), ready=False, terms=PLAIN), asked(x("k"))),
        alphabet=(
            *_NOTES[:2],
            *_CLOSES,
            i.Prepared(call=C0, arguments={}, claims=(x("k"),)),
            *body(0, 1),
            *cancels("r", modes=(Mode.INTERRUPT,)),
            *TICK,
        ),
        crashes=(Crash(),),
    ),
)
