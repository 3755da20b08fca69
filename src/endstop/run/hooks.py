"""Hooks: code of the user around a call. Before-hooks decide, after-hooks see, observers watch.

A before-hook may let a call pass (return None), block it (return `Block`), rewrite its arguments
(return `Rewrite`) or have a human approve it (return `Ask`), which happens when all hooks agreed,
so that nothing changes between the answer and the start (law 13 one-approval). It is bounded by the
core's timer and fails closed: what it raises, and what outlasts its time, is a refusal, and a late
answer finds the call settled (law 1 one-door). A hook gets a copy of the arguments, so changing
them in place changes nothing.

Preparing is written once, as a generator that yields the hooks to run and takes their answers; the
async and the blocking driver run it each in their own way.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from endstop.config import SECONDS_MAX
from endstop.core.events import Event
from endstop.core.inputs import Prepared, Refused
from endstop.core.terms import Reason, Refusal
from endstop.core.text import describe_error, safe_text
from endstop.errors import CallerError, ContractError
from endstop.run.plans import Ask, Plan, Planner
from endstop.run.results import CallResult

log = logging.getLogger("endstop.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """What a before-hook sees of a call that has not started."""

    call_id: str
    run_id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """A before-hook's no; `message` is read by the model."""

    message: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A before-hook's other arguments; they are validated like the first ones."""

    arguments: dict[str, Any]


Before = Callable[[HookCall], Any]
"""Returns None, `Block`, `Rewrite` or `Ask`, or an awaitable of one of them."""

After = Callable[[CallResult], Any]
"""Sees the recorded result of a call whose body began; what it does changes nothing."""

Observer = Callable[[Event], None]
"""Sees every event once it is recorded; what it raises changes nothing (law 15 record-first)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of a runtime, in the order in which they are asked."""

    before: Sequence[Before] = ()
    after: Sequence[After] = ()


def hook_name(hook: Callable[..., Any]) -> str:
    """What a hook is called in messages and listings."""
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


Step = tuple[Before, HookCall]
Preparing = Generator[Step, Any, Prepared | Refused]


def preparing(
    plan: Plan, call_id: str, run_id: str, hooks: Sequence[Before], planner: Planner
) -> Preparing:
    """Ask the hooks one after the other; returns what to tell the core.

    Whoever drives it sends each hook's answer, or throws what the hook raised.
    """
    arguments = plan.arguments
    asks: list[Ask] = []
    for hook in hooks:
        seen = HookCall(
            call_id=call_id,
            run_id=run_id,
            tool=plan.tool_name,
            arguments=copy.deepcopy(arguments),
        )
        try:
            answer = yield hook, seen
        except Exception as error:  # law 5: a hook that fails is a refusal, and says so
            words = f"hook {hook_name(hook)} failed: {describe_error(error)}"
            return refusal(call_id, Reason.HOOK_FAILED, words)
        match answer:
            case None:
                pass
            case Block(message=message):
                return refusal(call_id, Reason.DENIED_BY_POLICY, safe_text(str(message), 4000))
            case Rewrite(arguments=rewritten):
                problem = planner.rebind(plan, rewritten)
                if problem is not None:
                    words = f"after hook {hook_name(hook)}: {problem.message}"
                    return refusal(call_id, problem.reason, words)
                arguments = plan.arguments
            case Ask(expires_s=limit_s) if limit_s is not None and not _is_limit(limit_s):
                words = f"hook {hook_name(hook)}: expires_s is a number of seconds above 0 or None"
                return refusal(call_id, Reason.HOOK_FAILED, words)
            case Ask():
                asks.append(answer)
            case _:
                words = (
                    f"hook {hook_name(hook)} answered {type(answer).__name__}; "
                    "it must return None, Block, Rewrite or Ask"
                )
                return refusal(call_id, Reason.HOOK_FAILED, words)
    try:
        return planner.prepared(plan, call_id, asks)
    except ContractError as problem:
        return refusal(call_id, Reason.HOOK_FAILED, str(problem))


def _is_limit(limit_s: Any) -> bool:
    return isinstance(limit_s, int | float) and 0 < limit_s <= SECONDS_MAX


def refusal(call_id: str, reason: Reason, words: str) -> Refused:
    """What to tell the core of a call that may not start."""
    return Refused(call=call_id, refusal=Refusal(reason=reason, message=words))


def failure_of(error: BaseException) -> Exception:
    """What a hook raised, as an error that can be passed on and named, whatever it is (law 15).

    A SystemExit in a task would end the event loop, and with it every call on it.
    """
    try:
        words = describe_error(error)
    except BaseException:
        words = "an error that raises when it is asked what it is"
    else:
        if isinstance(error, Exception):
            return error
    return RuntimeError(words)


def check_hooks(hooks: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The hooks as a tuple. Raises CallerError for one that cannot be called."""
    for hook in hooks:
        if not callable(hook):
            raise CallerError(f"a {what} hook must be callable, {hook!r} is not")
    return tuple(hooks)
