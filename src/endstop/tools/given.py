"""Tools: a JSON Schema that came with a tool (from MCP, from another program), checked lightly.

What lies below the top level is the peer's to check. Nothing here follows references or loads a
schema from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endstop.tools import schema


class GivenSchema:
    """Arguments are an object with the required names, no unknown ones where the schema forbids
    them, and the right types at the top level."""

    __slots__ = ("as_dict", "schema")

    def __init__(self, given: dict[str, Any], as_dict: str | None) -> None:
        self.schema = given
        self.as_dict = as_dict

    def check(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments. Raises InvalidArguments."""
        if not isinstance(arguments, Mapping):
            received = schema.received(arguments)
            lines = [f"`arguments`: expected an object; received {received}"]
        else:
            lines = _problems(self.schema, arguments)
        if lines:
            raise schema.complaint(tool, lines)
        return dict(arguments) if self.as_dict is None else {self.as_dict: dict(arguments)}

    def unwrap(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments by name, from what `check` returned or from before it."""
        inside = arguments.get(self.as_dict) if self.as_dict is not None else None
        return inside if isinstance(inside, Mapping) and len(arguments) == 1 else arguments


def schema_problem(given: object) -> str | None:
    """Why this is no schema of an object, in words; None if it is one."""
    if not isinstance(given, Mapping):
        return f"parameters is a JSON Schema as a dict, not {type(given).__name__}"
    if given.get("type", "object") != "object":
        return f"parameters is the schema of an object, not of type {given['type']!r:.80}"
    properties = given.get("properties")
    if properties is not None and not isinstance(properties, Mapping):
        return f"parameters: properties is a dict, not {type(properties).__name__}"
    required = given.get("required")
    if required is not None and not (
        isinstance(required, list) and all(isinstance(name, str) for name in required)
    ):
        return "parameters: required is a list of names"
    return None


def _problems(given: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    properties: Mapping[str, Any] = given.get("properties") or {}
    known = tuple(str(name) for name in properties)
    lines = [
        f"`{schema.location((name,))}`: required, but missing"
        for name in given.get("required") or ()
        if name not in arguments
    ]
    closed = given.get("additionalProperties", True) is False
    patterns = given.get("patternProperties")
    for name, value in arguments.items():
        wanted = properties.get(name)
        if isinstance(wanted, Mapping):
            if not _fits(wanted.get("type"), value):
                lines.append(
                    f"`{schema.location((name,))}`: expected {_types(wanted['type'])}; "
                    f"received {schema.received(value)}"
                )
        elif wanted is False or (closed and name not in properties and not patterns):
            lines.append(schema.unknown_name(schema.location((name,)), known))
    if len(lines) > schema.PROBLEMS_MAX:
        rest = len(lines) - schema.PROBLEMS_MAX
        lines = [*lines[: schema.PROBLEMS_MAX], f"and {rest} more"]
    return lines


def _types(kind: object) -> str:
    return " or ".join(str(each) for each in kind) if isinstance(kind, list) else str(kind)


def _fits(kind: object, value: object) -> bool:
    if isinstance(kind, list):
        return any(_fits(each, value) for each in kind)
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            if isinstance(value, float):
                return value.is_integer()
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, Mapping)
        case "null":
            return value is None
        case _:
            # No type, or one that this version does not know: not ours to refuse.
            return True
