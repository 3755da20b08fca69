"""Tools: what a tool declares of itself, checked where it is declared.

A declaration that contradicts itself is a `ContractError` here, long before any call. Nothing here
knows the configuration: `contract.py` brings the two together.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from endstop.config import SECONDS_MAX, Off, Timeouts, read_seconds
from endstop.core.terms import DEFAULT_BACKOFF, Backoff, Contract, EffectClass, Isolation, Money
from endstop.errors import ContractError
from endstop.tools.money import read_money
from endstop.tools.reconcile import Reconcile

ApprovalRule = Literal["never", "always"] | Money | Callable[[Mapping[str, Any]], bool]
Cost = Money | Callable[[Mapping[str, Any]], Money | str | None] | None
Interrupt = Callable[..., object]

_ABOVE = re.compile(r"\s*above\s+(.+)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")

_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a tool declares: the part of its contract that does not depend on configuration.

    `timeout_s` is seconds of running time, "off" for no limit, None for what the configuration
    says; `idle_s` (None: no limit) bounds the time between two signs of progress; `grace_s` is the
    tool's own grace, None for the configured one. `approval` is "never", "always", an amount above
    which a human is asked, or a function of the arguments. With `terminate`, a success of this tool
    asks the loop for no further model turn. `retries`, `backoff`, `reconciles` and `reattaches`
    are what the contract says of them.
    """

    effect: EffectClass = EffectClass.EFFECTFUL
    isolation: Isolation = Isolation.COROUTINE
    exclusive: bool = False
    commits: bool = False
    terminate: bool = False
    timeout_s: float | Off | None = None
    idle_s: float | None = None
    grace_s: float | None = None
    approval: ApprovalRule = "never"
    retries: int = 0
    backoff: Backoff = DEFAULT_BACKOFF
    reconciles: bool = False
    reattaches: bool = False
    contracts: dict[tuple[Any, ...], tuple[Timeouts, Contract]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Resolved contracts, kept by `contract.resolve`."""


CONTRACT_KEYS = frozenset(
    {
        "effect",
        "isolation",
        "resources",
        "timeout",
        "idle_timeout",
        "exclusive",
        "cost",
        "approval",
        "grace",
        "commits",
        "interrupt",
        "terminate",
        "retries",
        "backoff",
        "reconcile",
    }
)
"""What `@tool` takes, beside a name and a description."""


def check_name(name: object) -> str:
    """A tool's name as models may send it. Raises ContractError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ContractError(
            f"a tool's name is 1 to 128 letters, digits or _ . : / -, not {name!r:.200}; "
            'give one with @tool(name="...")'
        )
    return name


def declare(
    name: str,
    *,
    is_async: bool | None,
    has_cost: bool,
    effect: object,
    isolation: object,
    exclusive: object,
    commits: object,
    terminate: object,
    timeout: object,
    idle_timeout: object,
    grace: object,
    approval: object,
    retries: object = 0,
    backoff: object = None,
    reconciles: bool = False,
) -> Declared:
    """Check a declaration. Raises ContractError naming the tool, what is wrong and the mend."""
    where = _choice(name, "isolation", Isolation, isolation, _default_isolation(is_async))
    if is_async is False and where is Isolation.REMOTE:
        raise ContractError(
            f'tool `{name}`: isolation="remote" is for an async function that talks to a peer; '
            'write "async def", or use "thread" or "process"'
        )
    if is_async and where is Isolation.THREAD:
        raise ContractError(
            f'tool `{name}`: an async function cannot have isolation="thread"; leave it out '
            '(it runs as a coroutine), use isolation="process", or make it a plain function'
        )
    if is_async is False and where is Isolation.COROUTINE:
        raise ContractError(
            f'tool `{name}`: a plain function cannot have isolation="coroutine", it would block '
            'the event loop; leave it out (it runs in a thread), or write "async def"'
        )
    idle = _seconds(name, "idle_timeout", idle_timeout)
    rule = _approval(name, approval)
    if isinstance(rule, Money) and not has_cost:
        raise ContractError(
            f'tool `{name}`: approval "above {rule.amount} {rule.currency}" needs a cost to '
            'compare with; add cost="0.04 USD" or cost=function'
        )
    return Declared(
        effect=_choice(name, "effect", EffectClass, effect, EffectClass.EFFECTFUL),
        isolation=where,
        exclusive=_flag(name, "exclusive", exclusive),
        commits=_flag(name, "commits", commits),
        terminate=_flag(name, "terminate", terminate),
        timeout_s=_seconds(name, "timeout", timeout),
        idle_s=None if idle == "off" else idle,
        grace_s=_grace(name, grace),
        approval=rule,
        retries=_retries(name, retries),
        backoff=_backoff(name, backoff),
        reconciles=reconciles,
    )


RETRIES_MAX = 100


def _retries(tool: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= RETRIES_MAX:
        raise ContractError(
            f"tool `{tool}`: retries is a whole number from 0 to {RETRIES_MAX}, not {value!r:.80}"
        )
    return value


def _backoff(tool: str, value: object) -> Backoff:
    if value is None:
        return DEFAULT_BACKOFF
    parts = (value.first_s, value.factor, value.most_s) if isinstance(value, Backoff) else None
    if parts is None:
        said = _SPAN.fullmatch(value) if isinstance(value, str) else None
        seconds = _seconds(tool, "backoff", float(said[1]) * _UNITS[said[2]] if said else value)
        assert seconds is not None, "a value says something"
        first_s = 0.0 if seconds == "off" else seconds
        return Backoff(first_s=first_s, most_s=max(first_s, DEFAULT_BACKOFF.most_s))
    numbers = all(isinstance(part, int | float) and part == part for part in parts)
    if not numbers or parts[0] < 0 or parts[1] < 1 or not parts[0] <= parts[2] <= SECONDS_MAX:
        raise ContractError(
            f"tool `{tool}`: a backoff has 0 <= first_s <= most_s and a factor of 1 or more, "
            f"not {value!r:.120}"
        )
    return value if isinstance(value, Backoff) else DEFAULT_BACKOFF


def _default_isolation(is_async: bool | None) -> Isolation:
    return Isolation.COROUTINE if is_async else Isolation.THREAD


def _choice(
    tool: str, what: str, choices: type[_Choice], value: object, default: _Choice
) -> _Choice:
    if value is None:
        return default
    try:
        return choices(str(value) if isinstance(value, str) else "")
    except ValueError:
        known = ", ".join(f'"{choice}"' for choice in choices)
        raise ContractError(f"tool `{tool}`: {what} is one of {known}, not {value!r:.80}") from None


def _flag(tool: str, what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ContractError(f"tool `{tool}`: {what} is True or False, not {value!r:.80}")
    return value


def _seconds(tool: str, what: str, value: object) -> float | Off | None:
    if value is None:
        return None
    try:
        return read_seconds(value)
    except ValueError as problem:
        raise ContractError(f"tool `{tool}`: {what} = {value!r:.80}: {problem}") from None


def _grace(tool: str, value: object) -> float | None:
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or math.isnan(value)
        or value < 0
        or value > SECONDS_MAX
    ):
        raise ContractError(
            f"tool `{tool}`: grace is a number of seconds, 0 or more, not {value!r:.80}; "
            "it cannot be endless, a stop must end"
        )
    return float(value)


def _approval(tool: str, value: object) -> ApprovalRule:
    match value:
        case None | "never":
            return "never"
        case "always":
            return "always"
        case Money() | str():
            pass
        case _ if callable(value):
            return value
        case _:
            raise _no_approval(tool, value, "")
    try:
        if isinstance(value, Money):
            return read_money(value)
        above = _ABOVE.fullmatch(value)
        if above is not None:
            return read_money(above[1])
    except ValueError as problem:
        raise _no_approval(tool, value, f": {problem}") from None
    raise _no_approval(tool, value, "")


def _no_approval(tool: str, value: object, why: str) -> ContractError:
    return ContractError(
        f'tool `{tool}`: approval is "never", "always", an amount such as "above 5 USD", or a '
        f"function of the arguments, not {value!r:.80}{why}"
    )


def read_cost(tool: str, value: object) -> Cost:
    """Check `cost=`. Raises ContractError."""
    if value is None or (callable(value) and not isinstance(value, Money)):
        return value
    try:
        return read_money(value)
    except ValueError as problem:
        raise ContractError(f"tool `{tool}`: cost: {problem}, or a function") from None


def read_reconcile(tool: str, value: object) -> Reconcile | None:
    """Check `reconcile=`. Raises ContractError."""
    if value is not None and not callable(value):
        raise ContractError(
            f"tool `{tool}`: reconcile is a function of a LostCall that answers Reconciled, "
            f"not {value!r:.80}"
        )
    return value


def read_interrupt(tool: str, value: object) -> Interrupt | None:
    """Make an interrupt callable with or without the body's context. Raises ContractError.

    A function without parameters is called as it is; one with a parameter gets the context.
    """
    if value is None:
        return None
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise ContractError(
            f"tool `{tool}`: interrupt is a plain function that makes the body return, "
            f"called from another thread; not {value!r:.80}"
        )
    try:
        takes_context = any(
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
            for parameter in inspect.signature(value).parameters.values()
        )
    except (TypeError, ValueError):
        # Builtins without a signature are methods such as `connection.interrupt`.
        takes_context = False

    def interrupt(context: object = None) -> object:
        return value(context) if takes_context else value()

    return interrupt
