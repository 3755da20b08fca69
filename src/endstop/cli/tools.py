"""The command line's `tools`: what a file or module offers, with schemas and contracts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from endstop.cli import look
from endstop.cli.loading import Offered, load_tools
from endstop.cli.output import Answer, hear_warnings
from endstop.cli.servers import Servers
from endstop.config import Config
from endstop.core.terms import Money
from endstop.tools.contract import resolve
from endstop.tools.resources import described


def show(sources: Sequence[str], servers: Servers, *, as_json: bool) -> None:
    """Print the tools of `sources` and servers. Raises `EndstopError` for one that fails."""
    hear_warnings()
    with Answer() as answer, ExitStack() as stack:
        offered = load_tools(sources)
        offered += servers.open(stack, offered)
        config = Config.load()
        if as_json:
            data = [tool_data(one, config) for one in offered]
            answer.write(look.document(data) + "\n")
            return
        blocks = [_block(one, config) for one in offered]
        answer.write("\n".join(blocks))


def tool_data(offered: Offered, config: Config) -> dict[str, Any]:
    """A tool as JSON: what the model is told, and what is promised of it."""
    tool, declared = offered.tool, offered.tool.declared
    alone = resolve(declared, timeouts=config.timeouts, sequential=True)
    beside = resolve(declared, timeouts=config.timeouts, sequential=False)
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "source": offered.source,
        "address": tool.address,
        "contract": {
            "effect": str(declared.effect),
            "isolation": str(declared.isolation),
            "resources": described(tool._claims),
            "exclusive": declared.exclusive,
            "timeout_s": alone.deadline_s,
            "timeout_in_batch_s": beside.deadline_s,
            "idle_timeout_s": declared.idle_s,
            "grace_s": alone.grace_s,
            "cost": _rule(tool._cost),
            "approval": _rule(declared.approval),
            "commits": declared.commits,
            "interrupt": tool.interrupt is not None,
            "terminate": declared.terminate,
        },
    }


def _rule(value: Any) -> str | None:
    """A cost or an approval rule in words."""
    if isinstance(value, Money):
        return look.amount(value)
    if value is None or isinstance(value, str):
        return value
    return f"decided by {getattr(value, '__qualname__', type(value).__qualname__)}()"


def _block(offered: Offered, config: Config) -> str:
    data = tool_data(offered, config)
    contract = data["contract"]
    lines = [f"{data['name']}  ({data['source']})"]
    lines += [f"  {look.words(line, 200)}" for line in data["description"].splitlines() if line]
    lines.append("  arguments")
    properties = data["parameters"].get("properties") or {}
    required = data["parameters"].get("required") or ()
    for name, schema in properties.items():
        lines.append(f"    {name}: {_type(schema)}{_more(name, schema, required)}")
    if not properties:
        lines.append("    none")
    lines.append("  contract")
    lines += [f"    {key}: {text}" for key, text in _contract(contract)]
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(one, ensure_ascii=False) for one in schema["enum"])
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " | ".join(_type(one) for one in schema[joined])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_type(schema.get('items') or {})}"
    return str(kind)


def _more(name: str, schema: dict[str, Any], required: Sequence[str]) -> str:
    more = "" if name in required else ", optional"
    if "default" in schema:
        more = f", default {look.words(json.dumps(schema['default'], ensure_ascii=False), 60)}"
    about = schema.get("description")
    return f"{more}. {look.words(str(about), 160)}" if about else more


def _contract(contract: dict[str, Any]) -> list[tuple[str, str]]:
    limit, beside = _limit(contract["timeout_s"]), _limit(contract["timeout_in_batch_s"])
    resources = contract["resources"]
    named = ", ".join(resources) or "none"
    told = [
        ("effect", contract["effect"].replace("_", "-")),
        ("isolation", contract["isolation"]),
        ("resources", named),
        ("timeout", limit if limit == beside else f"{limit} alone, {beside} in a batch"),
        ("grace", _limit(contract["grace_s"])),
        ("approval", contract["approval"]),
    ]
    if contract["idle_timeout_s"] is not None:
        told.insert(4, ("idle timeout", _limit(contract["idle_timeout_s"])))
    if contract["cost"] is not None:
        told.append(("cost", contract["cost"]))
    flags = [name for name in ("exclusive", "commits", "interrupt", "terminate") if contract[name]]
    if flags:
        told.append(("also", ", ".join(flags)))
    return [(key, str(text)) for key, text in told]


def _limit(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g} s"
