"""The planted bugs in the life of a run: its notes, its declared ending, letting it go."""

from __future__ import annotations

from tests.mutants.runner import Mutant

NOTES = ("tests/unit/core/test_notes.py",)
DRIVEN = ("tests/drivers/test_notes.py",)
CONTRACT = ("tests/store/test_contract.py",)
LAWS = "tests/exhaustive/test_runs.py::test_every_order_keeps_every_law"
SUSPENDED = (f"{LAWS}[suspended]",)
LET_GO = ("tests/recovery/test_suspend.py",)
REATTACHED = ("tests/agents/test_reattached.py",)
NOTED = (f"{LAWS}[notes and declared endings]",)


def _planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


RUNS: tuple[Mutant, ...] = (
    _planted(
        "a note after the end of its run",
        "3 one-ending",
        "core/runs.py",
        "    if run is None or run.ended:\n        return []\n    if said.call",
        "    if run is None:\n        return []\n    if said.call",
        NOTED,
    ),
    _planted(
        "a note of a settled call",
        "3 one-ending",
        "core/runs.py",
        " or call.run is not run or call.phase is Phase.SETTLED:",
        " or call.run is not run:",
        NOTED,
    ),
    _planted(
        "a note in the name of another run's call",
        "2 right-target",
        "core/runs.py",
        " or call.run is not run or call.phase is Phase.SETTLED:",
        " or call.phase is Phase.SETTLED:",
        NOTES,
    ),
    _planted(
        "a note that was not recorded is said to be kept",
        "15 record-first",
        "run/engine.py",
        "        return isinstance(said, i.CommitEntered | i.Note | i.Together)\n",
        "        return isinstance(said, i.CommitEntered | i.Together)\n",
        DRIVEN,
    ),
    _planted(
        "work begins although the message for it came too late",
        "3 one-ending",
        "core/decide.py",
        "        if not found:\n            break\n        happened += found",
        "        happened += found",
        NOTES,
    ),
    _planted(
        "what happened before a refusal is not recorded",
        "15 record-first",
        "core/decide.py",
        "            if not happened:\n                raise\n",
        "            raise\n",
        NOTES,
    ),
    _planted(
        "a note is shown before it is recorded",
        "15 record-first",
        "run/recording.py",
        "        e.Noted,\n",
        "",
        DRIVEN,
    ),
    _planted(
        "a later cancel overrules a declared ending",
        "3 one-ending",
        "core/settling.py",
        "    if declared is not None:\n",
        "    if declared is not None and cancelled is None:\n",
        NOTED,
    ),
    _planted(
        "a later declared ending overrules a cancel",
        "3 one-ending",
        "core/runs.py",
        "    counts = run.declared is None and run.cancelled is None\n",
        "    counts = run.declared is None\n",
        NOTED,
    ),
    _planted(
        "the last declared ending stands",
        "3 one-ending",
        "core/runs.py",
        "    counts = run.declared is None and run.cancelled is None\n",
        "    counts = run.cancelled is None\n",
        NOTED,
    ),
    _planted(
        "a declared ending dies with its driver",
        "16 survives-restart",
        "core/recovery.py",
        "run_end(self.run, self._declared, self._cancelled)",
        "run_end(self.run, None, self._cancelled)",
        NOTES,
    ),
    _planted(
        "a declared ending is not restored",
        "16 survives-restart",
        "core/restore.py",
        "        self.run.declared = self.run.declared or event.outcome\n",
        "",
        NOTES,
    ),
    _planted(
        "one label is enough",
        "2 right-target",
        "store/memory.py",
        "if all(run in runs for runs in found)]",
        "]",
        CONTRACT,
    ),
    # letting a run go
    _planted(
        "a run is let go while a call of it runs",
        "15 record-first",
        "core/suspending.py",
        "    if not begun:\n",
        "    if True:\n",
        SUSPENDED,
    ),
    _planted(
        "a grant that is taken back stays counted",
        "20 paid-once",
        "core/suspending.py",
        "            _take_back(call)\n",
        "            call.phase = Phase.QUEUED\n",
        (f"{LAWS}[suspended while calls are tried again]",),
    ),
    _planted(
        "what has not begun goes on while its run is let go",
        "15 record-first",
        "core/suspending.py",
        "    run.suspending = True\n    _withdraw(state, run, now)\n",
        "    run.suspending = True\n",
        SUSPENDED,
    ),
    _planted(
        "what is let go keeps what it held",
        "12 no-leaked-lock",
        "core/suspending.py",
        "        gate.release(state, call, now)\n",
        "",
        (f"{LAWS}[suspended beside another run]",),
    ),
    _planted(
        "a hook's word moves a call on while its run is let go",
        "15 record-first",
        "core/calls.py",
        "def prepared(state: State, said: i.Prepared, now: float) -> list[e.Event]:\n"
        "    call = state.calls.get(said.call)\n"
        "    if call is None or call.phase is not Phase.PREPARING or call.run.suspending:\n",
        "def prepared(state: State, said: i.Prepared, now: float) -> list[e.Event]:\n"
        "    call = state.calls.get(said.call)\n"
        "    if call is None or call.phase is not Phase.PREPARING:\n",
        SUSPENDED,
    ),
    _planted(
        "an answer moves a call on while its run is let go",
        "13 one-approval",
        "core/calls.py",
        "    if call.run.suspending:\n        # It is still asked",
        "    if False:\n        # It is still asked",
        SUSPENDED,
    ),
    _planted(
        "a run that ended is let go as well",
        "3 one-ending",
        "core/runs.py",
        "    run.ended, run.suspending = True, False\n",
        "    run.ended = True\n",
        SUSPENDED,
    ),
    _planted(
        "a child is let go under its parent",
        "17 children-settle",
        "core/suspending.py",
        "    if run.parent is not None and not run.parent.run.ended "
        "and (run.attached or not said.stop):\n",
        "    if False:\n",
        LET_GO,
    ),
    _planted(
        "a run that was let go is taken for one that was lost",
        "10 no-blind-retry",
        "core/suspending.py",
        "        return [e.RunInterrupted(run=run.id, clean=True)]\n",
        "        return [e.RunInterrupted(run=run.id)]\n",
        LET_GO,
    ),
    _planted(
        "a grant that nobody claimed is taken for a start",
        "10 no-blind-retry",
        "core/recovery.py",
        "                    self._begun &= self._started\n",
        "",
        LET_GO,
    ),
    _planted(
        "a grant that nobody claimed is restored as begun",
        "10 no-blind-retry",
        "core/restore.py",
        "        if not event.clean:\n            return\n",
        "        return\n",
        LET_GO,
    ),
    _planted(
        "what never began is unknown after all",
        "5 honest-effect",
        "core/restore.py",
        "        if idempotent and call.left is Effect.NONE and not self.clean:\n",
        "        if idempotent and call.left is Effect.NONE:\n",
        LET_GO,
    ),
    _planted(
        "a shutdown settles what has not begun",
        "15 record-first",
        "run/stopping.py",
        "                if suspend and self.engine.tell(",
        "                if False and self.engine.tell(",
        LET_GO,
    ),
    _planted(
        "whoever waits for a run that was let go is not told",
        "16 survives-restart",
        "run/forgetting.py",
        "        promise.keep(error)\n",
        "        promise.keep()\n",
        LET_GO,
    ),
    _planted(
        "a body that was abandoned writes to a run that was let go",
        "3 one-ending",
        "run/forgetting.py",
        "        run.fenced = True\n",
        "",
        LET_GO,
    ),
    _planted(
        "an old handle closes the run that was taken up",
        "2 right-target",
        "run/blocking_run.py",
        "        if self._life.error is None and self.id in engine.state.runs:\n",
        "        if self.id in engine.state.runs:\n",
        LET_GO,
    ),
    _planted(
        "a run that was let go is still owned",
        "16 survives-restart",
        "run/blocking.py",
        "        self._check_suspended(over)\n        self.engine.journal.release(run_id)\n",
        "        self._check_suspended(over)\n",
        LET_GO,
    ),
    _planted(
        "a cancel of what nobody drives is not recorded",
        "16 survives-restart",
        "run/orphans.py",
        "        orphan._append(found)\n",
        "",
        LET_GO,
    ),
    # tasks that are elsewhere, and children
    _planted(
        "a task that was submitted is submitted again",
        "10 no-blind-retry",
        "run/submitted.py",
        "        return (self._reference,)\n",
        "        return None\n",
        REATTACHED,
    ),
    _planted(
        "a reference serves every attempt",
        "10 no-blind-retry",
        "run/submitted.py",
        '        self._call = ""\n',
        "",
        REATTACHED,
    ),
    _planted(
        "the reference of an attempt that was over is used",
        "10 no-blind-retry",
        "core/recovery.py",
        "            self.references.pop(event.call, None)\n",
        "            pass\n",
        REATTACHED,
    ),
    _planted(
        "a note alone lets a call run again",
        "10 no-blind-retry",
        "core/recovery.py",
        "        return self.open[call].contract.reattaches and call in self.references\n",
        "        return call in self.references\n",
        REATTACHED,
    ),
    _planted(
        "the children of a body that was lost stay open",
        "17 children-settle",
        "run/orphans.py",
        "    if not left.ended and _is_attached(left.opened):\n",
        "    if False:\n",
        REATTACHED,
    ),
    _planted(
        "a driver on another host is taken for gone",
        "16 survives-restart",
        "store/owner.py",
        "    if owner is None or owner.host != _host():\n        return True\n",
        "    if owner is None or owner.host != _host():\n        return False\n",
        ("tests/recovery/test_other_host.py",),
    ),
    # what is known of a call that is made again, and what a lost one has cost
    _planted(
        "the same call again is not told of the one before",
        "10 no-blind-retry",
        "core/decide.py",
        "    return _granted(run=run, call=call.id, reserved=call.cost, earlier=earlier)\n",
        "    return _granted(run=run, call=call.id, reserved=call.cost, earlier=None)\n",
        (f"{LAWS}[made again]",),
    ),
    _planted(
        "the same call again runs beside the one before",
        "10 no-blind-retry",
        "core/again.py",
        "    if before is None or not before.alive:\n",
        "    if True:\n",
        (f"{LAWS}[made again]",),
    ),
    _planted(
        "the answer of a lost call forgets what it cost",
        "20 paid-once",
        "core/recovery.py",
        "            spent=self._spent.get(call, ()),\n",
        "",
        ("tests/cases/test_resumed.py",),
    ),
    _planted(
        "whoever opens a journal takes what was let go",
        "16 survives-restart",
        "run/orphans.py",
        "        if left.is_marked and not _is_attached(left.opened):\n",
        "        if False:\n",
        LET_GO,
    ),
    _planted(
        "a run that drains holds up a shutdown",
        "6 bounded-stop",
        "run/stopping.py",
        "                if suspend and self.engine.tell(i.SuspendRun(run=run.id, stop=True)):\n"
        "                    continue\n",
        "                if suspend:\n"
        "                    self.engine.tell(i.SuspendRun(run=run.id, stop=True))\n"
        "                    continue\n",
        ("tests/recovery/test_suspend.py",),
    ),
    _planted(
        "a run is let go while another draws on its budget",
        "20 paid-once",
        "core/suspending.py",
        "    if run.below and not said.stop:\n",
        "    if False:\n",
        LET_GO,
    ),
    _planted(
        "a cancel of what was lost leaves the runs below it",
        "17 children-settle",
        "run/orphans.py",
        "    if any(isinstance(event, e.RunEnded) for event in found):\n",
        "    if False:\n",
        REATTACHED,
    ),
)
