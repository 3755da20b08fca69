"""The planted bugs: (name, law, file, old text, new text, tests that are expected to catch it)."""

from __future__ import annotations

from tests.mutants.control import CONTROL
from tests.mutants.crashes import CRASHES
from tests.mutants.delegation import DELEGATION
from tests.mutants.edges import EDGES
from tests.mutants.elsewhere import ELSEWHERE
from tests.mutants.humans import HUMANS
from tests.mutants.looping import LOOPING
from tests.mutants.models import MODELS
from tests.mutants.runner import Mutant
from tests.mutants.runs import RUNS
from tests.mutants.servers import SERVERS
from tests.mutants.serving import SERVING
from tests.mutants.tasks import TASKS

UNIT = "tests/unit/core/"
GATE = (UNIT + "test_gate.py",)
WAITERS = (UNIT + "test_waiters.py",)
STOP = (UNIT + "test_stop.py",)
RESOURCES = (UNIT + "test_resources.py",)
DEADLINES = (UNIT + "test_deadlines.py",)
BUDGET = (UNIT + "test_budget.py",)
RULES = (UNIT + "test_rules.py",)
RECOVERY = (UNIT + "test_recovery.py",)
TWO = "tests/exhaustive/test_two_calls.py"
THREE = "tests/exhaustive/test_three_calls.py"


def world(file: str, name: str) -> tuple[str, ...]:
    """One world of the explorer."""
    return (f"{file}::test_every_order_keeps_every_law[{name}]",)


def planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    """One planted bug."""
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


MUTANTS: tuple[Mutant, ...] = (
    # law 1 one-door
    planted(
        "gate without cancel",
        "1 one-door",
        "core/decide.py",
        "    reason = gate.forbidden(call)\n",
        "    reason = None\n",
        GATE,
    ),
    planted(
        "claim without cancel",
        "1 one-door",
        "core/calls.py",
        " or gate.forbidden(call)",
        "",
        GATE,
    ),
    planted(
        "claim from the queue",
        "1 one-door",
        "core/calls.py",
        "call.phase is not _GRANTED or gate",
        "call.phase not in (Phase.QUEUED, _GRANTED) or gate",
        WAITERS,
    ),
    planted(
        "the batch's cancel is not seen",
        "1 one-door",
        "core/gate.py",
        "    return call.run.cancelled or call.batch.cancelled\n",
        "    return call.run.cancelled\n",
        GATE,
    ),
    planted(
        "a second door to running",
        "1 one-door",
        "core/rules.py",
        "    Phase.QUEUED: {e.CallGranted: Phase.GRANTED, e.CallSettled: Phase.SETTLED},\n",
        "    Phase.QUEUED: {e.CallGranted: Phase.GRANTED, e.CallStarted: Phase.RUNNING,\n"
        "                   e.CallSettled: Phase.SETTLED},\n",
        RULES,
    ),
    planted(
        "a hook's word after the cancel queues",
        "1 one-door",
        "core/calls.py",
        "def prepared(state: State, said: i.Prepared, now: float) -> list[e.Event]:\n"
        "    call = state.calls.get(said.call)\n"
        "    if call is None or call.phase is not Phase.PREPARING or call.run.suspending:\n",
        "def prepared(state: State, said: i.Prepared, now: float) -> list[e.Event]:\n"
        "    call = state.calls.get(said.call)\n"
        "    if call is None or call.phase not in (Phase.PREPARING, Phase.SETTLED):\n",
        GATE,
    ),
    planted(
        "commit after a stop",
        "1 one-door",
        "core/calls.py",
        "call.phase is not Phase.RUNNING or call.commit is Commit.INSIDE",
        "call.phase is Phase.SETTLED or call.commit is Commit.INSIDE",
        world(TWO, "commit point"),
    ),
    # law 2 right-target
    planted(
        "cancel is not sticky",
        "2 right-target",
        "core/runs.py",
        "    run.cancelled = run.cancelled or event.reason\n",
        "    run.cancelled = None\n",
        world(TWO, "independent"),
    ),
    planted(
        "the last reason wins",
        "2 right-target",
        "core/settling.py",
        "    first = run.cancelled or reason\n",
        "    first = reason\n",
        STOP,
    ),
    planted(
        "drain stops what runs",
        "2 right-target",
        "core/settling.py",
        "        case Phase.RUNNING if mode is Mode.DRAIN:\n            return []\n",
        "",
        STOP,
    ),
    planted(
        "a batch's cancel hits the run",
        "2 right-target",
        "core/settling.py",
        "    for call in batch.calls:\n        if call is not but:\n",
        "    for call in batch.run.calls():\n        if call is not but:\n",
        STOP,
    ),
    # law 3 one-ending
    planted(
        "a late result revives",
        "3 one-ending",
        "core/rules.py",
        "    Phase.SETTLED: {},\n",
        "    Phase.SETTLED: {e.CallSettled: Phase.SETTLED},\n",
        RULES,
    ),
    planted(
        "settled twice",
        "3 one-ending",
        "core/calls.py",
        "    if call.phase is _SETTLED:\n        return [\n            e.LateEnd(",
        "    if call.phase is Phase.PREPARING:\n        return [\n            e.LateEnd(",
        STOP,
    ),
    planted(
        "a late end is recorded again",
        "3 one-ending",
        "core/evolve.py",
        "    call.alive = False\n    if call.slot:\n",
        "    if call.slot:\n",
        GATE,
    ),
    planted(
        "a killed body has returned",
        "3 one-ending",
        "core/settling.py",
        "    if how is _RETURNED:\n",
        "    if how in (_RETURNED, How.STOPPED):\n",
        STOP,
    ),
    planted(
        "an error after the stop is the tool's",
        "3 one-ending",
        "core/settling.py",
        "call.stop_reason is not None and call.rung is not None",
        "False",
        STOP,
    ),
    planted(
        "a batch never closes",
        "3 one-ending",
        "core/evolve.py",
        "    if batch.unsettled == 0 and len(batch.calls) == batch.size:\n"
        "        state.check_batches.append(batch)\n",
        "",
        world(TWO, "independent"),
    ),
    # law 4 one-answer
    planted(
        "no barrier",
        "4 one-answer",
        "core/gate.py",
        "    return call.contract.exclusive or call.batch.parallel == 1\n",
        "    return False\n",
        GATE,
    ),
    planted(
        "a barrier only for itself",
        "4 one-answer",
        "core/gate.py",
        "min(size, at + 1) if batch.settled_below == at else at",
        "size if batch.settled_below == at else at",
        GATE,
    ),
    planted(
        "the order is ignored",
        "4 one-answer",
        "core/gate.py",
        "    return batch.order.is_clear(call.id)\n",
        "    return True\n",
        GATE,
    ),
    planted(
        "order of readiness",
        "4 one-answer",
        "core/gate.py",
        "        if call.index == batch.entered_below:\n            return True\n",
        "        return True\n",
        GATE,
    ),
    planted(
        "the horizon is off by one",
        "4 one-answer",
        "core/gate.py",
        "    if call.index >= batch.horizon:\n",
        "    if call.index > batch.horizon:\n",
        GATE,
    ),
    planted(
        "together is ignored",
        "4 one-answer",
        "core/gate.py",
        "(batch.together and batch.unprepared)",
        "False",
        GATE,
    ),
    planted(
        "a refused call holds the others back",
        "4 one-answer",
        "core/evolve.py",
        "    if before is _PREPARING or before is _AWAITING:\n        batch.unprepared -= 1\n",
        "",
        GATE,
    ),
    planted(
        "new arguments lose their place",
        "4 one-answer",
        "core/evolve.py",
        "        call.claims = claims\n        gate.reorder(state, call, now)\n",
        "        call.claims = claims\n",
        GATE,
    ),
    # law 5 honest-effect
    planted(
        "nothing happened, says a stopped body",
        "5 honest-effect",
        "core/state.py",
        "    return Effect.UNKNOWN\n",
        "    return Effect.NONE\n",
        STOP,
    ),
    planted(
        "commit is ignored",
        "5 honest-effect",
        "core/evolve.py",
        "Commit.DONE if event.done else Commit.FAILED",
        "Commit.NONE",
        STOP,
    ),
    planted(
        "a block that raised is as if not entered",
        "5 honest-effect",
        "core/evolve.py",
        "Commit.DONE if event.done else Commit.FAILED",
        "Commit.DONE if event.done else Commit.NONE",
        STOP,
    ),
    planted(
        "never started, timed out",
        "5 honest-effect",
        "core/settling.py",
        "Outcome.LOST if reason is Reason.DRIVER_LOST else Outcome.REJECTED\n",
        "Outcome.LOST if reason is Reason.DRIVER_LOST else Outcome.TIMED_OUT\n",
        GATE,
    ),
    # law 6 bounded-stop
    planted(
        "the kill rung is skipped",
        "6 bounded-stop",
        "core/settling.py",
        "    if call.contract.killable and call.rung is not StoppedBy.KILLED:\n",
        "    if False:\n",
        STOP,
    ),
    planted(
        "no bound for the grace",
        "6 bounded-stop",
        "core/evolve.py",
        "    call.rung = StoppedBy.ASKED\n    state.timers.set(call, now + event.grace_s)\n",
        "    call.rung = StoppedBy.ASKED\n",
        STOP,
    ),
    planted(
        "a commit block has no bound",
        "6 bounded-stop",
        "core/evolve.py",
        "now + call.contract.commit_s if waits else None",
        "None",
        STOP,
    ),
    planted(
        "a stop breaks into the commit block",
        "6 bounded-stop",
        "core/settling.py",
        "    return [] if call.commit is Commit.INSIDE else [ask(call)]\n",
        "    return [ask(call)]\n",
        STOP,
    ),
    planted(
        "kill gives up before it asks",
        "6 bounded-stop",
        "core/settling.py",
        "    if call.rung is None:\n",
        "    if False:\n",
        STOP,
    ),
    planted(
        "one tick spends the grace",
        "6 bounded-stop",
        "core/decide.py",
        "    while (item := state.timers.take_due(now)) is not None:\n",
        "    due = []\n    while (first := state.timers.take_due(now)) is not None:\n"
        "        due.append(first)\n    for item in due:\n",
        STOP,
    ),
    # law 7 every-wait-listens
    planted(
        "a cancelled call stays in the slot line",
        "7 every-wait-listens",
        "core/gate.py",
        "        batch.line.pop(call.id, None)\n"
        "        state.slots[call.contract.isolation].line.pop(call.id, None)\n",
        "        batch.line.pop(call.id, None)\n",
        world(TWO, "fenced and closed"),
    ),
    planted(
        "a cancelled call stays in the lane line",
        "7 every-wait-listens",
        "core/gate.py",
        "        batch.line.pop(call.id, None)\n",
        "",
        world(THREE, "two lanes and a deadline for all"),
    ),
    planted(
        "a cancelled waiter stays in the table",
        "7 every-wait-listens",
        "core/gate.py",
        "    if call.claims and call.id in state.resources:\n        cleared",
        "    if call.claims and call.started and call.id in state.resources:\n        cleared",
        GATE,
    ),
    planted(
        "a cancelled call stays in the order",
        "7 every-wait-listens",
        "core/gate.py",
        "        freed = () if call.stage > _ORDER else _out_of_order(state, call)\n",
        "        freed = ()\n",
        world(TWO, "hook before a conflicting call"),
    ),
    # law 8 machine-time
    planted(
        "the deadline counts pauses",
        "8 machine-time",
        "core/deadlines.py",
        "            self._paused_s += now - self._paused_at\n",
        "            pass\n",
        DEADLINES,
    ),
    planted(
        "pauses do not nest",
        "8 machine-time",
        "core/deadlines.py",
        "        self._pauses -= 1\n",
        "        self._pauses = 0\n",
        DEADLINES,
    ),
    planted(
        "a pause too many for the batch",
        "8 machine-time",
        "core/pauses.py",
        "    if not call.meter.paused:\n        human_began(",
        "    if True:\n        human_began(",
        STOP,
    ),
    planted(
        "progress extends the deadline",
        "8 machine-time",
        "core/pauses.py",
        "        due = idle if due is None else min(due, idle)\n",
        "        due = idle\n",
        STOP,
    ),
    planted(
        "the idle limit is forgotten",
        "8 machine-time",
        "core/pauses.py",
        "        due = idle if due is None else min(due, idle)\n",
        "        pass\n",
        STOP,
    ),
    planted(
        "no timer after a pause",
        "8 machine-time",
        "core/pauses.py",
        "        human_ended(state, call.batch, now)\n    if call.phase is Phase.RUNNING:\n",
        "        human_ended(state, call.batch, now)\n    if False:\n",
        STOP,
    ),
    planted(
        "drain lifts the deadline",
        "8 machine-time",
        "core/evolve.py",
        "    if event.mode is not Mode.DRAIN:\n        state.timers.set(batch, None)\n",
        "    state.timers.set(batch, None)\n",
        STOP,
    ),
    planted(
        "an approval does not pause",
        "8 machine-time",
        "core/evolve.py",
        "    call.phase_at = now\n    pauses.human_began(state, call.batch, now)\n",
        "    call.phase_at = now\n",
        STOP,
    ),
    planted(
        "a parent's time runs while its child asks",
        "8 machine-time",
        "core/pauses.py",
        "    parent = batch.run.parent if batch.run.attached else None\n",
        "    parent = None\n",
        STOP,
    ),
    planted(
        "a parked body stays in line",
        "7 every-wait-listens",
        "core/gate.py",
        "        if call.parked:\n            state.slots",
        "        if False:\n            state.slots",
        GATE,
    ),
    # law 9 on-the-books
    planted(
        "an abandoned worker frees everything",
        "9 on-the-books",
        "core/settling.py",
        "        ran_s=call.meter.ran_s(now),\n        alive=True,\n",
        "        ran_s=call.meter.ran_s(now),\n",
        GATE,
    ),
    planted(
        "release at the deadline",
        "9 on-the-books",
        "core/evolve.py",
        "    if not event.alive:\n        close_books(call, event)\n",
        "    if True:\n        close_books(call, event)\n",
        GATE,
    ),
    planted(
        "never saturated",
        "9 on-the-books",
        "core/state.py",
        "        return self.limit is not None and self.abandoned >= self.limit\n",
        "        return False\n",
        GATE,
    ),
    planted(
        "saturated for ever",
        "9 on-the-books",
        "core/evolve.py",
        "        state.slots[call.contract.isolation].abandoned -= 1\n",
        "        pass\n",
        GATE,
    ),
    # law 12 no-leaked-lock
    planted(
        "last come, first served",
        "12 no-leaked-lock",
        "core/resources.py",
        "            key, mode = next(iter(node.line.items()))\n",
        "            key, mode = next(reversed(node.line.items()))\n",
        RESOURCES,
    ),
    planted(
        "whoever fits overtakes",
        "12 no-leaked-lock",
        "core/resources.py",
        "            if not node.line and node.admits(mode, kin):\n",
        "            if node.admits(mode, kin):\n",
        RESOURCES,
    ),
    planted(
        "readers exclude nobody",
        "12 no-leaked-lock",
        "core/resources.py",
        "    (EXCLUSIVE_BELOW, EXCLUSIVE),\n",
        "    (EXCLUSIVE,),\n",
        RESOURCES,
    ),
    planted(
        "paths do not nest",
        "12 no-leaked-lock",
        "core/resources.py",
        'if not colon or not name.startswith("/"):',
        "if True:",
        RESOURCES,
    ),
    planted(
        "a child waits for who waits for its parent",
        "12 no-leaked-lock",
        "core/resources.py",
        "            if kin:\n",
        "            if kin and False:\n",
        RESOURCES,
    ),
    planted(
        "a parent excludes its child",
        "12 no-leaked-lock",
        "core/gate.py",
        "    kin = tuple(key for key in call.run.kin() if key in state.resources)\n",
        "    kin = ()\n",
        world(THREE, "a parent, its child and a stranger"),
    ),
    planted(
        "a detached child is kin",
        "12 no-leaked-lock",
        "core/state.py",
        "        while run.attached and run.parent is not None:\n",
        "        while run.parent is not None:\n",
        world(THREE, "a detached child"),
    ),
    planted(
        "one slot too many",
        "12 no-leaked-lock",
        "core/state.py",
        "        return self.limit is None or self.taken < self.limit\n",
        "        return self.limit is None or self.taken <= self.limit\n",
        GATE,
    ),
    planted(
        "a lane is not passed on",
        "12 no-leaked-lock",
        "core/gate.py",
        "        if batch.line:\n",
        "        if False:\n",
        GATE,
    ),
    planted(
        "a lane leaks",
        "12 no-leaked-lock",
        "core/gate.py",
        "    if call.lane:\n",
        "    if call.lane and call.started:\n",
        GATE,
    ),
    planted(
        "a slot leaks where the start failed",
        "12 no-leaked-lock",
        "core/gate.py",
        "    if call.slot:\n",
        "    if call.slot and call.started:\n",
        world(TWO, "independent"),
    ),
    planted(
        "a parked body keeps its slot",
        "12 no-leaked-lock",
        "core/evolve.py",
        "    call.parked = True\n    _free_slot(state, call)\n",
        "    call.parked = True\n",
        WAITERS,
    ),
    planted(
        "a parked body goes to the end of the line",
        "12 no-leaked-lock",
        "core/gate.py",
        "    line.move_to_end(call.id, last=False)\n",
        "",
        GATE,
    ),
    planted(
        "who waits is not woken",
        "12 no-leaked-lock",
        "core/resources.py",
        "            self._advance(node, cleared)\n",
        "",
        RESOURCES,
    ),
    # law 13 one-approval
    planted(
        "any digest will do",
        "13 one-approval",
        "core/calls.py",
        " or call.approval != said.digest",
        "",
        STOP,
    ),
    planted(
        "silence is consent",
        "13 one-approval",
        "core/calls.py",
        "            return [settling.unstarted(call, Reason.APPROVAL_EXPIRED)]\n",
        "            assert call.approval\n"
        "            yes = i.Answered(call=call.id, digest=call.approval,\n"
        "                             verdict=Verdict.APPROVE)\n"
        "            return answered(state, yes, now)\n",
        STOP,
    ),
    planted(
        "an expired approval was denied",
        "13 one-approval",
        "core/calls.py",
        "settling.unstarted(call, Reason.APPROVAL_EXPIRED)",
        "settling.unstarted(call, Reason.DENIED_BY_HUMAN)",
        STOP,
    ),
    # law 14 isolated-siblings
    planted(
        "siblings go on",
        "14 isolated-siblings",
        "core/settling.py",
        "    if call.batch.stop_on_failure and any(\n",
        "    if False and any(\n",
        STOP,
    ),
    planted(
        "a failure always stops the siblings",
        "14 isolated-siblings",
        "core/settling.py",
        "    if call.batch.stop_on_failure and any(\n",
        "    if any(\n",
        GATE,
    ),
    planted(
        "the failed call is stopped with the others",
        "14 isolated-siblings",
        "core/settling.py",
        "        if call is not but:\n",
        "        if True:\n",
        STOP,
    ),
    # law 16 survives-restart
    planted(
        "lost means nothing happened",
        "16 survives-restart",
        "core/recovery.py",
        "        return Effect.UNKNOWN\n",
        "        return Effect.NONE\n",
        RECOVERY,
    ),
    planted(
        "only the started are lost",
        "16 survives-restart",
        "core/recovery.py",
        "                case e.CallGranted() | e.CallStarted():\n",
        "                case e.CallStarted():\n",
        RECOVERY,
    ),
    planted(
        "all that is open is lost",
        "16 survives-restart",
        "core/recovery.py",
        "        return call in self._begun or "
        "(effect is EffectClass.IDEMPOTENT and not self._clean)\n",
        "        return True\n",
        RECOVERY,
    ),
    # law 17 children-settle
    planted(
        "children are not cancelled",
        "17 children-settle",
        "core/settling.py",
        "    for run in call.children or ():\n",
        "    for run in ():\n",
        STOP,
    ),
    planted(
        "born after the stop, alive",
        "17 children-settle",
        "core/decide.py",
        "    if parent is None or said.detached or parent.phase is Phase.RUNNING:\n",
        "    if True:\n",
        STOP,
    ),
    # law 20 paid-once
    planted(
        "a reservation is not given back",
        "20 paid-once",
        "core/books.py",
        "        budget.release(call.reserved)\n",
        "        pass\n",
        GATE,
    ),
    planted(
        "a reservation is given back twice",
        "20 paid-once",
        "core/books.py",
        "        budget.release(call.reserved)\n",
        "        budget.release(call.reserved)\n        budget.release(call.reserved)\n",
        world(TWO, "money"),
    ),
    planted(
        "the parent's budget is ignored",
        "20 paid-once",
        "core/budget.py",
        "                return why\n            book = book.above\n",
        "                return why\n            book = None\n",
        BUDGET,
    ),
    planted(
        "no budget at the gate",
        "20 paid-once",
        "core/decide.py",
        "    too_dear = call.run.budget.refuses(call.tool, call.cost)\n",
        "    too_dear = None\n",
        GATE,
    ),
    planted(
        "late spending is dropped",
        "20 paid-once",
        "core/calls.py",
        "    if call is None or not call.started:\n",
        "    if call is None or not call.started or call.phase is Phase.SETTLED:\n",
        GATE,
    ),
    planted(
        "late spending is paid on top",
        "20 paid-once",
        "core/evolve.py",
        "        call.run.budget.unspend(call.assumed)\n",
        "        pass\n",
        world(TWO, "money"),
    ),
    planted(
        "a call that never began counts",
        "20 paid-once",
        "core/books.py",
        "        budget.uncount(call.tool)\n",
        "        pass\n",
        world(TWO, "independent"),
    ),
    *RUNS,
    *TASKS,
    *CONTROL,
    *CRASHES,
    *DELEGATION,
    *HUMANS,
    *EDGES,
    *ELSEWHERE,
    *LOOPING,
    *MODELS,
    *SERVERS,
    *SERVING,
)
