"""The planted bugs in recovery, retries and reconciling."""

from __future__ import annotations

from tests.mutants.runner import Mutant

RESUME = ("tests/recovery/test_resume.py",)
RETRY = ("tests/recovery/test_retry.py",)
RECONCILE = ("tests/recovery/test_reconcile.py",)
RESTORE = ("tests/unit/core/test_restore.py",)
AGAIN = ("tests/recovery/test_again.py",)
RECOVERY = ("tests/unit/core/test_recovery.py",)
LAWS = "tests/exhaustive/test_two_calls.py::test_every_order_keeps_every_law"


def _planted(name: str, law: str, file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(name=name, law=law, file=file, old=old, new=new, tests=tests)


CRASHES: tuple[Mutant, ...] = (
    _planted(
        "what had begun is resumed whatever it is",
        "10 no-blind-retry",
        "core/recovery.py",
        "        return self.may_reattach(call)\n",
        "        return True\n",
        RECOVERY,
    ),
    _planted(
        "what was being stopped is resumed",
        "10 no-blind-retry",
        "core/recovery.py",
        " or call in self._stopping:",
        ":",
        RECOVERY,
    ),
    _planted(
        "a cancelled run stays open",
        "16 survives-restart",
        "core/recovery.py",
        "        if self._cancelled or (self._closing and len(lost) == len(self.open)):\n",
        "        if self._closing and len(lost) == len(self.open):\n",
        RESUME,
    ),
    _planted(
        "any body is tried again",
        "10 no-blind-retry",
        "core/settling.py",
        "    return contract.effect in _AGAIN\n",
        "    return True\n",
        RETRY,
    ),
    _planted(
        "retries are not counted",
        "10 no-blind-retry",
        "core/settling.py",
        "    if attempts(call) >= contract.retries or ended.how",
        "    if ended.how",
        (f"{LAWS}[tried again]",),
    ),
    _planted(
        "a cancelled body is tried again",
        "10 no-blind-retry",
        "core/settling.py",
        "    stopped = call.stop_reason or call.run.cancelled or call.batch.cancelled\n",
        "    stopped = None\n",
        (f"{LAWS}[tried again]",),
    ),
    _planted(
        "every attempt has the whole deadline",
        "10 no-blind-retry",
        "core/evolve.py",
        "    call.meter = Meter(now if call.retried is None else now - call.retried.used_s)\n",
        "    call.meter = Meter(now)\n",
        RETRY,
    ),
    _planted(
        "a call that rests keeps its resources",
        "7 every-wait-listens",
        "core/evolve.py",
        "    call.stage = Stage.RESTING\n    gate.release(state, call, now)\n",
        "    call.stage = Stage.RESTING\n",
        (f"{LAWS}[tried again]",),
    ),
    _planted(
        "every attempt is counted",
        "20 paid-once",
        "core/evolve.py",
        "    if call.retried is None:\n        # Attempts",
        "    if True:\n        # Attempts",
        (f"{LAWS}[tried again]",),
    ),
    _planted(
        "what an earlier attempt left is forgotten",
        "5 honest-effect",
        "core/evolve.py",
        "    call.left = event.effect\n",
        "",
        (f"{LAWS}[tried again]",),
    ),
    _planted(
        "a call that was to run again says it never began",
        "5 honest-effect",
        "core/settling.py",
        "    if call.retried is not None or call.left is not Effect.NONE:\n",
        "    if False:\n",
        RETRY,
    ),
    _planted(
        "the reconciler is not believed",
        "10 no-blind-retry",
        "core/calls.py",
        "        again = told.done is False\n",
        "        again = True\n",
        RECONCILE,
    ),
    _planted(
        "a reconciler that cannot tell means not done",
        "10 no-blind-retry",
        "core/calls.py",
        "        again = told.done is False\n",
        "        again = told.done is not True\n",
        RECONCILE,
    ),
    _planted(
        "the time to answer begins anew",
        "13 one-approval",
        "core/restore.py",
        "        waited_s = max(0.0, wall_now - at)\n",
        "        waited_s = 0.0\n",
        RESTORE,
    ),
    _planted(
        "settled calls are restored open",
        "15 record-first",
        "core/restore.py",
        "        call.phase, call.settled, call.approval = Phase.SETTLED, event, None\n",
        "        call.settled, call.approval = event, None\n",
        RESUME,
    ),
    _planted(
        "a restored reservation is kept for ever",
        "20 paid-once",
        "core/restore.py",
        "            budget.release(call.reserved)\n",
        "",
        (f"{LAWS}[crash]",),
    ),
    _planted(
        "an opened journal keeps what it does not drive",
        "16 survives-restart",
        "run/orphans.py",
        "            settled.append(run)\n        journal.release(run)\n",
        "            settled.append(run)\n",
        RESUME,
    ),
    _planted(
        "what was queued stays queued",
        "16 survives-restart",
        "core/runs.py",
        "        batch.horizon = 0\n        gate.move_horizon(state, batch, now)\n",
        "",
        RESUME,
    ),
    _planted(
        "the same call again runs beside the first",
        "10 no-blind-retry",
        "core/again.py",
        "    if before is None or not before.alive:\n",
        "    if True:\n",
        AGAIN,
    ),
    _planted(
        "the same call again is not told of the first",
        "10 no-blind-retry",
        "core/again.py",
        "    if settled.effect is not Effect.UNKNOWN and not settled.alive:\n",
        "    if True:\n",
        AGAIN,
    ),
    _planted(
        "a run that continues another inherits nothing",
        "10 no-blind-retry",
        "run/lineage.py",
        "    return tuple(found.values())\n",
        "    return ()\n",
        AGAIN,
    ),
    _planted(
        "a lost sibling stops nobody",
        "14 isolated-siblings",
        "core/calls.py",
        "    if batch.stop_on_failure and any(one.outcome in settling.FAILURES for one in over):\n",
        "    if False:\n",
        RESTORE,
    ),
)
