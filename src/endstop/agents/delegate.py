"""Delegating: from an agent and a prompt to a call in the core and a handle on it.

Outside of bodies the calls belong to the run that is given. Inside a body they belong to that body:
a run below its call, so that a stop of the call reaches them all in one grace, whatever the depth,
and a body that returns without having taken one fails by its name (law 17 children-settle).

Ids are made from the owner's id and a number: `RUN/BATCH.INDEX`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, overload

from endstop.agents.agent import Agent, check_agent, is_deferred
from endstop.agents.group import BlockingGroup, Group
from endstop.agents.handle import BlockingHandle, Handle
from endstop.agents.ledger import Ledger, dropped_error, ledger_of, watch_owner
from endstop.agents.offer import hidden_tool
from endstop.core import inputs as i
from endstop.core.terms import Limits, ToolCall
from endstop.errors import CallerError
from endstop.run.base import BaseRuntime, BatchTerms
from endstop.run.blocking import BlockingRun, BlockingRuntime
from endstop.run.handles import Run
from endstop.run.runtime import Runtime
from endstop.run.submitted import Own, Submitted, here
from endstop.tools.context import current
from endstop.work.ending import on_return

GROUP_MAX = 1_000
"""Calls in one group; more are refused before any is accepted."""

Request = tuple[Agent, str]


@overload
def delegate(
    agent: Agent, prompt: str, *, run: BlockingRun, detached: bool = ..., **terms: Any
) -> BlockingHandle: ...
@overload
def delegate(
    agent: Agent, prompt: str, *, run: Run | None = ..., detached: bool = ..., **terms: Any
) -> Handle: ...
def delegate(
    agent: Agent,
    prompt: str,
    *,
    run: Run | BlockingRun | None = None,
    detached: bool = False,
    **terms: Any,
) -> Handle | BlockingHandle:
    """Delegate a task to an agent; returns a handle at once.

    `run` is the run that it is part of; inside a tool's or a local agent's body it can be left out,
    and the call then works for that body. With `detached` it survives the cancel of both, and the
    closing check does not ask for it. `terms`: `timeout_s` and `deadline_s`, see `Run.execute`.

    A deferred agent is sent when the handle is first awaited, an async or a local one at once.
    Raises CallerError for what is no agent or no prompt, and outside of a run.
    """
    return delegate_all([(agent, prompt)], run=run, detached=detached, **terms).handles[0]


@overload
def delegate_all(
    requests: Iterable[Request],
    *,
    run: BlockingRun,
    detached: bool = ...,
    parallel: int | None = ...,
    timeout_s: float | None = ...,
    deadline_s: float | None = ...,
) -> BlockingGroup: ...
@overload
def delegate_all(
    requests: Iterable[Request],
    *,
    run: Run | None = ...,
    detached: bool = ...,
    parallel: int | None = ...,
    timeout_s: float | None = ...,
    deadline_s: float | None = ...,
) -> Group: ...
def delegate_all(
    requests: Iterable[Request],
    *,
    run: Run | BlockingRun | None = None,
    detached: bool = False,
    parallel: int | None = None,
    timeout_s: float | None = None,
    deadline_s: float | None = None,
) -> Group | BlockingGroup:
    """Delegate several tasks as one batch; the group gathers them in submission order.

    `parallel` bounds how many of them run at once. Everything is checked before any is accepted;
    see `delegate`.
    """
    wanted = _check(requests)
    own = [Own(hidden_tool(agent), is_deferred(agent)) for agent, _ in wanted]
    calls = [
        ToolCall(model_id="", tool=one.tool.name, arguments={"prompt": prompt})
        for one, (_, prompt) in zip(own, wanted, strict=True)
    ]
    terms = BatchTerms(parallel=parallel, timeout_s=timeout_s, deadline_s=deadline_s)
    runtime, run_id, owner = _place(run, detached)
    ledger = ledger_of(runtime)
    submitted = Submitted(runtime, run_id, calls, terms, own)
    if run is None or run_id != run.id:
        # No further batch comes; when it is over the runtime forgets it, its handles do not.
        ledger.forget_run(run_id)
        runtime.engine.tell(i.CloseRun(run=run_id))
    shared: dict[str, Any] = {
        "owner": owner,
        "detached": detached,
        "together": parallel is not None,
    }
    names = [agent.name for agent, _ in wanted]
    if isinstance(runtime, BlockingRuntime):
        return BlockingGroup(
            [
                BlockingHandle(runtime, ledger, submitted, at, agent=name, **shared)
                for at, name in enumerate(names)
            ]
        )
    return Group(
        [
            Handle(runtime, ledger, submitted, at, agent=name, **shared)
            for at, name in enumerate(names)
        ]
    )


def _check(requests: Iterable[Request]) -> list[Request]:
    wanted = list(requests)
    if len(wanted) > GROUP_MAX:
        raise CallerError(f"{len(wanted)} calls are too many for one group; {GROUP_MAX} at most")
    for one in wanted:
        if not isinstance(one, tuple) or len(one) != 2:
            raise CallerError(f"delegate_all() takes pairs of agent and prompt, not {one!r:.80}")
        check_agent(one[0])
        if not isinstance(one[1], str):
            raise CallerError(f"a prompt is text, not {type(one[1]).__name__}")
    return wanted


def _place(
    run: Run | BlockingRun | None, detached: bool
) -> tuple[Runtime | BlockingRuntime, str, str]:
    """The runtime, the run that the calls go into, and the owner of their handles."""
    if run is not None:
        if not detached:
            return run._runtime, run.id, run.id
        return run._runtime, below(run._runtime, run.id, None, detached=True), run.id
    runtime, body = _here(), current()
    call, ledger = body.call_id, ledger_of(runtime)
    on_return(body, lambda: ledger.body_is_over(call))
    return runtime, below(runtime, call, call, detached=detached), call


def _here() -> Runtime | BlockingRuntime:
    runtime = here.get(None)
    if runtime is None:
        raise CallerError(
            "delegate() needs run=... here: only inside a tool's or a local agent's body, on the "
            "runtime's own loop or threads, it can be left out"
        )
    assert isinstance(runtime, Runtime | BlockingRuntime), "there are two drivers"
    return runtime


def below(
    runtime: BaseRuntime,
    owner: str,
    parent: str | None,
    *,
    detached: bool = False,
    limits: Limits | None = None,
) -> str:
    """Open a run below an owner; its id is the owner's with a number."""
    ledger = ledger_of(runtime)
    runtime._check_open()
    stem, first = owner.replace("/", "~"), ledger.ordinal(owner)
    number = first
    # An owner that runs again after a crash goes on where its numbers ended.
    while runtime._is_known(f"{stem}~{number}"):
        number = ledger.ordinal(owner)
    if first == 0:
        watch_owner(runtime, ledger, owner)
    name = f"{stem}~{number}"
    runtime.engine.tell(i.OpenRun(run=name, parent_call=parent, detached=detached, limits=limits))
    return name


def open_handles(owner: Run | BlockingRun) -> Sequence[Handle | BlockingHandle]:
    """The handles of a run that nobody has taken yet, in submission order."""
    found = ledger_of(owner._runtime).open(owner.id)
    return [one for one in found if isinstance(one, Handle | BlockingHandle)]


@overload
def close_turn(run: BlockingRun) -> None: ...
@overload
def close_turn(run: Run) -> Awaitable[None]: ...
def close_turn(run: Run | BlockingRun) -> Awaitable[None] | None:
    """Close a turn: every handle that was delegated in it must have been taken.

    What was dropped is stopped and waited for, cancelled ones for their verdict; then
    DroppedHandles names what was dropped. `Run.close()` asks the same, without waiting.
    """
    ledger = ledger_of(run._runtime)
    if isinstance(run, BlockingRun):
        finish_blocking(ledger, run.id)
        return None
    return finish(ledger, run.id)


async def finish(ledger: Ledger, owner: str) -> None:
    """Close the books of an owner on an async runtime; see `close_turn`."""
    left = [one for one in ledger.open(owner) if isinstance(one, Handle)]
    dropped = ledger.dropped(owner)
    for handle in left:
        await handle.settle()
    if dropped:
        raise dropped_error(owner, dropped)


def finish_blocking(ledger: Ledger, owner: str) -> None:
    """Close the books of an owner on a blocking runtime; see `close_turn`."""
    left = [one for one in ledger.open(owner) if isinstance(one, BlockingHandle)]
    dropped = ledger.dropped(owner)
    for handle in left:
        handle.settle()
    if dropped:
        raise dropped_error(owner, dropped)
