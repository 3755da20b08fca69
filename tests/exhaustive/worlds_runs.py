"""The worlds about runs: notes, declared endings, and runs that are let go."""

from __future__ import annotations

from endstop.core import inputs as i
from endstop.core.terms import (
    ApprovalTerms,
    Backoff,
    EffectClass,
    How,
    Isolation,
    Limits,
    Mode,
    Outcome,
    Verdict,
)
from tests.exhaustive.explorer import Crash, World
from tests.exhaustive.worlds import (
    C0,
    C1,
    MODES,
    TICK,
    body,
    cancels,
    opens_once,
    pauses_twice,
    two_batches,
)
from tests.stories import PLAIN, asked, begin, contract, eur, x

SUSPENDS = (i.SuspendRun(run="r"), i.SuspendRun(run="r", stop=True))
THREAD = contract(PLAIN, isolation=Isolation.THREAD)
_RETRIES = contract(retries=1, backoff=Backoff(first_s=2.0))

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
    World(
        name="suspended",
        setup=begin(
            asked(x("k"), ready=False, cost=eur("1")),
            asked(x("k"), terms=PLAIN, cost=eur("2")),
            asked(terms=contract(effect=EffectClass.IDEMPOTENT)),
            limits=Limits(money=(eur("3"),), calls=3),
            parallel=2,
        ),
        alphabet=(
            *SUSPENDS,
            i.Prepared(
                call=C0,
                arguments={},
                claims=(x("k"),),
                cost=eur("1"),
                approval=ApprovalTerms(digest="d", expires_s=9.0),
            ),
            i.Answered(call=C0, digest="d", verdict=Verdict.APPROVE),
            *body(0, 1, 2, how=(How.RETURNED, How.STOPPED)),
            i.StartFailed(call=C1, message="no worker"),
            i.CloseRun(run="r"),
            *cancels("r", C1),
            *TICK,
        ),
        slots={Isolation.COROUTINE: 1},
        crashes=(Crash(),),
    ),
    World(
        name="suspended while calls are tried again",
        setup=begin(
            asked(x("k"), terms=contract(_RETRIES, effect=EffectClass.IDEMPOTENT), cost=eur("2")),
            asked(x("j"), terms=contract(PLAIN, isolation=Isolation.PROCESS), cost=eur("1")),
            limits=Limits(money=(eur("3"),)),
            stop_on_failure=True,
            deadline_s=30.0,
        ),
        alphabet=(
            *SUSPENDS,
            *body(0, 1, how=(How.RETURNED, How.RAISED, How.STOPPED)),
            i.HumanBegan(call=C1),
            i.HumanEnded(call=C1),
            *cancels("r/0", C1),
            *TICK,
        ),
        allows=pauses_twice,
        crashes=(Crash(),),
    ),
    World(
        name="suspended beside another run",
        setup=(
            *begin(asked(x("k"), terms=PLAIN), asked(x("k")), together=True),
            i.OpenRun(run="o"),
            i.SubmitBatch(run="o", calls=(asked(x("k")), asked(ready=False, terms=PLAIN))),
        ),
        alphabet=(
            *SUSPENDS,
            i.SuspendRun(run="o"),
            i.SuspendRun(run="o", stop=True),
            *body(0, 1),
            *body(0, run="o"),
            i.Prepared(call="o/0.1", arguments={}, claims=(x("k"),)),
            *cancels("r", "o"),
            i.RunFenced(run="r"),
            *TICK,
        ),
        slots={Isolation.COROUTINE: 1},
    ),
    World(
        name="suspended above a child",
        setup=begin(asked(x("k"), terms=THREAD)),
        alphabet=(
            *SUSPENDS,
            i.SuspendRun(run="c"),
            i.SuspendRun(run="c", stop=True),
            *body(0, how=(How.RETURNED, How.STOPPED)),
            i.OpenRun(run="c", parent_call=C0),
            i.SubmitBatch(run="c", calls=(asked(x("k"), terms=THREAD),)),
            i.ParkBegan(call=C0),
            i.ParkEnded(call=C0),
            *body(0, run="c"),
            i.CloseRun(run="c"),
            *TICK,
        ),
        slots={Isolation.THREAD: 1},
        allows=opens_once,
    ),
    World(
        name="made again",
        setup=begin(asked(terms=THREAD)),
        alphabet=(
            *body(0, how=(How.RETURNED, How.RAISED, How.STOPPED)),
            i.SubmitBatch(run="r", calls=(asked(terms=THREAD), asked(terms=THREAD))),
            i.Claimed(call="r/1.0"),
            i.Claimed(call="r/1.1"),
            i.BodyEnded(call="r/1.0", how=How.RAISED),
            i.BodyEnded(call="r/1.1", how=How.RETURNED),
            *cancels(C0, "r/1.0"),
            *TICK,
        ),
        slots={Isolation.THREAD: 2},
        allows=two_batches,
    ),
)
