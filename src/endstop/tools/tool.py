"""Tools: what a tool is, and `@tool`, which makes one of a plain typed function.

A tool knows its schema, its contract and its resources; it never runs by itself. Calling it calls
the function, as if it had not been decorated.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from endstop.config import ResourceLimits
from endstop.core.terms import Backoff, Claim, EffectClass, Isolation, Money
from endstop.core.text import describe_error
from endstop.errors import ContractError, InvalidArguments
from endstop.tools import schema
from endstop.tools.address import NoAddress, address_of
from endstop.tools.context import AsyncContext, BodyContext, Context
from endstop.tools.declared import (
    CONTRACT_KEYS,
    Declared,
    Interrupt,
    check_name,
    declare,
    read_cost,
    read_interrupt,
    read_reconcile,
)
from endstop.tools.given import GivenSchema, schema_problem
from endstop.tools.money import read_money
from endstop.tools.reconcile import Reconcile
from endstop.tools.resources import DEFAULT_LIMITS, MakeClaims, Resources, make_claims

Bind = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Tool:
    """A named function with a JSON Schema and a contract. Made by `@tool` or `tool_from_schema`.

    `interrupt`, if any, makes a running body return; it is called from another thread and takes the
    body's context or nothing. `context_param` names the parameter that takes the context.
    """

    name: str
    fn: Callable[..., Any]
    is_async: bool
    declared: Declared
    context_param: str | None = None
    interrupt: Interrupt | None = None
    reconcile: Reconcile | None = None
    _text: str | None = field(default=None, repr=False)
    _signature: tuple[schema.Parameter, ...] = field(default=(), repr=False)
    _given: GivenSchema | None = field(default=None, repr=False)
    _claims: MakeClaims = field(repr=False)
    _cost: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Introspection (signature, help, other decorators) sees the function itself.
        for attribute in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(self.fn, attribute) and attribute != "__annotations__":
                object.__setattr__(self, attribute, getattr(self.fn, attribute))
        object.__setattr__(self, "__wrapped__", self.fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly: no gate, no journal, no deadline."""
        return self.fn(*args, **kwargs)

    @functools.cached_property
    def address(self) -> str | None:
        """Where another process finds the function; None if it cannot."""
        try:
            return address_of(self.fn, self)
        except NoAddress:
            return None

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        return self._docs[0] if self._text is None else self._text

    @functools.cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments; treat it as read-only."""
        if self._given is not None:
            return self._given.schema
        if not self._signature:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        return schema.json_schema(self._adapter, self._signature, self._docs[1])

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function, validated, without the context.

        Raises `InvalidArguments`, and nothing else; the message lists every problem with its place,
        what was expected and what was received, and is bounded.
        """
        if not arguments and not self._signature and self._given is None:
            return {}
        try:
            return self._validate(arguments)
        except InvalidArguments:
            raise
        except Exception as error:  # noqa: BLE001 - a type's own validator may raise anything
            known = tuple(parameter.name for parameter in self._signature)
            raise schema.invalid(self.name, known, error) from None

    def claims(
        self,
        arguments: Mapping[str, Any],
        limits: ResourceLimits = DEFAULT_LIMITS,
        base: str | None = None,
    ) -> tuple[Claim, ...]:
        """The resources that a call with these (validated) arguments wants, with wait limits.

        Raises `InvalidArguments` where an argument names no possible resource, `ContractError`
        where the tool's own function fails.
        """
        return self._claims(self._filled(arguments), limits, base)

    def cost_of(self, arguments: Mapping[str, Any]) -> Money | None:
        """What a call with these (validated) arguments costs; None if the tool declares nothing.

        Raises `ContractError` where the tool's own function fails or answers junk.
        """
        cost = self._cost
        if cost is None or isinstance(cost, Money):
            return cost
        answer = self._own("cost", cost, arguments)
        try:
            return None if answer is None else read_money(answer)
        except ValueError as problem:
            raise ContractError(f"tool `{self.name}`: its cost function: {problem}") from None

    def needs_approval(self, arguments: Mapping[str, Any], cost: Money | None) -> bool:
        """Whether a human must approve a call with these arguments and this cost.

        Where an amount decides, a cost that is unknown or in another currency needs approval.
        Raises `ContractError` where the tool's own function fails or answers no bool.
        """
        rule = self.declared.approval
        if rule == "never":
            return False
        if rule == "always":
            return True
        if isinstance(rule, Money):
            return cost is None or cost.currency != rule.currency or cost.amount > rule.amount
        answer = self._own("approval", rule, arguments)
        if not isinstance(answer, bool):
            raise ContractError(
                f"tool `{self.name}`: its approval function answered {answer!r:.80}, not a bool"
            )
        return answer

    def _own(self, what: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        try:
            return function(self._filled(arguments))
        except InvalidArguments:
            raise
        except Exception as error:
            raise ContractError(
                f"tool `{self.name}`: its {what} function failed: {describe_error(error)}"
            ) from error

    def _filled(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments with the function's defaults where something was left out."""
        if self._given is not None:
            return self._given.unwrap(arguments)
        if len(arguments) == len(self._signature) or not self._defaults:
            return arguments
        return {**self._defaults, **arguments}

    @functools.cached_property
    def _defaults(self) -> dict[str, Any]:
        return {p.name: p.default for p in self._signature if not p.required}

    @functools.cached_property
    def _docs(self) -> tuple[str, dict[str, str]]:
        return schema.read_docstring(inspect.getdoc(schema.unwrapped(self.fn)[0]) or "")

    @functools.cached_property
    def _adapter(self) -> Any:
        return schema.build(self.name, self._signature)

    @functools.cached_property
    def _validate(self) -> Bind:
        if self._given is not None:
            return functools.partial(self._given.check, self.name)
        validate: Bind = self._adapter.validator.validate_python
        return validate


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: EffectClass | str = ...,
    isolation: Isolation | str | None = ...,
    resources: Resources = ...,
    timeout: float | str | None = ...,
    idle_timeout: float | str | None = ...,
    exclusive: bool = ...,
    cost: Any = ...,
    approval: Any = ...,
    grace: float | None = ...,
    commits: bool = ...,
    name: str | None = ...,
    description: str | None = ...,
    interrupt: Callable[..., object] | None = ...,
    terminate: bool = ...,
    retries: int = ...,
    backoff: Backoff | float | str = ...,
    reconcile: Reconcile | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(fn: Callable[..., Any] | None = None, /, **contract: Any) -> Any:
    """Make a tool of a plain typed function, sync or async.

    `effect`: "read_only", "idempotent", "effectful" (default) or "once" (design: durability by
    effect class). `isolation`: "coroutine" (default for async), "thread" (default otherwise),
    "process". `resources`: see `endstop.tools.resources.make_claims`. `timeout` and `idle_timeout`:
    seconds; 0, less or "off" for no limit. `exclusive`: a barrier in its batch. `cost`: "0.04 USD",
    `Money`, or a function of the arguments. `approval`: "never", "always", "above 5 USD", or a
    function of the arguments that returns a bool. `grace`: seconds between asked and the next rung.
    `commits`: the body declares a commit point (`ctx.commit()`). `interrupt`: makes the body
    return. `terminate`: a success asks for no further model turn. `retries`: how often a failed
    attempt may be followed by another one, where that can do no harm (law 10 no-blind-retry);
    `backoff`: seconds (or "1s", "2min") before the first of them, doubled each time, or `Backoff`.
    `reconcile`: asked with a `LostCall` what became of a lost call; answers `Reconciled`.

    Raises ContractError where the declaration contradicts itself.
    """
    names = sys._getframe(1).f_locals
    if fn is None:
        return lambda function: _make(function, names, **contract)
    return _make(fn, names, **contract)


def _make(
    fn: Callable[..., Any],
    names: Mapping[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    **contract: Any,
) -> Tool:
    if isinstance(fn, Tool):
        raise ContractError(f"`{fn.name}` is a tool already; decorate it once")
    if not inspect.isroutine(fn) and not isinstance(fn, functools.partial):
        raise ContractError(f"@tool takes a function, not {fn!r:.80}")
    own = check_name(name if name is not None else getattr(fn, "__name__", None))
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ContractError(
            f"tool `{own}` is a generator; return one value, and report the rest with "
            "ctx.progress()"
        )
    is_async = inspect.iscoroutinefunction(fn)
    signature = schema.read_signature(own, fn, BodyContext, names)
    wrong = Context if is_async else AsyncContext
    if signature.context_type is wrong:
        right = AsyncContext if is_async else Context
        raise ContractError(
            f"tool `{own}`: parameter `{signature.context_param}` must be {right.__name__} in "
            f"{'an async' if is_async else 'a plain'} function, not {wrong.__name__}"
        )
    made = _assemble(
        own,
        fn,
        is_async=is_async,
        parameters=signature.parameters,
        names=tuple(p.name for p in signature.parameters),
        context_param=signature.context_param,
        text=_text(own, description),
        given=None,
        contract=contract,
    )
    if made.declared.isolation is Isolation.PROCESS:
        try:
            address_of(fn)
        except NoAddress as problem:
            raise ContractError(
                f'tool `{own}` cannot have isolation="process", because another process could not '
                f"find it: {problem}"
            ) from None
    if not all(schema.is_plain(parameter.annotation) for parameter in signature.parameters):
        # Not plain: only building it shows whether a schema exists.
        _ = made._adapter
    return made


def _text(name: str, description: object) -> str | None:
    if description is not None and not isinstance(description, str):
        raise ContractError(f"tool `{name}`: description is text, not {description!r:.80}")
    return description


def _assemble(
    name: str,
    fn: Callable[..., Any],
    *,
    is_async: bool,
    parameters: tuple[schema.Parameter, ...],
    names: tuple[str, ...] | None,
    context_param: str | None,
    text: str | None,
    given: GivenSchema | None,
    contract: dict[str, Any],
) -> Tool:
    unknown = contract.keys() - CONTRACT_KEYS
    if unknown:
        raise ContractError(
            f"tool `{name}`: `{min(unknown)}` is nothing that a tool declares; known are "
            + ", ".join(sorted(CONTRACT_KEYS | {"name", "description"}))
        )
    cost = read_cost(name, contract.get("cost"))
    declared = declare(
        name,
        is_async=is_async,
        has_cost=cost is not None,
        effect=contract.get("effect"),
        isolation=contract.get("isolation"),
        exclusive=contract.get("exclusive", False),
        commits=contract.get("commits", False),
        terminate=contract.get("terminate", False),
        timeout=contract.get("timeout"),
        idle_timeout=contract.get("idle_timeout"),
        grace=contract.get("grace"),
        approval=contract.get("approval"),
        retries=contract.get("retries", 0),
        backoff=contract.get("backoff"),
        reconciles=contract.get("reconcile") is not None,
    )
    return Tool(
        name=name,
        fn=fn,
        is_async=is_async,
        declared=declared,
        context_param=context_param,
        interrupt=read_interrupt(name, contract.get("interrupt")),
        reconcile=read_reconcile(name, contract.get("reconcile")),
        _text=text,
        _signature=parameters,
        _given=given,
        _claims=make_claims(name, contract.get("resources"), names),
        _cost=cost,
    )


def tool_from_schema(
    name: str,
    parameters: dict[str, Any],
    fn: Callable[..., Any],
    description: str = "",
    *,
    as_dict: str | None = None,
    context_param: str | None = None,
    **contract: Any,
) -> Tool:
    """A tool whose JSON Schema is given; `contract` is what `@tool` takes.

    The arguments reach `fn` as keywords of the names in the schema; with `as_dict="arguments"` they
    reach it as one dict under that keyword, which is needed where names are no Python names.
    `context_param` names the parameter that takes the context, if any.

    Raises ContractError where the schema is no object schema or the declaration contradicts itself.
    """
    check_name(name)
    problem = schema_problem(parameters)
    if problem:
        raise ContractError(f"tool `{name}`: {problem}")
    if not callable(fn):
        raise ContractError(f"tool `{name}`: fn is a function, not {fn!r:.80}")
    properties = tuple(parameters.get("properties") or {})
    open_ended = parameters.get("additionalProperties", True) is not False
    return _assemble(
        name,
        fn,
        is_async=inspect.iscoroutinefunction(fn),
        parameters=(),
        names=None if open_ended else properties,
        context_param=context_param,
        text=_text(name, description),
        given=GivenSchema(parameters, as_dict),
        contract=contract,
    )
