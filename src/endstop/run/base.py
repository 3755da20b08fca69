"""What both drivers share: the tools, the engine, the workers, and everything that does not wait.

Thin on purpose. A driver adds how to wait, how to be woken, and how to run a hook.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType

from endstop.config import Config
from endstop.core import inputs as i
from endstop.core.events import Event
from endstop.core.gate import waits_for
from endstop.core.record import EMPTY
from endstop.core.state import CallState
from endstop.core.terms import (
    Isolation,
    Limits,
    Phase,
    Refusal,
    ToolCall,
)
from endstop.errors import CallerError, RunSuspended, RuntimeClosed, StaleWriter
from endstop.run.approvals import Approvals, Pending
from endstop.run.clock import Clock
from endstop.run.engine import Engine
from endstop.run.heartbeat import Heartbeat
from endstop.run.hooks import After, Before, Hooks, Observer, check_hooks
from endstop.run.labels import check_labels
from endstop.run.lineage import inherited
from endstop.run.names import random_name
from endstop.run.parking import Parking
from endstop.run.plans import Plan, Planner, digest
from endstop.run.questions import Questions
from endstop.run.remembering import Rules
from endstop.run.results import BatchResult, CallView
from endstop.run.stopping import Stopping
from endstop.run.submitted import Books, Own, here
from endstop.run.waits import BatchWait
from endstop.store import open_journal
from endstop.store.protocol import Journal
from endstop.tools.tool import Tool
from endstop.work.loading import refuse_while_loading
from endstop.work.thread import ThreadWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """How one batch is run; see `Runtime.execute`.

    `tools` are the tools that its calls may name, where those are not the runtime's; `refused` are
    calls, by their index, that are answered without being prepared or started.
    """

    parallel: int | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    together: bool = False
    on_failure: str = "continue"
    tools: Mapping[str, Tool] | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)


class BaseRuntime(Approvals, Rules, Questions, Stopping):
    """The part of a runtime that is the same whether the caller has an event loop or not."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        journal: Journal | str | None = None,
        config: Config | None = None,
        before: Sequence[Before] = (),
        after: Sequence[After] = (),
        observers: Sequence[Observer] = (),
        carry: Sequence[str] = (),
        clock: Clock,
    ) -> None:
        refuse_while_loading()
        _check_kind(config, Config, "config", "make one with Config.load(...)")
        self.config = config if config is not None else Config()
        self.planner = Planner(tools, self.config)
        self.hooks = Hooks(before=check_hooks(before, "before"), after=check_hooks(after, "after"))
        slots = self.config.slots
        self.engine = Engine(
            journal=open_journal(self.config.journal if journal is None else journal),
            clock=clock,
            slots={
                Isolation.COROUTINE: slots.coroutine,
                Isolation.THREAD: slots.thread,
                Isolation.PROCESS: slots.process,
                Isolation.REMOTE: slots.remote,
            },
            heartbeat_s=self.config.heartbeat_s,
        )
        for observer in observers:
            self.engine.audience.add(observer)
        self._carry = tuple(carry)
        self._closed = False
        self._process = os.getpid()
        self.books: Books | None = None
        # The runs that a loop works on, also between two batches; true while it asks its model.
        self.driven: dict[str, bool] = {}
        threads = ThreadWorker(self.engine.tell, slots.thread or THREADS_MAX)
        self.engine.workers[Isolation.THREAD] = threads
        self._parking = Parking(self.engine, threads)

    # -- tools

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by name."""
        return dict(self.planner.tools)

    def add_tool(self, tool: Tool) -> None:
        """Offer one more tool. Raises CallerError for a name that is taken."""
        self.planner.add(tool)

    # -- inside

    def _close_handlers(self) -> None:
        for one in (self._asker, *(self._answerers or ())):
            if one is not None:
                one.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("this runtime is closed; make a new one")
        if self._process != os.getpid():
            # Its threads and its loop stayed there: a call would wait for them in vain.
            raise CallerError(
                f"this runtime was made by process {self._process} before a fork; "
                "make a new one in this process"
            )

    def _opening(
        self,
        run_id: str | None = None,
        limits: Limits | None = None,
        parent: str | None = None,
        detached: bool = False,
        after: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> i.OpenRun:
        """What opens a run. Raises CallerError for what cannot be one."""
        self._check_open()
        _check_kind(run_id, str, "the id of a run", "give text, or nothing to have one made")
        # The core believes what it is told: a wrong kind would fail every later decision.
        _check_kind(limits, Limits, "limits", "write Limits(calls=20)")
        name = run_id if run_id is not None else new_run_id()
        if run_id is not None and self._is_known(run_id):
            raise CallerError(
                f"run {run_id!r} is in the journal already; give every run an id of its own"
            )
        return i.OpenRun(
            run=name,
            limits=limits,
            parent_call=parent,
            detached=detached,
            after=after,
            inherited=inherited(self.engine, after) if after is not None else (),
            labels=check_labels(labels) if labels else EMPTY,
        )

    def _is_known(self, run_id: str) -> bool:
        """Whether the journal knows a run of this id."""
        return next(iter(self.engine.journal.read(run_id)), None) is not None

    def _begin_preparing(self, call_id: str, run_id: str, plan: Plan) -> None:
        """Ask the hooks of a call, in the driver's own way, and tell the core what they said."""
        raise NotImplementedError

    def _submit(
        self,
        run_id: str,
        calls: Iterable[ToolCall],
        terms: BatchTerms,
        own: Sequence[Own] | None = None,
        first: tuple[i.OpenRun | i.Note, ...] = (),
    ) -> tuple[str, list[tuple[str, Plan]]]:
        """Hand a batch to the core; returns its id and the calls that still need preparing.

        `own` is for calls that do not come from a model; see `run.submitted`. What comes `first` is
        recorded with it; where the run takes no note any more there is no batch, and no id.
        """
        self._check_open()
        # Calls of our own are not looked through.
        asked_calls = check_calls(calls) if own is None else list(calls)
        _check_terms(terms)
        sequential = terms.parallel == 1 or len(asked_calls) == 1
        hooked = bool(self.hooks.before)
        plans: list[Plan] = []
        asked: list[i.Asked] = []
        context = contextvars.copy_context()
        context.run(here.set, self)
        for index, call in enumerate(asked_calls):
            tool, deferred = own[index] if own is not None else (None, False)
            plan, one = self.planner.plan(
                call,
                sequential=sequential,
                hooked=hooked or deferred,
                timeout_s=terms.timeout_s,
                tool=tool,
                offered=terms.tools,
                refused=terms.refused.get(index),
            )
            plan.context = context.copy()
            plans.append(plan)
            asked.append(one)
            if plan.contract.isolation is Isolation.PROCESS:
                self._need_processes()
        said = i.SubmitBatch(
            run=run_id,
            calls=tuple(asked),
            parallel=terms.parallel,
            deadline_s=terms.deadline_s,
            together=terms.together,
            stop_on_failure=terms.on_failure == "stop",
        )
        batch = self.engine.submit(i.Together(inputs=(*first, said)) if first else said, plans)
        unprepared = [
            (f"{batch}.{index}", plan)
            for index, (plan, one) in enumerate(zip(plans, asked, strict=True))
            if batch and one.refusal is None and not one.ready
        ]
        return batch, unprepared

    def _need_processes(self) -> None:
        if Isolation.PROCESS in self.engine.workers:
            return
        # Imported late: most programs never start a process.
        from endstop.work.process import ProcessWorker

        self.engine.workers[Isolation.PROCESS] = ProcessWorker(
            self.engine.tell,
            slots=self.config.slots.process or PROCESSES_MAX,
            carry=self._carry,
            output_bytes=self.config.sizes.output_bytes,
        )

    def _results(self, wait: BatchWait) -> BatchResult:
        """The answers of a closed batch. Raises where the run was let go, or taken over."""
        wait.over.check()
        self._check_owned(wait.batch)
        return BatchResult(wait.batch, [self.engine.result(call) for call in wait.calls])

    def _check_owned(self, target: str, calls: Iterable[CallState] = ()) -> None:
        """Raise where the journal takes nothing more of a run: its endings here are not true."""
        run_id = target.partition("/")[0]
        error = self.engine.fences.get(run_id)
        if isinstance(error, RunSuspended):
            # What was over when it was let go is recorded and true.
            error = None
        if error is None and any(call.run.fenced for call in calls):
            error = StaleWriter(f"run {run_id!r} was given up: the journal took no more of it")
        if error is not None:
            raise error

    # -- asking and answering

    def calls(self) -> list[CallView]:
        """Every call that is open, or abandoned and still running (law 9 on-the-books)."""
        engine = self.engine
        with engine.lock:
            now = engine.clock()
            found = [
                (call, waits_for(engine.state, call), call.meter.ran_s(now) if call.meter else 0.0)
                for call in engine.state.calls.values()
                if call.alive or call.phase is not Phase.SETTLED
            ]
        views = []
        for call, waiting, ran_s in found:
            plan = engine.plans.get(call.id)
            worker = engine.workers.get(call.contract.isolation)
            sight = worker.look(call.id) if worker is not None and call.started else None
            views.append(
                CallView(
                    call_id=call.id,
                    tool=plan.tool_name if plan else call.tool,
                    phase=call.phase,
                    abandoned=call.alive and call.phase is Phase.SETTLED,
                    age_s=now - call.accepted_at,
                    ran_s=ran_s,
                    waits_for=waiting,
                    where=sight.where if sight else "",
                    stack=sight.stack if sight else (),
                )
            )
        return views

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show every recorded event to `observer`; returns the function that ends it."""
        self.engine.audience.add(observer)
        return lambda: self.engine.audience.remove(observer)

    def _observe_steps(self, reader: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """The same, with what happens to a run in one step shown as one sequence."""
        self.engine.audience.add_reader(reader)
        return lambda: self.engine.audience.remove_reader(reader)

    def listen(self, listener: Callable[[Heartbeat], None]) -> Callable[[], None]:
        """Show a sign of life of each running call to `listener`, once per `heartbeat_s`.

        Never after the call's ending was shown to observers; returns the function that ends it.
        """
        self.engine.listen(listener)
        return lambda: self.engine.audience.remove_listener(listener)


THREADS_MAX = 256
"""Threads where the configuration sets no limit: there is always one (law 9 on-the-books)."""

PROCESSES_MAX = 32
"""Processes where the configuration sets no limit."""


def new_run_id() -> str:
    """A run id that no other run has, on this machine or another."""
    return f"r{random_name()}"


def check_calls(calls: Iterable[ToolCall]) -> list[ToolCall]:
    """The calls of a batch as a list. Raises CallerError for anything else."""
    if isinstance(calls, str | bytes | dict) or not isinstance(calls, Iterable):
        raise CallerError(
            f"execute() takes tool calls, not {type(calls).__name__}; "
            "read a model's reply with read_reply(reply).calls"
        )
    found = list(calls)
    for one in found:
        if not isinstance(one, ToolCall):
            raise CallerError(
                f"execute() takes tool calls, not {type(one).__name__}; "
                "read a model's reply with read_reply(reply).calls"
            )
        if not isinstance(one.tool, str) or not isinstance(one.model_id, str):
            raise CallerError(f"tool and model_id of a ToolCall are text; this is not: {one!r}")
    return found


def _check_terms(terms: BatchTerms) -> None:
    _check_kind(terms.parallel, int, "parallel", "it must be a whole number, or None")
    if terms.parallel is not None and terms.parallel < 1:
        raise CallerError(f"parallel is {terms.parallel}; it must be at least 1")
    _check_kind(terms.deadline_s, int | float, "deadline_s", "it must be a number, or None")
    if terms.deadline_s is not None and not terms.deadline_s > 0:
        raise CallerError(f"deadline_s is {terms.deadline_s}; it must be above 0, or None")
    if terms.on_failure not in ("continue", "stop"):
        raise CallerError(f"on_failure is {terms.on_failure!r}; it is 'continue' or 'stop'")


def _check_kind(value: object, kind: type | UnionType, what: str, advice: str) -> None:
    """Raise CallerError where `value` is neither None nor of this kind."""
    if value is not None and not isinstance(value, kind):
        raise CallerError(f"{what} is of type {type(value).__name__}; {advice}")


__all__ = ["BaseRuntime", "BatchTerms", "Pending", "digest", "new_run_id"]
