"""Agents: an agent that is a model with tools: what `loop` drives, as one describes it.

It is a sub-agent, too: it has `submit`, so that it can be delegated to or offered as a tool. It
then runs in a run of its own below the call, which shares the runtime's resources and draws on the
same budget, and ends with it (law 17 children-settle).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from endstop.adapters.parts import FORMATS
from endstop.agents import notes
from endstop.agents.agent import Task
from endstop.agents.endings import LoopResult, OnEvent
from endstop.agents.errors import AgentError
from endstop.agents.limits import LoopLimits
from endstop.agents.local import LocalAgent
from endstop.agents.loop import Loop
from endstop.agents.models.protocol import Model
from endstop.agents.transcript import Transcript
from endstop.core import inputs as i
from endstop.core.terms import Outcome, Reason
from endstop.errors import CallerError, EndstopError
from endstop.run.handles import Run
from endstop.run.resuming import resume_on
from endstop.run.runtime import Runtime
from endstop.run.submitted import here
from endstop.tools.tool import Tool


class ModelAgent:
    """A model, the tools that it is offered, and what it is told: `await agent.run(rt, "…")`.

    `instructions` are its system prompt, `description` is for whoever delegates to it. `max_tokens`
    bounds one reply; `parallel` and `timeout_s` are as for `Run.execute`. `contract`, `deferred`
    and `normalise` are as for `LocalAgent`. Raises CallerError for what is no model or no tool, and
    for two tools of one name.
    """

    def __init__(
        self,
        *,
        name: str,
        model: Model,
        tools: Sequence[Tool] = (),
        instructions: str = "",
        description: str = "",
        limits: LoopLimits | None = None,
        max_tokens: int | None = None,
        parallel: int | None = None,
        timeout_s: float | None = None,
        deferred: bool = False,
        normalise: Callable[[Any], Any] | None = None,
        contract: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.model = _check_model(name, model)
        self.tools = tuple(tools)
        self.offered = _by_name(name, self.tools)
        self.instructions = instructions
        self.description = description
        self.limits = _check_limits(name, limits)
        self.max_tokens = max_tokens
        self.parallel = parallel
        self.timeout_s = timeout_s
        self.deferred = deferred
        self.normalise = normalise
        self.contract = dict(contract or {})
        local = LocalAgent(name=name, fn=self._work, limits=self.limits.budget())
        self.submit: Callable[[Task], Any] = local.submit

    def __repr__(self) -> str:
        tools = ", ".join(self.offered) or "no tools"
        return f"<ModelAgent {self.name}: {self.model.name}, {tools}>"

    # -- as an agent of its own

    async def run(
        self,
        runtime: Runtime,
        prompt: str,
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        on_event: OnEvent | None = None,
    ) -> LoopResult:
        """Work on a prompt in a run of its own, to the end of that run.

        The run can be cancelled as any other, from anywhere; that is no error, the result says so.
        If the task that awaits this is cancelled, so is the run, and CancelledError is raised when
        its calls are over. Raises what `Runtime.run` raises, and StaleWriter where another driver
        took the run.
        """
        # Before there is a run that it could leave behind.
        notes.user_note(prompt, notes.When.AFTER)
        run = self.open(runtime, run_id=run_id, labels=labels)
        return await self._drive(Loop(runtime, run, self, on_event=on_event), prompt)

    async def resume(
        self,
        runtime: Runtime,
        run_id: str,
        prompt: str | None = None,
        *,
        on_event: OnEvent | None = None,
    ) -> LoopResult:
        """Go on with a run whose driver is gone, from what its journal says (law 16).

        Calls that are over keep their answers and never run again, lost ones are answered as such,
        what had not begun goes on; a reply that was not recorded is asked for again. `prompt` is
        said behind all that. A run that has ended gives its result again. Raises what
        `Runtime.resume` raises, and CallerError for a run of a model with another format.
        """
        run = await self.take_up(runtime, run_id, prompt)
        return await self._drive(Loop(runtime, run, self, on_event=on_event), prompt)

    def open(
        self,
        runtime: Runtime,
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Run:
        """A run with this agent's budget, for a `Loop` of one's own."""
        return runtime.run(run_id, limits=self.limits.budget(), labels=labels)

    async def take_up(self, runtime: Runtime, run_id: str, prompt: str | None = None) -> Run:
        """A run whose driver is gone, for a `Loop` of one's own; see `resume`.

        Raises CallerError where it has ended and there is a `prompt` for it.
        """
        runtime._start()
        # Looked at before anything is taken: what cannot be gone on with is left as it is.
        seen = Transcript(self.model.format)
        for recorded in runtime.engine.journal.read(run_id):
            seen.apply(recorded.event)
        if prompt is not None and seen.ended is not None:
            raise CallerError(f"run {run_id!r} is over and takes no prompt; begin a new one")
        return await resume_on(runtime, run_id, self.offered)

    async def _drive(self, loop: Loop, prompt: str | None) -> LoopResult:
        run = loop.run
        try:
            if prompt is not None:
                loop.say(prompt)
            return await loop.drive(close=True)
        except Exception:
            # Nothing of it goes on behind the back of whoever gets the error.
            with suppress(EndstopError):
                run.close(outcome=Outcome.FAILED)
                loop.runtime.engine.tell(i.Cancel(target=run.id, reason=Reason.SHUTDOWN))
            raise
        finally:
            with suppress(EndstopError):
                run.close()

    # -- as a sub-agent

    async def _work(self, task: Task, run: Run) -> str:
        runtime = here.get()
        assert isinstance(runtime, Runtime), "a local agent works on the runtime of its call"
        loop = Loop(runtime, run, self)
        loop.say(task.prompt)
        result = await loop.drive()
        if not result.ok:
            raise AgentError(f"agent {self.name}: {result.why}")
        return result.text


def _check_model(name: str, model: Any) -> Model:
    if not isinstance(name, str) or not name:
        raise CallerError(f"an agent's name is text, not {name!r:.80}")
    format = getattr(model, "format", None)
    if format not in FORMATS or not callable(getattr(model, "reply", None)):
        known = ", ".join(repr(one) for one in FORMATS)
        raise CallerError(
            f"agent {name!r}: {model!r:.80} is no model: it has `reply(ask, on_delta)` and a "
            f"`format`, one of {known}"
        )
    found: Model = model
    return found


def _by_name(name: str, tools: Sequence[Any]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise CallerError(
                f"agent {name!r}: {tool!r:.80} is no tool; decorate the function with @tool, and "
                "offer another agent with agent_tool(agent)"
            )
        if found.setdefault(tool.name, tool) is not tool:
            raise CallerError(
                f"agent {name!r}: there are two tools named {tool.name!r}; give one another name"
            )
    return found


def _check_limits(name: str, limits: LoopLimits | None) -> LoopLimits:
    if limits is None:
        return LoopLimits()
    if not isinstance(limits, LoopLimits):
        raise CallerError(
            f"agent {name!r}: limits is {type(limits).__name__}; write LoopLimits(turns=20)"
        )
    return limits
