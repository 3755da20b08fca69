"""The explorer: every order of the inputs of a world, breadth first, every law after every step.

A world is a beginning and an alphabet of inputs. At every state that is reached, every input of the
alphabet is put to `decide`: if nothing follows from it, that is checked to be so; if something
follows, it is a branch. What comes too late, twice or too early is therefore part of every world.

States that amount to the same are visited once. At every new state the explorer also asks three
questions: does everything end in time if the run is cancelled now and no body answers; does
everything end if everybody behaves from now on; and is an illegal event refused without a trace?
Breadth first, so that the first complaint comes with a shortest path.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import decide, step
from endstop.core.evolve import evolve
from endstop.core.rules import RULES
from endstop.core.state import RunState, Stage, State
from endstop.core.terms import How, Isolation, Mode, Phase, Verdict
from endstop.errors import CallerError, IllegalMove, NotFound
from endstop.testing.laws import at_rest, check_state, check_story
from tests.exhaustive.crash import can_crash, crash
from tests.exhaustive.digest import digest
from tests.exhaustive.samples import CALL_EVENTS, sample

REPLAY_EVERY = 50
REMEMBERED = (
    e.CallGranted,
    e.CallStarted,
    e.CallSettled,
    e.LateEnd,
    e.BatchClosed,
    e.RunEnded,
    e.CallSpent,
    e.RunInterrupted,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Time passes and nothing is due: only pauses and meters can tell."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The driver is lost and another one resumes; what reconcilers say of it."""

    done: bool | None = None


Said = i.Input | Wait


def always(state: State, said: Said) -> bool:
    """The default of `World.allows`."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A beginning and the inputs that may come in any order.

    `allows` keeps a world finite where an input could be repeated for ever. `bound_s` is the
    longest way of the stop ladder in this world (law 6 bounded-stop). `crashes` are the ways in
    which the driver may be lost once, at any point (law 16 survives-restart).
    """

    name: str
    setup: tuple[i.Input, ...]
    alphabet: tuple[Said, ...]
    slots: dict[Isolation, int | None] = field(default_factory=dict)
    bound_s: float = 7.0
    allows: Callable[[State, Said], bool] = always
    crashes: tuple[Crash, ...] = ()


@dataclass(slots=True)
class Report:
    """What an exploration saw."""

    world: str
    nodes: int = 0
    edges: int = 0
    complete: bool = True
    covered: set[tuple[Phase, type]] = field(default_factory=set)


@dataclass(slots=True)
class _Node:
    snapshot: bytes
    now: float
    events: list[e.Event]
    path: tuple[Any, ...]


class LawBroken(AssertionError):
    """A law does not hold; the message has the shortest path that shows it."""


def explore(world: World, max_nodes: int | None = None) -> Report:
    """Visit every state that the world can reach, or the `max_nodes` nearest ones.

    Raises `LawBroken` at the first law that does not hold.
    """
    return _Explorer(world, max_nodes).run()


def begin(world: World) -> tuple[State, list[e.Event]]:
    """The first state of a world and the events that led to it."""
    state = State(world.slots)
    events: list[e.Event] = []
    for said in world.setup:
        events += step(state, said, 0.0)
    return state, events


def say(state: State, said: Said, now: float) -> tuple[list[e.Event], float]:
    """Put one input to a state; returns what happened and the time it is then."""
    if isinstance(said, Wait):
        return [], now + said.seconds
    if isinstance(said, i.Tick):
        now = state.timers.next_due() or now
    return step(state, said, now), now


def follows(state: State, said: Said, now: float) -> bool:
    """Whether an input changes anything in this state."""
    due = state.timers.next_due()
    if isinstance(said, Wait):
        return due is None or now + said.seconds < due
    if isinstance(said, i.Tick):
        return due is not None
    try:
        return bool(decide(state, said, now))
    except (CallerError, NotFound):
        return False


class _Explorer:
    def __init__(self, world: World, max_nodes: int | None) -> None:
        self.world = world
        self.max_nodes = max_nodes
        self.report = Report(world=world.name)
        self.seen: set[int] = set()
        self.probed: set[Any] = set()
        self.todo: deque[_Node] = deque()

    def run(self) -> Report:
        state, events = begin(self.world)
        self._arrive(state, 0.0, events, ())
        while self.todo:
            if self.max_nodes is not None and self.report.nodes >= self.max_nodes:
                self.report.complete = False
                break
            self._branch(self.todo.popleft())
        return self.report

    def _branch(self, node: _Node) -> None:
        state: State = pickle.loads(node.snapshot)
        before = digest(state, node.now)
        branches = [
            said
            for said in self.world.alphabet
            if self.world.allows(state, said) and follows(state, said, node.now)
        ]
        if digest(state, node.now) != before:
            self._complain(node.path, ["decide has changed the state"], node.events)
        for said in branches:
            self.report.edges += 1
            state = pickle.loads(node.snapshot)
            path = (node.path, said)
            try:
                found, now = say(state, said, node.now)
            except Exception as broken:
                self._complain(path, [f"{type(broken).__name__}: {broken}"], node.events, broken)
            self._arrive(state, now, node.events + found, path)
        for loss in self.world.crashes if can_crash(node.events) else ():
            self.report.edges += 1
            path = (node.path, loss)
            try:
                state, found = crash(self.world.slots, node.events, node.now, done=loss.done)
            except Exception as broken:
                self._complain(path, [f"{type(broken).__name__}: {broken}"], node.events, broken)
            self._arrive(state, node.now, node.events + found, path)

    def _arrive(self, state: State, now: float, events: list[e.Event], path: Any) -> None:
        told = Counter(
            (type(event), getattr(event, "call", event.run))
            for event in events
            if isinstance(event, REMEMBERED)
        )
        key = hash((digest(state, now), frozenset(told.items())))
        self._cover(events)
        if key in self.seen:
            self._complain(path, check_story(events, complete=False), events)
            return
        self.seen.add(key)
        self.report.nodes += 1
        self._complain(path, check_state(state) + check_story(events, complete=False), events)
        node = _Node(snapshot=pickle.dumps(state, -1), now=now, events=events, path=path)
        self._probe(state, node)
        self._end_by_force(node)
        self._end_in_peace(node)
        if self.report.nodes % REPLAY_EVERY == 0:
            self._replay(node)
        self.todo.append(node)

    def _cover(self, events: list[e.Event]) -> None:
        phases: dict[str, Phase] = {}
        for event in events:
            if isinstance(event, e.CallAccepted):
                phases[event.call] = Phase.PREPARING
            elif isinstance(event, e.RunSuspending) or getattr(event, "clean", False):
                # Let go of: what was granted and not claimed stands in line again.
                mine = [c for c in phases if c.partition("/")[0] == event.run]
                phases |= {c: Phase.QUEUED for c in mine if phases[c] is Phase.GRANTED}
            elif isinstance(event, CALL_EVENTS):
                row = (phases[event.call], type(event))
                self.report.covered.add(row)
                phases[event.call] = RULES[row]

    def _probe(self, state: State, node: _Node) -> None:
        """An event that the rules do not list raises and leaves no trace."""
        for call in state.calls.values():
            kind = (call.phase, call.stage, call.rung, call.commit, call.alive, call.parked)
            if kind in self.probed:
                continue
            self.probed.add(kind)
            before = digest(state, node.now)
            for event_type in CALL_EVENTS:
                if (call.phase, event_type) in RULES:
                    continue
                try:
                    evolve(state, sample(event_type, call), node.now)
                except IllegalMove:
                    pass
                else:
                    self._complain(node.path, [f"{event_type.__name__} was taken"], node.events)
            if digest(state, node.now) != before:
                self._complain(node.path, ["an illegal event left a trace"], node.events)

    def _end_by_force(self, node: _Node) -> None:
        """Cancelled now, with bodies that never answer: all ends within the ladder (law 6)."""
        state: State = pickle.loads(node.snapshot)
        events, now = list(node.events), node.now
        mode = Mode.KILL if self.report.nodes % 2 else Mode.INTERRUPT
        try:
            for run in _roots(state):
                events += step(state, i.Cancel(target=run.id, mode=mode), now)
            while any(c.phase is not Phase.SETTLED for c in state.calls.values()):
                due = state.timers.next_due()
                if due is None or due > node.now + self.world.bound_s:
                    self._complain(node.path, [f"law 6 bounded-stop: {mode}, due {due}"], events)
                assert due is not None
                now = due
                events += step(state, i.Tick(), now)
            for call in list(state.calls.values()):
                events += step(state, i.BodyEnded(call=call.id, how=How.STOPPED), now)
        except LawBroken:
            raise
        except Exception as broken:
            self._complain(node.path, [f"then forced: {broken!r}"], events, broken)
        self._finished(state, node, events, f"then {mode} and no answer")

    def _end_in_peace(self, node: _Node) -> None:
        """From here on everybody behaves: all ends without a timer (laws 7 and 12)."""
        state: State = pickle.loads(node.snapshot)
        events, now = list(node.events), node.now
        try:
            while (said := _kindly(state)) is not None:
                if isinstance(said, i.Tick):
                    # A call that is tried again rests before, and that is no wait for anybody.
                    now = state.timers.next_due() or now
                found = step(state, said, now)
                events += found
                if not found and not isinstance(said, i.Tick):
                    self._complain(node.path, [f"{said} was not heard"], events)
            stuck = [c.id for c in state.calls.values() if c.phase is not Phase.SETTLED]
            if stuck:
                self._complain(node.path, [f"law 12 no-leaked-lock: {stuck} are stuck"], events)
            for run in list(state.runs.values()):
                events += step(state, i.CloseRun(run=run.id), now)
        except LawBroken:
            raise
        except Exception as broken:
            self._complain(node.path, [f"then in peace: {broken!r}"], events, broken)
        self._finished(state, node, events, "then in peace")

    def _finished(self, state: State, node: _Node, events: list[e.Event], how: str) -> None:
        wrong = check_state(state) + check_story(events)
        if not at_rest(state):
            wrong.append("law 12 no-leaked-lock: not at rest")
        if any(not run.ended for run in state.runs.values()):
            wrong.append("law 3 one-ending: a run has no ending")
        self._cover(events)
        self._complain((node.path, how), wrong, events)

    def _replay(self, node: _Node) -> None:
        state, events = begin(self.world)
        now = 0.0
        for said in _flat(node.path):
            if isinstance(said, Crash):
                state, found = crash(self.world.slots, events, now, done=said.done)
            else:
                found, now = say(state, said, now)
            events += found
        if events != node.events:
            self._complain(node.path, ["the same inputs gave other events"], events)
        kept: State = pickle.loads(node.snapshot)
        if digest(state, now) != digest(kept, node.now):
            self._complain(node.path, ["the same inputs gave another state"], events)

    def _complain(
        self,
        path: Any,
        wrong: list[str],
        events: list[e.Event],
        cause: BaseException | None = None,
    ) -> None:
        if not wrong:
            return
        lines = [f"world {self.world.name}, after {self.report.nodes} states", *wrong, "path:"]
        lines += [f"  {said}" for said in _flat(path)]
        lines += ["events:", *(f"  {event}" for event in events)]
        raise LawBroken("\n".join(lines)) from cause


def _flat(path: Any) -> list[Any]:
    found: list[Any] = []
    while path:
        path, said = path
        found.append(said)
    return found[::-1]


def _roots(state: State) -> Iterator[RunState]:
    for run in list(state.runs.values()):
        if run.parent is None or not run.attached:
            yield run


def _kindly(state: State) -> i.Input | None:
    """What a world in which everybody behaves would say next."""
    for call in state.calls.values():
        if call.stage is Stage.WITHDRAWN:
            # Its run is being let go: it moves on for whoever takes it up.
            continue
        children = [run for run in call.children or () if not run.ended]
        match call.phase:
            case Phase.PREPARING:
                return i.Prepared(
                    call=call.id,
                    arguments=call.arguments or {},
                    claims=call.claims,
                    cost=call.cost,
                )
            case Phase.AWAITING_APPROVAL:
                assert call.approval is not None
                return i.Answered(call=call.id, digest=call.approval, verdict=Verdict.APPROVE)
            case Phase.GRANTED:
                return i.Claimed(call=call.id)
            case Phase.RUNNING if questions := state.questions.get(call.id):
                return i.QuestionTold(call=call.id, question=next(iter(questions)), text="yes")
            case Phase.STOPPING if questions := state.questions.get(call.id):
                return i.QuestionLeft(call=call.id, question=next(iter(questions)))
            case Phase.RUNNING | Phase.STOPPING:
                slots = state.slots[call.contract.isolation]
                if children and call.phase is Phase.RUNNING and not call.parked:
                    return i.ParkBegan(call=call.id)
                idle = [r for r in children if not r.open_batches and not r.closing]
                if idle:
                    return i.CloseRun(run=idle[0].id)
                if children and call.phase is Phase.RUNNING:
                    continue
                if call.parked:
                    if call.id not in slots.line:
                        return i.ParkEnded(call=call.id)
                    continue
                if call.humans:
                    return i.HumanEnded(call=call.id)
                return i.BodyEnded(call=call.id, how=How.RETURNED, value=1)
            case Phase.SETTLED:
                if call.alive:
                    return i.BodyEnded(call=call.id, how=How.STOPPED)
            case Phase.QUEUED:
                pass
    resting = any(call.stage is Stage.RESTING for call in state.calls.values())
    return i.Tick() if resting and state.timers.next_due() is not None else None
