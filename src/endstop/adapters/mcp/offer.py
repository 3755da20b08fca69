"""Tools of a server as tools of ours: names that models can say, and a contract from the hints.

A server's hints are its own word. They are believed unless `trust=False`, and `contract=` overrides
them tool by tool; without a hint the protocol's own default holds: effectful, and destructive.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types

from endstop.adapters.mcp.checking import ServerSchema
from endstop.adapters.mcp.exchange import Exchange, converse
from endstop.core.text import safe_text
from endstop.errors import ContractError
from endstop.tools.context import AsyncContext
from endstop.tools.resources import shared
from endstop.tools.tool import Tool, tool_from_schema

if TYPE_CHECKING:
    from endstop.adapters.mcp.link import Link

NAME_CHARS = 64
"""The longest name that every provider of models accepts."""

DESCRIPTION_CHARS = 8_000
KEPT_MAX = 10_000

Asking = Literal["never", "destructive", "always"]
_UNSAYABLE = re.compile(r"[^A-Za-z0-9_-]+")
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How tools are offered; see `McpServer`."""

    trust: bool = True
    approval: Asking = "never"
    parallel: bool = True
    contract: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


def safe_names(originals: Iterable[str], prefix: str = "") -> dict[str, str]:
    """A name that every model can say for each tool: the same for the same list, no two alike."""
    made: dict[str, str] = {}
    taken: set[str] = set()
    # Names that need no change keep theirs, whatever else becomes like them.
    ordered = sorted(set(originals), key=lambda name: (_said(prefix + name) != prefix + name, name))
    for original in ordered:
        name = _said(prefix + original)
        if name in taken or (name != prefix + original and len(prefix + original) > NAME_CHARS):
            mark = hashlib.sha256(original.encode(errors="replace")).hexdigest()[:8]
            name = f"{name[: NAME_CHARS - 9]}_{mark}"
        taken.add(name)
        made[original] = name
    return made


def _said(name: str) -> str:
    return _UNSAYABLE.sub("_", name)[:NAME_CHARS] or "tool"


def make_tool(link: Link, found: types.Tool, name: str, rules: Rules) -> Tool:
    """One tool of a server. Raises ContractError where the contract given for it is wrong."""
    original = found.name

    async def body(arguments: dict[str, Any], ctx: AsyncContext) -> Any:
        return await converse(Exchange(link, original, arguments, ctx))

    parameters = _parameters(found.input_schema)
    terms: dict[str, Any] = {"isolation": "remote", **_from_hints(found, rules)}
    claim = f"mcp:{link.name}"
    terms["resources"] = [shared(claim) if rules.parallel else claim]
    for key in ("*", original):
        given = dict(rules.contract.get(key, {}))
        if given.get("isolation", "remote") != "remote":
            raise ContractError(
                f"MCP tool `{original}`: it runs at its server: isolation is remote"
            )
        terms |= given
    made = tool_from_schema(
        name,
        parameters,
        body,
        safe_text(found.description or found.title or "", DESCRIPTION_CHARS),
        as_dict="arguments",
        context_param="ctx",
        **terms,
    )
    return dataclasses.replace(made, _given=ServerSchema(parameters, "arguments"))


def _parameters(given: Any) -> dict[str, Any]:
    """The schema of the arguments; where the server's is none, any object goes to the server."""
    if not isinstance(given, dict) or given.get("type", "object") != "object":
        return _ANY_OBJECT
    properties, required = given.get("properties", {}), given.get("required", [])
    sound = isinstance(properties, dict) and isinstance(required, list)
    if not sound or not all(isinstance(name, str) for name in required):
        return _ANY_OBJECT
    return {"type": "object", **given}


def _from_hints(found: types.Tool, rules: Rules) -> dict[str, Any]:
    hints = found.annotations if rules.trust else None
    effect = "effectful"
    destructive = True
    if hints is not None:
        if hints.idempotent_hint:
            effect = "idempotent"
        if hints.destructive_hint is False:
            destructive = False
        if hints.read_only_hint:
            effect, destructive = "read_only", False
    asks = rules.approval == "always" or (rules.approval == "destructive" and destructive)
    return {"effect": effect, "approval": "always" if asks else "never"}


class Offered:
    """The tools made so far: the same definition under the same name is the same tool."""

    def __init__(self, link: Link, rules: Rules) -> None:
        self._link = link
        self._rules = rules
        self._made: dict[tuple[str, str], tuple[str, Tool]] = {}

    def tools(self, found: Iterable[types.Tool], prefix: str) -> list[Tool]:
        """Our tools for these of the server, in its order."""
        listed = list(found)
        names = safe_names((one.name for one in listed), prefix)
        if len(self._made) > KEPT_MAX:
            # A server may offer other tools without end.
            self._made.clear()
        return [self._tool(one, names[one.name]) for one in listed]

    def _tool(self, found: types.Tool, name: str) -> Tool:
        digest = found.model_dump_json(by_alias=True, exclude_none=True)
        before = self._made.get((found.name, name))
        if before is not None and before[0] == digest:
            return before[1]
        made = make_tool(self._link, found, name, self._rules)
        self._made[found.name, name] = (digest, made)
        return made


Changed = Callable[[], object]
