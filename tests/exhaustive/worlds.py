"""The worlds that the explorer visits: one for each thing that can stand between call and body."""

from __future__ import annotations

from endstop.core import inputs as i
from endstop.core.state import State
from endstop.core.terms import (
    ApprovalTerms,
    Backoff,
    EffectClass,
    How,
    Isolation,
    Limits,
    Mode,
    Reason,
    Refusal,
    RuleTerms,
    Verdict,
)
from tests.exhaustive.explorer import Crash, Said, Wait, World
from tests.stories import PLAIN, asked, begin, contract, eur, s, x


def body(*indexes: int, how: tuple[How, ...] = (How.RETURNED,), run: str = "r") -> tuple[Said, ...]:
    """The claim and the end of some bodies."""
    ids = [f"{run}/0.{index}" for index in indexes]
    return (
        *(i.Claimed(call=c) for c in ids),
        *(i.BodyEnded(call=c, how=h) for c in ids for h in how),
    )


def cancels(*targets: str, modes: tuple[Mode, ...] = (Mode.INTERRUPT,)) -> tuple[Said, ...]:
    """A cancel of each target in each mode."""
    return tuple(i.Cancel(target=t, mode=m) for t in targets for m in modes)


MODES = (Mode.DRAIN, Mode.INTERRUPT, Mode.KILL)
TICK = (i.Tick(),)
C0, C1, C2 = "r/0.0", "r/0.1", "r/0.2"
ALL_HOW = (How.RETURNED, How.RAISED, How.STOPPED)


def spends_once(state: State, said: Said) -> bool:
    """Each call reports what it spent at most once."""
    return not isinstance(said, i.Spent) or not state.calls[said.call].spent


def pauses_twice(state: State, said: Said) -> bool:
    """Pauses nest two deep, and time goes on for a while only."""
    if isinstance(said, i.HumanBegan):
        call = state.calls.get(said.call)
        return call is None or call.humans < 2
    return True


def opens_once(state: State, said: Said) -> bool:
    """One batch for each run."""
    if isinstance(said, i.SubmitBatch):
        run = state.runs.get(said.run)
        return run is None or not run.batches
    return True


def two_batches(state: State, said: Said) -> bool:
    """One more batch for the run, at any time."""
    return not isinstance(said, i.SubmitBatch) or len(state.runs["r"].batches) < 2


_RETRIES = contract(retries=1, backoff=Backoff(first_s=2.0))
_DEADLINE = contract(PLAIN, deadline_s=4.0)
_PROCESS = contract(isolation=Isolation.PROCESS)
_THREAD = contract(PLAIN, isolation=Isolation.THREAD)
_OK = i.Prepared(call=C0, arguments={}, claims=(x("k"),))
_NO = i.Refused(call=C0, refusal=Refusal(reason=Reason.DENIED_BY_POLICY, message="no"))
_HOOK = i.HookBegan(call=C0, hook="h", limit_s=6.0)


def _answers(call: str, digest: str = "d") -> tuple[Said, ...]:
    edit = i.Answered(
        call=call, digest=digest, verdict=Verdict.EDIT, arguments={"a": 2}, claims=(x("j"),)
    )
    others = (Verdict.APPROVE, Verdict.REJECT, Verdict.RESPOND)
    return (*(i.Answered(call=call, digest=digest, verdict=v) for v in others), edit)


_QUESTION = i.Prepared(
    call=C0,
    arguments={"a": 1},
    claims=(x("k"),),
    approval=ApprovalTerms(digest="d", expires_s=9.0),
)


def _asks(call: str, number: int = 1) -> i.Prepared:
    terms = ApprovalTerms(digest="d", expires_s=9.0)
    return i.Prepared(call=call, arguments={"a": number}, claims=(), approval=terms)


_CHILD = (
    i.OpenRun(run="c", parent_call=C0),
    i.SubmitBatch(run="c", calls=(asked(x("k"), terms=_THREAD), asked(x("k"), terms=_THREAD))),
)
_PARK = (i.ParkBegan(call=C0), i.ParkEnded(call=C0))

TWO_CALLS: tuple[World, ...] = (
    World(
        name="independent",
        setup=begin(asked(terms=PLAIN), asked(terms=PLAIN)),
        alphabet=(
            *body(0, 1, how=ALL_HOW),
            i.StartFailed(call=C0, message="no worker"),
            *cancels("r", "r/0", C0, modes=MODES),
            i.CloseRun(run="r"),
            *TICK,
        ),
    ),
    World(
        name="fenced and closed",
        setup=begin(asked(x("k"), terms=contract(start_s=2.0)), asked(x("k"))),
        alphabet=(
            *body(0, 1),
            i.RunFenced(run="r"),
            i.CloseRun(run="r"),
            i.SubmitBatch(run="r", calls=(asked(x("k")),)),
            *cancels("r"),
            *TICK,
        ),
        allows=two_batches,
    ),
    World(
        name="hook before a conflicting call",
        setup=begin(asked(x("k"), ready=False), asked(x("k"), terms=PLAIN)),
        alphabet=(_HOOK, _OK, _NO, *body(0, 1), *cancels("r", C0, C1, modes=MODES), *TICK),
    ),
    World(
        name="hook that rewrites what is wanted",
        setup=begin(asked(x("j"), ready=False), asked(x("k")), asked(x("j"))),
        alphabet=(_HOOK, _OK, _NO, *body(0, 1, 2), *cancels("r"), *TICK),
    ),
    World(
        name="together",
        setup=begin(asked(x("k"), ready=False), asked(), asked(ready=False), together=True),
        alphabet=(
            _HOOK,
            _OK,
            _NO,
            i.Prepared(call=C2, arguments={}, claims=()),
            *body(0, 1, 2),
            *cancels("r", C2, modes=(Mode.DRAIN, Mode.INTERRUPT)),
            *TICK,
        ),
    ),
    World(
        name="approval",
        setup=begin(asked(x("k"), ready=False), asked(x("k"), terms=PLAIN), deadline_s=12.0),
        alphabet=(
            _QUESTION,
            *_answers(C0),
            *_answers(C0, "stale"),
            _NO,
            *body(0, 1),
            *cancels("r", C0),
            *TICK,
        ),
    ),
    World(
        name="remembered",
        setup=(
            *begin(asked(ready=False, terms=PLAIN), asked(ready=False, terms=PLAIN)),
            i.OpenRun(run="o"),
            i.SubmitBatch(run="o", calls=(asked(ready=False, terms=PLAIN),)),
        ),
        alphabet=(
            *(_asks(call) for call in (C0, C1, "o/0.0")),
            _asks(C1, 2),
            i.Answered(
                call=C0,
                digest="d",
                verdict=Verdict.APPROVE,
                remember=RuleTerms(same={"a": 1}, for_s=3.0),
            ),
            i.Answered(call=C1, digest="d", verdict=Verdict.REJECT),
            i.RevokeRule(rule=C0),
            *cancels("r"),
            Wait(seconds=2.0),
            *TICK,
        ),
        bound_s=8.0,
    ),
    World(
        name="process",
        setup=begin(
            asked(x("k"), terms=contract(_DEADLINE, isolation=Isolation.PROCESS)),
            asked(x("k"), terms=_PROCESS),
        ),
        alphabet=(
            *body(0, 1, how=(How.RETURNED, How.STOPPED, How.LOST)),
            *cancels("r", C0, modes=MODES),
            *TICK,
        ),
    ),
    World(
        name="commit point",
        setup=begin(
            asked(x("k"), terms=contract(_DEADLINE, commits=True)),
            asked(x("k"), terms=contract(effect=EffectClass.READ_ONLY)),
        ),
        alphabet=(
            *body(0, 1, how=ALL_HOW),
            i.CommitEntered(call=C0),
            i.CommitLeft(call=C0, done=True),
            i.CommitLeft(call=C0, done=False),
            *cancels("r", C0, modes=MODES),
            *TICK,
        ),
        bound_s=8.0,
    ),
    World(
        name="commit point of a process",
        setup=begin(asked(terms=contract(_PROCESS, commits=True))),
        alphabet=(
            *body(0, how=ALL_HOW),
            i.CommitEntered(call=C0),
            i.CommitLeft(call=C0, done=True),
            *cancels("r", "r/0", C0, modes=MODES),
            *TICK,
        ),
        bound_s=10.0,
    ),
    World(
        name="pauses",
        setup=begin(asked(terms=contract(deadline_s=4.0, idle_s=2.0)), deadline_s=6.0),
        alphabet=(
            *body(0),
            i.Progressed(call=C0),
            i.HumanBegan(call=C0),
            i.HumanEnded(call=C0),
            *cancels("r", "r/0", modes=(Mode.DRAIN, Mode.INTERRUPT)),
            Wait(seconds=1.0),
            *TICK,
        ),
        allows=lambda state, said: (
            pauses_twice(state, said)
            and (not isinstance(said, Wait) or state.calls[C0].settled is None)
        ),
    ),
    World(
        name="questions",
        setup=begin(
            asked(
                x("k"),
                terms=contract(deadline_s=4.0, retries=1, effect=EffectClass.READ_ONLY),
            ),
            deadline_s=6.0,
        ),
        alphabet=(
            *body(0, how=ALL_HOW),
            i.QuestionBegan(call=C0, question="q", text="which?"),
            i.QuestionBegan(call=C0, question="s", text="password", secret=True),
            i.QuestionTold(call=C0, question="q", text="this"),
            i.QuestionTold(call=C0, question="s", text="never kept"),
            i.QuestionLeft(call=C0, question="q"),
            i.HumanEnded(call=C0),
            *cancels("r", C0),
            *TICK,
        ),
    ),
    World(
        name="money",
        setup=begin(
            asked(x("k"), cost=eur("2"), terms=PLAIN),
            asked(x("k"), cost=eur("2"), terms=contract(commits=True)),
            limits=Limits(money=(eur("3"),), tool_calls=(("t", 2),)),
        ),
        alphabet=(
            *body(0, 1, how=ALL_HOW),
            i.StartFailed(call=C0, message="no worker"),
            i.Spent(call=C0, money=eur("1")),
            i.Spent(call=C1, money=eur("1")),
            *cancels("r", C0),
            *TICK,
        ),
        allows=spends_once,
    ),
    World(
        name="children",
        setup=(*begin(asked(x("k"), terms=_THREAD), stop_on_failure=True), *_CHILD[:0]),
        alphabet=(
            *body(0, how=(How.RETURNED, How.RAISED)),
            *_CHILD,
            *_PARK,
            *body(0, 1, run="c"),
            i.CloseRun(run="c"),
            *cancels("r", modes=MODES),
            *cancels("c"),
            *TICK,
        ),
        slots={Isolation.THREAD: 1},
        allows=opens_once,
    ),
    World(
        name="tried again",
        setup=begin(
            asked(x("k"), terms=contract(_RETRIES, effect=EffectClass.IDEMPOTENT)),
            asked(x("k"), terms=contract(_RETRIES, effect=EffectClass.READ_ONLY, deadline_s=4.0)),
            limits=Limits(tool_calls=(("t", 2),)),
            parallel=2,
        ),
        alphabet=(*body(0, 1, how=ALL_HOW), *cancels("r", C0), *TICK),
        slots={Isolation.COROUTINE: 1},
    ),
    World(
        name="tried again only where it left nothing",
        setup=begin(
            asked(x("k"), terms=contract(_RETRIES, commits=True), cost=eur("2")),
            asked(terms=_RETRIES),
            limits=Limits(money=(eur("3"),)),
            stop_on_failure=True,
        ),
        alphabet=(
            *body(0, 1, how=(How.RETURNED, How.RAISED, How.LOST)),
            i.CommitEntered(call=C0),
            i.CommitLeft(call=C0, done=False),
            i.Spent(call=C0, money=eur("1")),
            *cancels("r"),
            *TICK,
        ),
        allows=spends_once,
        bound_s=8.0,
    ),
    World(
        name="crash",
        setup=begin(
            asked(x("k"), terms=contract(effect=EffectClass.IDEMPOTENT), cost=eur("2")),
            asked(x("k"), terms=PLAIN, cost=eur("1")),
            limits=Limits(money=(eur("3"),)),
        ),
        alphabet=(
            *body(0, 1, how=(How.RETURNED, How.RAISED)),
            i.Spent(call=C1, money=eur("1")),
            *cancels("r", C0, modes=(Mode.DRAIN, Mode.INTERRUPT)),
            *TICK,
        ),
        allows=spends_once,
        crashes=(Crash(),),
    ),
    World(
        name="crash and a tool that can be asked",
        setup=begin(
            asked(x("k"), terms=contract(reconciles=True)),
            asked(x("k"), terms=contract(effect=EffectClass.READ_ONLY)),
            stop_on_failure=True,
            deadline_s=9.0,
        ),
        alphabet=(*body(0, 1, how=(How.RETURNED, How.RAISED)), *cancels("r/0", C0), *TICK),
        crashes=(Crash(done=True), Crash(done=False), Crash(done=None)),
    ),
    World(
        name="crash while a human thinks",
        setup=begin(asked(x("k"), ready=False), asked(x("k")), deadline_s=12.0),
        alphabet=(_QUESTION, *_answers(C0), *body(0, 1), *cancels("r", C1), *TICK),
        crashes=(Crash(),),
    ),
    World(
        name="wait limits",
        setup=begin(
            asked(x("k"), x("j")),
            asked(x("k", 3.0), s("j", 6.0)),
            asked(s("j", 4.0)),
        ),
        alphabet=(*body(0, 1, 2), *cancels("r", C0, C1), *TICK),
    ),
)
