"""Local agents: a function that drives a run of its own in the same runtime.

Its run works for the call that delegated to it: it shares the runtime's tools, resources and slots,
draws on the same budget, and ends with the call. While the function waits for its own calls, its
call holds no slot (law 12 no-leaked-lock). When it returns, its ledger is closed: a handle that it
dropped fails it by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from endstop.agents.agent import Task, check_callable
from endstop.agents.delegate import below, finish, finish_blocking
from endstop.agents.ledger import ledger_of
from endstop.core.terms import Limits
from endstop.errors import CallerError
from endstop.run.blocking import BlockingRun, BlockingRuntime
from endstop.run.handles import Run
from endstop.run.runtime import Runtime
from endstop.run.submitted import here


class LocalAgent:
    """An agent that is a function of this program: `async def fn(task, run)`.

    `fn` gets the task and a `Run` of its own, and returns the answer. On a `BlockingRuntime` it is
    a plain function and gets a `BlockingRun`. `limits` is a budget of its own beside its parent's.
    It begins at once; with `deferred`, when its handle is first awaited.
    """

    def __init__(
        self,
        *,
        name: str,
        fn: Callable[..., Any],
        description: str = "",
        limits: Limits | None = None,
        deferred: bool = False,
        normalise: Callable[[Any], Any] | None = None,
        contract: dict[str, Any] | None = None,
    ) -> None:
        check_callable(name, fn=fn, normalise=normalise)
        self.name = name
        self.description = description
        self.limits = limits
        self.deferred = deferred
        self.normalise = normalise
        self.contract = dict(contract or {})
        self._fn = fn
        self.submit: Callable[[Task], Any] = (
            self._drive if inspect.iscoroutinefunction(fn) else self._drive_blocking
        )

    async def _drive(self, task: Task) -> Any:
        runtime = here.get(None)
        if not isinstance(runtime, Runtime):
            raise CallerError(
                f"local agent {self.name} is an async function; a BlockingRuntime needs a plain one"
            )
        ledger = ledger_of(runtime)
        async with Run(runtime, below(runtime, task.id, task.id, limits=self.limits)) as run:
            value = await self._fn(task, run)
            # Closed here and not by the body's end, so that what was dropped is waited for.
            await finish(ledger, run.id)
            await finish(ledger, task.id)
        return value

    def _drive_blocking(self, task: Task) -> Any:
        runtime = here.get(None)
        if not isinstance(runtime, BlockingRuntime):
            raise CallerError(
                f"local agent {self.name} is a plain function; a Runtime needs an async one"
            )
        ledger = ledger_of(runtime)
        run_id = below(runtime, task.id, task.id, limits=self.limits)
        with BlockingRun(runtime, run_id) as run:
            value = self._fn(task, run)
            finish_blocking(ledger, run.id)
            finish_blocking(ledger, task.id)
        return value
