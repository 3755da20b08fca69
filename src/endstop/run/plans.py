"""Plans: what a driver keeps of a call beside the core's state, from the model's words to a job.

Parsing, validating and asking the contract happen here, synchronously, before a call is submitted:
what fails is a refusal with words for the model, and runs nothing (law 19 any-payload).
"""

from __future__ import annotations

import contextvars
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endstop.config import Config
from endstop.core.inputs import Asked, Prepared
from endstop.core.payload import Unserialisable, canonical, to_data
from endstop.core.record import maker
from endstop.core.terms import (
    ApprovalTerms,
    Claim,
    Contract,
    Money,
    Reason,
    Refusal,
    ToolCall,
)
from endstop.core.text import safe_text
from endstop.errors import CallerError, ContractError, InvalidArguments
from endstop.tools.contract import resolve
from endstop.tools.tool import Tool
from endstop.work.protocol import Job

_PROMPT_CHARS = 4000
_NO_CONTRACT = Contract()
_NO_ARGUMENTS: dict[str, Any] = {}
_asked = maker(Asked)


class Plan(Job):
    """One call on the driver's side; as a job it is what a worker gets once it is granted."""

    __slots__ = ("claims", "cost", "hook_task", "tool_name")

    tool: Tool | None  # type: ignore[assignment]
    context: contextvars.Context | None  # type: ignore[assignment]

    def __init__(self, tool_name: str, tool: Tool | None, contract: Contract) -> None:
        # Written out: one of these is made for every call.
        self.tool_name = tool_name
        self.tool = tool
        self.contract = contract
        self.call = self.run = self.effect_key = ""
        self.arguments: dict[str, Any] = _NO_ARGUMENTS
        self.kwargs: dict[str, Any] = _NO_ARGUMENTS
        self.claims: tuple[Claim, ...] = ()
        self.cost: Money | None = None
        self.context = None
        self.hook_task: Any = None

    def accepted(self, run: str, call: str) -> None:
        """The core has taken the call and given it its id, which is its effect key too (law 10)."""
        self.run = run
        self.call = self.effect_key = call

    def copy(self) -> Plan:
        """The same plan, to be given other arguments without touching this one."""
        twin = Plan(self.tool_name, self.tool, self.contract)
        twin.accepted(self.run, self.call)
        twin.context = self.context
        twin.hook_task = self.hook_task
        return twin


@dataclass(frozen=True, slots=True)
class Ask:
    """A before-hook's wish that a human approves the call, with its final arguments.

    `prompt` is what the human reads beside them. The shortest `expires_s`, in seconds, of all who
    ask and of the configuration is in force.
    """

    prompt: str = ""
    expires_s: float | None = None


class Planner:
    """Knows tools and configuration; turns what the model asked into what the core takes."""

    def __init__(self, tools: Iterable[Tool], config: Config) -> None:
        self.tools: dict[str, Tool] = {}
        self.hidden: dict[str, Tool] = {}
        self.config = config
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Offer a tool. Raises CallerError for what is no tool or has a name that is taken."""
        if not isinstance(tool, Tool):
            raise CallerError(f"{tool!r} is no tool; decorate the function with @tool")
        if self.tools.get(tool.name, tool) is not tool:
            raise CallerError(f"there are two tools named {tool.name!r}; give one another name")
        self.tools[tool.name] = tool

    def recognise(self, tool: Tool) -> None:
        """Know a tool that no model is offered, for the calls of runs that are resumed."""
        if self.hidden.setdefault(tool.name, tool) is not tool:
            raise CallerError(f"{tool.name!r} is known already; give one of the two another name")

    def find(self, name: str) -> Tool | None:
        """The tool of a recorded call."""
        return self.tools.get(name) or self.hidden.get(name)

    def plan(
        self,
        call: ToolCall,
        *,
        sequential: bool,
        hooked: bool,
        timeout_s: float | None,
        tool: Tool | None = None,
        offered: Mapping[str, Tool] | None = None,
        refused: Refusal | None = None,
    ) -> tuple[Plan, Asked]:
        """The plan of a call and what the core is told of it.

        `tool` is for a call that does not come from a model: its tool is offered to none. `offered`
        are the tools that the model was offered, where those are not the runtime's. A call that is
        `refused` already gets its answer and nothing else.
        """
        if refused is not None:
            return self._refused(call, None, refused.reason, refused.message, shown(call.arguments))
        known = self.tools if offered is None else offered
        if tool is None:
            tool = known.get(call.tool)
        if tool is None:
            return self._refused(call, None, Reason.UNKNOWN_TOOL, unknown(call.tool, known))
        contract = resolve(
            tool.declared,
            timeouts=self.config.timeouts,
            sequential=sequential,
            call_timeout_s=timeout_s,
        )
        if call.arguments is None:
            words = f"{call.problem or 'the arguments are unusable'}"
            if call.raw:
                words += f"\nreceived: {safe_text(call.raw, 500)}"
            return self._refused(call, tool, Reason.INVALID_ARGUMENTS, words)
        try:
            arguments = snapshot(call.arguments)
        except Unserialisable as error:
            return self._refused(call, tool, Reason.INVALID_ARGUMENTS, str(error))
        plan = Plan(tool.name, tool, contract)
        problem = self.fill(plan, tool, arguments)
        if problem is not None:
            return self._refused(call, tool, problem.reason, problem.message, arguments)
        asked = _asked(
            model_id=call.model_id,
            tool=tool.name,
            arguments=arguments,
            contract=contract,
            claims=plan.claims,
            cost=plan.cost,
            ready=not hooked and tool.declared.approval == "never",
        )
        return plan, asked

    def rebind(self, plan: Plan, arguments: Any) -> Refusal | None:
        """Give a plan other arguments, checked like the first ones."""
        assert plan.tool is not None, "a call that is being prepared has a tool"
        if not isinstance(arguments, Mapping):
            words = f"the rewritten arguments are no mapping but {type(arguments).__name__}"
            return Refusal(reason=Reason.HOOK_FAILED, message=words)
        try:
            clean = to_data(arguments, where="arguments", strict=True)
        except Unserialisable as problem:
            return Refusal(reason=Reason.HOOK_FAILED, message=str(problem))
        return self.fill(plan, plan.tool, clean)

    def prepared(self, plan: Plan, call_id: str, asks: Sequence[Ask] = ()) -> Prepared:
        """What to tell the core once all hooks agreed: final arguments, and the approval needed.

        It is needed where the tool says so, and where a hook asked for it.
        """
        tool = plan.tool
        assert tool is not None, "a call that is being prepared has a tool"
        approval = None
        if tool.needs_approval(plan.kwargs, plan.cost) or asks:
            limits = [self.config.timeouts.approvals, *(ask.expires_s for ask in asks)]
            approval = ApprovalTerms(
                digest=digest(tool.name, plan.arguments, plan.claims),
                prompt="\n".join(safe_text(ask.prompt, _PROMPT_CHARS) for ask in asks),
                expires_s=min((limit for limit in limits if limit is not None), default=None),
            )
        return Prepared(
            call=call_id,
            arguments=plan.arguments,
            claims=plan.claims,
            cost=plan.cost,
            approval=approval,
        )

    def fill(self, plan: Plan, tool: Tool, arguments: dict[str, Any]) -> Refusal | None:
        """Bind arguments to a plan; a refusal, with words for the model, where they do not fit."""
        try:
            plan.kwargs = tool.bind(arguments)
            plan.claims = tool.claims(plan.kwargs, self.config.resource_limits)
            plan.cost = tool.cost_of(plan.kwargs)
        except InvalidArguments as problem:
            return Refusal(reason=Reason.INVALID_ARGUMENTS, message=str(problem))
        except ContractError as problem:
            return Refusal(reason=Reason.START_FAILED, message=str(problem))
        plan.arguments = arguments
        return None

    def _refused(
        self,
        call: ToolCall,
        tool: Tool | None,
        reason: Reason,
        words: str,
        arguments: dict[str, Any] | None = None,
    ) -> tuple[Plan, Asked]:
        asked = Asked(
            model_id=call.model_id,
            tool=call.tool,
            arguments=arguments,
            contract=_NO_CONTRACT,
            refusal=Refusal(reason=reason, message=words),
        )
        return Plan(call.tool, tool, _NO_CONTRACT), asked


def unknown(name: str, tools: Mapping[str, Tool]) -> str:
    """What the model reads of a call that names no tool that it was offered."""
    known = ", ".join(sorted(tools)[:50]) or "none"
    return f"there is no tool named {safe_text(name, 200)!r}; the tools are: {known}"


def shown(arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """The arguments of a call that is refused, for the record; None where they are no JSON."""
    try:
        return None if arguments is None else snapshot(arguments)
    except Unserialisable:
        return None


def snapshot(arguments: dict[str, Any]) -> dict[str, Any]:
    """The runtime's own copy of a call's arguments, as data.

    What is asked about, recorded and run must not change when the caller's object does (law 13
    one-approval). Raises Unserialisable for what has no JSON form (law 19 any-payload).
    """
    if type(arguments) is dict:
        for key, value in arguments.items():
            kind = type(value)
            plain = value is None or kind is bool or (kind is int and -_INT < value < _INT)
            if not (plain or (kind is str and _is_plain(value))) or not _is_plain(key):
                break
        else:
            return arguments.copy()
    data = to_data(arguments, where="arguments", strict=True)
    if not isinstance(data, dict):
        raise Unserialisable("arguments", f"is no mapping but {type(arguments).__name__}")
    return data


_INT = 2**53
_CHARS = 10_000


def _is_plain(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _CHARS and text.isascii() and "\0" not in text


def digest(tool: str, arguments: dict[str, Any], claims: tuple[Claim, ...]) -> str:
    """Binds an approval to tool, final arguments and target (law 13 one-approval)."""
    target = [[claim.resource, claim.shared] for claim in claims]
    text = canonical({"tool": tool, "arguments": arguments, "target": target})
    return hashlib.sha256(text.encode()).hexdigest()
