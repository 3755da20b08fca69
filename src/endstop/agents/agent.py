"""Agents: what a sub-agent is. Something with `submit`; nothing here runs one.

Two kinds behind one protocol. A *deferred* agent has only `submit`: it is sent when its handle is
first awaited, and what `submit` returns is its answer. An *async* agent answers `submit` with a
reference of its own and is asked with that for its `status`, its result (`fetch`) and to stop
(`cancel`, if it can). All of them may be async or plain functions; plain ones run on a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from endstop.errors import CallerError
from endstop.tools.context import AsyncContext


class Status(StrEnum):
    """What an async agent says of a task; the strings do as well."""

    SUBMITTED = "submitted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Failure:
    """An agent's own no: as the answer of `submit` or `fetch`, or as a status with the words."""

    message: str


class Task:
    """What an agent is given: the prompt, the call's id and effect key, and the call's context."""

    __slots__ = ("ctx", "effect_key", "id", "prompt")

    def __init__(self, prompt: str, ctx: AsyncContext) -> None:
        self.prompt = prompt
        self.id = ctx.call_id
        self.effect_key = ctx.effect_key
        self.ctx = ctx

    @property
    def cancelled(self) -> bool:
        """Whether the call was asked to stop; for plain functions, which feel no cancel."""
        return self.ctx.cancelled

    def check(self) -> None:
        """Raise `Stopped` if the call was asked to stop."""
        self.ctx.check()


@runtime_checkable
class Agent(Protocol):
    """A sub-agent: something with a name and `submit`."""

    @property
    def name(self) -> str:
        """What it is called in ids, listings and messages."""

    @property
    def submit(self) -> Callable[[Task], Any]:
        """Take a task; see this module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long each step of an async agent may take, in seconds, and how often it is asked.

    `probes` status questions in a row may fail before the call fails; between two of them
    `every_s` pass, doubling up to `most_every_s`. After a stop the agent is asked for `linger_s`
    at most whether it really ended.
    """

    submit_s: float = 60.0
    probe_s: float = 10.0
    fetch_s: float = 60.0
    cancel_s: float = 10.0
    probes: int = 3
    every_s: float = 0.05
    most_every_s: float = 2.0
    linger_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("submit_s", "probe_s", "fetch_s", "cancel_s", "most_every_s", "linger_s"):
            if not getattr(self, name) > 0:
                raise CallerError(f"Patience: {name} is {getattr(self, name)}; it must be above 0")
        if not self.every_s >= 0:
            raise CallerError(f"Patience: every_s is {self.every_s}; it must be 0 or more")
        if self.probes < 1:
            raise CallerError(f"Patience: probes is {self.probes}; it must be at least 1")


PATIENCE = Patience()


@dataclass(frozen=True, eq=False, kw_only=True)
class DeferredAgent:
    """An agent that is sent when its handle is first awaited; `submit` returns its answer.

    `contract` is what `@tool` takes (timeout, effect, cost, approval, grace, resources …);
    `normalise` makes plain data of the answer, and what it raises is a failure.
    """

    name: str
    submit: Callable[[Task], Any]
    description: str = ""
    normalise: Callable[[Any], Any] | None = None
    contract: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_callable(self.name, submit=self.submit, normalise=self.normalise)


@dataclass(frozen=True, eq=False, kw_only=True)
class AsyncAgent:
    """An agent that works elsewhere: submitted at once, then asked for status and result.

    `submit(task)` returns a reference; `status(ref)` a `Status` or a `Failure`; `fetch(ref)` the
    answer; `cancel(ref)` asks it to stop. Without `cancel` a stop is confirmed only by its status.
    """

    name: str
    submit: Callable[[Task], Any]
    status: Callable[[Any], Any]
    fetch: Callable[[Any], Any]
    cancel: Callable[[Any], Any] | None = None
    description: str = ""
    normalise: Callable[[Any], Any] | None = None
    patience: Patience = PATIENCE
    contract: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_callable(
            self.name,
            submit=self.submit,
            status=self.status,
            fetch=self.fetch,
            cancel=self.cancel,
            normalise=self.normalise,
        )


def check_callable(name: str, **functions: object) -> None:
    """Raise CallerError for what is given and cannot be called."""
    for what, function in functions.items():
        if function is not None and not callable(function):
            raise CallerError(f"agent {name!r}: {what} is a function, not {function!r:.80}")


def check_agent(agent: object) -> None:
    """Raise CallerError for what is no agent, with what it lacks."""
    name = getattr(agent, "name", None)
    if not isinstance(name, str) or not name:
        raise CallerError(f"{agent!r:.80} is no agent: it has no name")
    if not callable(getattr(agent, "submit", None)):
        raise CallerError(f"agent {name!r} has no submit(task)")
    if callable(getattr(agent, "status", None)) != callable(getattr(agent, "fetch", None)):
        raise CallerError(f"agent {name!r} needs both status(ref) and fetch(ref), or neither")


def is_async(agent: Agent) -> bool:
    """Whether an agent is submitted at once and then asked for its status."""
    return callable(getattr(agent, "status", None))


def is_deferred(agent: Agent) -> bool:
    """Whether an agent is sent only when its handle is first awaited."""
    return bool(getattr(agent, "deferred", not is_async(agent)))
