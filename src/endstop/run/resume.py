"""Taking up a run whose driver is gone: adopt it, restore it, and let it go on (law 16).

What is recorded as over is over and never runs again; what had not begun goes on where it stood;
of what may have begun, only what can do no harm runs again, and of a tool that can be asked it is
asked first (law 10 no-blind-retry). Nothing here waits: the drivers ask the reconcilers, each in
its own way, between `take` and `go_on`, and until then nothing of the run is in the live state, so
that giving up leaves it as it was.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from endstop.core import events as e
from endstop.core import inputs as i
from endstop.core.decide import step
from endstop.core.recovery import Unfinished
from endstop.core.restore import restore
from endstop.core.settling import may_run_again
from endstop.core.terms import Isolation, Phase, Reason, Refusal
from endstop.errors import CallerError, RuntimeClosed
from endstop.run.answers import recorded_results
from endstop.run.orphans import Orphan
from endstop.run.plans import Plan
from endstop.run.results import BatchResult
from endstop.run.submitted import Recalled, here, recalled
from endstop.tools.tool import Tool

if TYPE_CHECKING:
    from endstop.run.base import BaseRuntime


class TakenUp:
    """A run that was adopted and read, and is not in the live state yet.

    `ask` are the lost calls whose tools can be asked what became of them.
    """

    def __init__(
        self, runtime: BaseRuntime, orphan: Orphan, tools: Mapping[str, Tool] | None = None
    ) -> None:
        self.run_id = orphan.run
        self._tools = tools
        self.ask: list[Plan] = []
        self._runtime = runtime
        self._orphan = orphan
        self._recorded = orphan.recorded
        self._left = orphan.left
        self._plans: dict[str, Plan] = {}
        self._refused: list[tuple[str, Refusal]] = []
        self._again: list[str] = []
        self._make_plans()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to resume: the run was cancelled, or closed and over."""
        return self._left.ended

    def _make_plans(self) -> None:
        begun = set(self._left.begun)
        arguments = _final_arguments(one.event for one in self._recorded)
        context = contextvars.copy_context()
        context.run(here.set, self._runtime)
        for call, accepted in self._left.open.items():
            plan = self._plan(accepted, arguments[call])
            if isinstance(plan, Refusal):
                # One that may have begun is lost then: it cannot be refused any more.
                if call not in begun:
                    self._refused.append((call, plan))
                continue
            plan.context = context.copy()
            self._plans[call] = plan
            if call in begun:
                self._sort_begun(call, plan)

    def _sort_begun(self, call: str, plan: Plan) -> None:
        assert plan.tool is not None, "a plan that was made anew has a tool"
        if self._left.may_reattach(call) and plan.tool.declared.reattaches:
            assert plan.context is not None, "a plan is sorted when it has its context"
            plan.context.run(recalled.set, Recalled(call, self._left.references[call]))
            self._again.append(call)
            return
        if plan.contract.reconciles and plan.tool.reconcile is not None:
            self.ask.append(plan)
        elif may_run_again(plan.contract):
            self._again.append(call)

    def _plan(self, accepted: e.CallAccepted, arguments: dict[str, Any] | None) -> Plan | Refusal:
        """The plan of a recorded call with the tools of this runtime, under its recorded terms."""
        planner = self._runtime.planner
        tool = None if self._tools is None else self._tools.get(accepted.tool)
        tool = tool or planner.find(accepted.tool)
        if tool is None:
            words = f"the run was resumed where no tool is named {accepted.tool!r}"
            return Refusal(reason=Reason.UNKNOWN_TOOL, message=words)
        contract, declared = accepted.contract, tool.declared
        if declared.isolation is not contract.isolation:
            words = f"the run was resumed where {tool.name!r} runs as {declared.isolation}"
            return Refusal(reason=Reason.START_FAILED, message=words)
        changed = may_run_again(contract) and declared.effect is not contract.effect
        if changed and self._left.may_have_begun(accepted.call):
            words = f"the run was resumed where {tool.name!r} is {declared.effect}"
            return Refusal(reason=Reason.START_FAILED, message=words)
        plan = Plan(tool.name, tool, contract)
        plan.accepted(self.run_id, accepted.call)
        assert arguments is not None, "a call without arguments is settled where it is accepted"
        return planner.fill(plan, tool, arguments) or plan

    def let_go(self) -> None:
        """Leave the run as it is, for whoever comes."""
        self._orphan.let_go()

    def go_on(self, told: Sequence[i.Reconciled] = ()) -> list[tuple[str, Plan]]:
        """Restore the run into the live state and resume it; returns what must still be prepared.

        One step under the engine's lock: nobody sees the run restored and not resumed.
        """
        engine = self._runtime.engine
        if any(plan.contract.isolation is Isolation.PROCESS for plan in self._plans.values()):
            self._runtime._need_processes()
        said = i.ResumeRun(
            run=self.run_id,
            again=tuple(self._again),
            reconciled=tuple(told),
            refused=tuple(self._refused),
        )
        stamped = [(one.at_s, one.event) for one in self._recorded]
        with engine.lock:
            now = engine.clock()
            run = restore(engine.state, stamped, now, time.time())
            engine.plans.update(self._plans)
            unprepared = [
                (call.id, self._plans[call.id])
                for call in run.calls()
                if call.phase is Phase.PREPARING and call.id in self._plans
            ]
            events = step(engine.state, said, now)
            recorded = engine._record(events, now)
            due = engine._next_alarm()
        engine._after(recorded, due)
        return unprepared

    def results(self) -> list[BatchResult]:
        """The answers of the batches that were over before, as they were recorded."""
        return recorded_results(one.event for one in self._recorded)


def take(runtime: BaseRuntime, run_id: str, tools: Mapping[str, Tool] | None = None) -> TakenUp:
    """Adopt an interrupted run and read it; see `Runtime.resume` for what it raises.

    `tools` are those that its calls may name, where they are not the runtime's.
    """
    if runtime._closed:
        raise RuntimeClosed("this runtime is closed; make a new one")
    engine = runtime.engine
    if run_id in engine.state.runs:
        raise CallerError(f"run {run_id!r} is driven here already")
    orphan = Orphan(engine.journal, run_id)
    try:
        if not orphan.left.ended and _is_parentless(runtime, orphan.left):
            orphan.end(Reason.PARENT_CANCELLED)
        return TakenUp(runtime, orphan, tools)
    except BaseException:
        orphan.let_go()
        raise


def _is_parentless(runtime: BaseRuntime, left: Unfinished) -> bool:
    """Whether a run works for a call that is over, and must end with it (law 17)."""
    opened = left.opened
    assert opened is not None, "a run that was adopted has been opened"
    if opened.parent_call is None or opened.detached:
        return False
    parent = runtime.engine.state.calls.get(opened.parent_call)
    return parent is None or parent.phase is not Phase.RUNNING


def _final_arguments(events: Any) -> dict[str, dict[str, Any] | None]:
    found: dict[str, dict[str, Any] | None] = {}
    for event in events:
        match event:
            case e.CallAccepted():
                found[event.call] = event.arguments
            case e.ApprovalAsked() | e.CallQueued() if event.arguments is not None:
                found[event.call] = event.arguments
            case _:
                pass
    return found
