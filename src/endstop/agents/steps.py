"""One delegated call from submit to answer: the body that talks to an agent, step by step.

The body decides nothing about its ending: it returns, or it raises, and the core writes what that
means. After a stop it does not end before the agent is known to have ended; if that cannot be
found out within the grace, the ladder abandons it, and the verdict is *unknown* (law 5).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from endstop.agents.agent import PATIENCE, Agent, Failure, Patience, Status, Task, is_async
from endstop.agents.errors import AgentError
from endstop.core.payload import Unserialisable, to_data
from endstop.core.terms import REFERENCE
from endstop.core.text import describe_error
from endstop.errors import Stopped
from endstop.run.submitted import recalled
from endstop.work.steps import Step

log = logging.getLogger("endstop.agents")

_OVER = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


async def converse(agent: Agent, task: Task) -> Any:
    """Have an agent carry out a task; returns its answer as the agent gave it, normalised.

    Raises what the agent raised, or AgentError.
    """
    value = await (Conversation(agent, task).run() if is_async(agent) else _ask(agent, task))
    if isinstance(value, Failure):
        raise AgentError(value.message)
    normalise: Callable[[Any], Any] | None = getattr(agent, "normalise", None)
    if normalise is None:
        return value
    step = Step(normalise, value)
    await _to_its_end(step, task)
    if step.error is not None:
        raise AgentError(
            f"agent {agent.name}: its answer could not be normalised: {describe_error(step.error)}"
        )
    return step.value


async def _ask(agent: Agent, task: Task) -> Any:
    """A deferred agent: one step, and its answer is the result."""
    submit = agent.submit
    if inspect.iscoroutinefunction(submit):
        return await submit(task)
    step = Step(submit, task)
    await _to_its_end(step, task)
    if step.error is not None:
        raise step.error
    return step.value


async def _to_its_end(step: Step, task: Task) -> None:
    """Wait for a step that cannot be stopped; after a stop its end is the only proof there is."""
    asked = False
    while not step.done:
        try:
            await step.wait()
        except asyncio.CancelledError:
            # The ladder cancels once; a second cancel, or one without a stop, is the loop's own.
            if asked or not task.cancelled:
                raise
            asked = True
            if step.on_loop:
                step.stop()


class Conversation:
    """One task of an async agent."""

    def __init__(self, agent: Agent, task: Task) -> None:
        peer: Any = agent
        self._name = agent.name
        self._task = task
        self._submit: Callable[..., Any] = peer.submit
        self._status: Callable[..., Any] = peer.status
        self._fetch: Callable[..., Any] = peer.fetch
        self._cancel: Callable[..., Any] | None = getattr(peer, "cancel", None)
        self._patience: Patience = getattr(peer, "patience", PATIENCE)
        self._submitting: Step | None = None
        self._probing: Step | None = None
        taken_up = recalled.get()
        found = taken_up.take(task.id) if taken_up is not None else None
        # Taken up after its driver was lost: the task is with the agent already.
        self._submitted = found is not None
        self._ref: Any = found[0] if found is not None else None

    async def run(self) -> Any:
        """Submit, ask until it is over, fetch; after a stop, make sure that it stopped.

        What was submitted before its driver was lost is not submitted again (law 10).
        """
        try:
            if not self._submitted:
                await self._send()
            await self._until_over()
            return await self._take()
        except asyncio.CancelledError:
            # Only the ladder stops a call. Any other cancel is the end of the loop itself.
            if not self._task.cancelled:
                raise
        return await self._stop()

    async def _send(self) -> None:
        limit_s = self._patience.submit_s
        step = self._submitting = Step(self._submit, self._task)
        if not await step.wait(limit_s):
            step.stop()
            raise AgentError(f"agent {self._name} did not take the task within {limit_s:g} s")
        self._accept(step)

    def _accept(self, step: Step) -> None:
        if step.error is not None:
            self._fail("submit", step.error)
        self._ref, self._submitted = step.value, True
        self._remember(step.value)

    def _remember(self, reference: Any) -> None:
        """Note the reference, so that after a crash the same task can be gone on with.

        Only what comes back from a journal as it is: an agent is never asked with something else.
        """
        try:
            data = to_data(reference, where="reference")
        except Unserialisable:
            return
        if type(data) is type(reference) and data == reference:
            self._task.ctx.note(REFERENCE, {"reference": data})

    async def _until_over(self) -> None:
        """Ask for the status until the agent has succeeded; raises if it ended otherwise."""
        failures, pause_s = 0, self._patience.every_s
        while True:
            status, problem = await self._probe()
            if problem is not None:
                failures += 1
                if failures >= self._patience.probes:
                    raise AgentError(
                        f"agent {self._name}: its status could not be read {failures} times in a "
                        f"row: {problem}"
                    )
            else:
                failures = 0
            if isinstance(status, Failure):
                raise AgentError(status.message)
            if status is Status.SUCCEEDED:
                return
            if status in _OVER:
                raise AgentError(f"agent {self._name} says that the task has {_words(status)}")
            await asyncio.sleep(pause_s)
            pause_s = self._longer(pause_s)

    def _longer(self, pause_s: float) -> float:
        return min(max(2 * pause_s, 0.001), self._patience.most_every_s)

    async def _probe(self) -> tuple[Status | Failure | None, str | None]:
        """One question for the status: what it says, or what is wrong with it."""
        limit_s = self._patience.probe_s
        step = self._probing
        # While an earlier question is unanswered no other is asked: they would pile up.
        if step is None or step.done:
            step = self._probing = Step(self._status, self._ref)
        if not await step.wait(limit_s):
            return None, f"it did not answer within {limit_s:g} s"
        self._probing = None
        if step.error is not None:
            return None, describe_error(step.error)
        if isinstance(step.value, Failure):
            return step.value, None
        try:
            return Status(step.value), None
        except ValueError:
            known = ", ".join(Status)
            return None, f"it answered {step.value!r:.80}; a status is one of {known}"

    async def _take(self) -> Any:
        limit_s = self._patience.fetch_s
        step = Step(self._fetch, self._ref)
        if not await step.wait(limit_s):
            step.stop()
            raise AgentError(f"agent {self._name} did not hand over its answer in {limit_s:g} s")
        if step.error is not None:
            self._fail("fetch", step.error)
        return step.value

    def _fail(self, what: str, error: BaseException) -> NoReturn:
        words = f"agent {self._name}: {what} failed: {describe_error(error)}"
        raise AgentError(words) from error

    async def _stop(self) -> Any:
        """Pass the stop on and wait for the agent's own word that it ended.

        One that had finished keeps its result. Whoever cannot be asked is not known to have ended:
        this goes on until the ladder abandons the call, and for `linger_s` behind that.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience.linger_s
        if self._submitting is not None and not self._submitted:
            # The task may have arrived: only its reference tells how to stop it.
            if not await self._submitting.wait(self._patience.linger_s):
                raise AgentError(f"agent {self._name} never said whether it took the task")
            self._accept(self._submitting)
        await self._ask_to_stop()
        pause_s = self._patience.every_s
        while loop.time() < give_up:
            status, _ = await self._probe()
            if status is Status.SUCCEEDED:
                return await self._take()
            if isinstance(status, Failure) or status in _OVER:
                raise Stopped(f"agent {self._name} says that the task has ended")
            await asyncio.sleep(pause_s)
            pause_s = self._longer(pause_s)
        raise AgentError(f"agent {self._name} did not confirm within {self._patience.linger_s:g} s")

    async def _ask_to_stop(self) -> None:
        if self._cancel is None:
            return
        step = Step(self._cancel, self._ref)
        if not await step.wait(self._patience.cancel_s):
            log.warning("agent %s did not answer the cancel of %s", self._name, self._task.id)
        elif step.error is not None:
            words = describe_error(step.error)
            log.warning("agent %s: the cancel of %s failed: %s", self._name, self._task.id, words)


def _words(status: Status | Failure | None) -> str:
    return "been cancelled" if status is Status.CANCELLED else "failed"
