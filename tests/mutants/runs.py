"""The planted bugs in the life of a run: its notes, its declared ending, letting it go."""

from __future__ import annotations

from tests.mutants.runner import Mutant

NOTES = ("tests/unit/core/test_notes.py",)
DRIVEN = ("tests/drivers/test_notes.py",)
CONTRACT = ("tests/store/test_contract.py",)
LAWS = "tests/exhaustive/test_runs.py::test_every_order_keeps_every_law"
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
        "        return isinstance(said, i.CommitEntered | i.Note)\n",
        "        return isinstance(said, i.CommitEntered)\n",
        DRIVEN,
    ),
    _planted(
        "a note is shown before it is recorded",
        "15 record-first",
        "run/recording.py",
        "e.RunEnded, e.RunInterrupted, e.Noted}",
        "e.RunEnded, e.RunInterrupted}",
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
)
