"""Arguments against the JSON Schema that a server gave for them, before anything is sent.

What is wrong is told with its place, as for every tool, and nothing runs (law 19 any-payload). The
schema is a stranger's: patterns are left to the server, since a pattern can be made to run for
ever; references lead nowhere but into the schema itself; and the work is bounded. What cannot be
checked within the bound, or is no schema at all, is not refused: it is the server's to check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from endstop.core.payload import canonical
from endstop.core.text import safe_text
from endstop.tools import schema as words
from endstop.tools.given import GivenSchema

STEPS_MAX = 20_000
DEPTH_MAX = 60
SHOWN_CHARS = 1_000
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


class ServerSchema(GivenSchema):
    """A given schema that is checked all the way down."""

    __slots__ = ()

    def check(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments. Raises InvalidArguments."""
        bound = super().check(tool, arguments)
        problems = list(problems_of(self.schema, arguments))[: words.PROBLEMS_MAX]
        if problems:
            raise words.complaint(tool, problems)
        return bound


def problems_of(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    """What is wrong with a value, in words; nothing where that cannot be told."""
    check = _Check(schema)
    try:
        found = check.look(schema, value, (), 0)
    except (_TooMuch, RecursionError):
        return
    for place, problem in found:
        yield f"`{words.location(place)}`: {problem}"


class _TooMuch(Exception):
    """The schema wants more work than its check is worth."""


Found = list[tuple[tuple[Any, ...], str]]


class _Check:
    """One pass over one value."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.steps = 0

    def look(self, schema: Any, value: Any, place: tuple[Any, ...], depth: int) -> Found:
        self._spend(1 if depth <= DEPTH_MAX else STEPS_MAX)
        if schema is False:
            return [(place, "nothing is allowed here")]
        if not isinstance(schema, Mapping):
            return []
        for listed in (schema.get("enum"), schema.get("required")):
            # Work that grows with the schema alone counts as well.
            self._spend(len(listed) if isinstance(listed, list) else 0)
        found: Found = []
        if "$ref" in schema:
            found += self.look(self._target(schema["$ref"]), value, place, depth + 1)
        if not _fits(schema.get("type"), value):
            expected = _expected(schema["type"])
            return [(place, f"expected {expected}; received {_received(value)}")]
        found += _plain(schema, value, place)
        if isinstance(value, dict):
            found += self._object(schema, value, place, depth)
        elif isinstance(value, list):
            found += self._array(schema, value, place, depth)
        return found + self._joined(schema, value, place, depth)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise _TooMuch

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        found: Any = self.root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return True
            found = found[name]
        return found

    def _object(
        self, schema: Mapping[str, Any], value: dict[str, Any], place: tuple[Any, ...], depth: int
    ) -> Found:
        found: Found = []
        required = schema.get("required")
        for name in required if isinstance(required, list) else ():
            if isinstance(name, str) and name not in value:
                found.append(((*place, name), "required, but missing"))
        properties = schema.get("properties")
        known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        more = schema.get("additionalProperties", True)
        if "patternProperties" in schema:
            more = True
        for name, item in value.items():
            if name in known:
                found += self.look(known[name], item, (*place, name), depth + 1)
            elif more is False:
                names = ", ".join(f"`{safe_text(str(each), 100)}`" for each in list(known)[:20])
                found.append(((*place, name), f"not allowed here; known are {names or 'none'}"))
            else:
                found += self.look(more, item, (*place, name), depth + 1)
        return found

    def _array(
        self, schema: Mapping[str, Any], value: list[Any], place: tuple[Any, ...], depth: int
    ) -> Found:
        found: Found = []
        first = schema.get("prefixItems")
        head = first if isinstance(first, list) else []
        rest = schema.get("items", True)
        for index, item in enumerate(value):
            wanted = head[index] if index < len(head) else rest
            found += self.look(wanted, item, (*place, index), depth + 1)
        return found

    def _joined(
        self, schema: Mapping[str, Any], value: Any, place: tuple[Any, ...], depth: int
    ) -> Found:
        found: Found = []
        for part in _listed(schema, "allOf"):
            found += self.look(part, value, place, depth + 1)
        for joined in ("anyOf", "oneOf"):
            parts = _listed(schema, joined)
            if not parts:
                continue
            tried: list[Found] = [self.look(part, value, place, depth + 1) for part in parts]
            fitting = sum(not problems for problems in tried)
            if fitting == 0:
                # The alternative that came furthest says best what is wrong.
                nearest: Found = min(tried, key=_distance)
                found += nearest
            elif joined == "oneOf" and fitting > 1:
                found.append((place, f"fits {fitting} alternatives, where it must fit one"))
        if "not" in schema and not self.look(schema["not"], value, place, depth + 1):
            found.append((place, f"is what it must not be: {_received(value)}"))
        return found


def _distance(problems: Found) -> tuple[int, int]:
    return len(problems), -max((len(place) for place, _ in problems), default=0)


def _listed(schema: Mapping[str, Any], key: str) -> list[Any]:
    parts = schema.get(key)
    return parts if isinstance(parts, list) else []


def _fits(kind: Any, value: Any) -> bool:
    if isinstance(kind, list):
        return not kind or any(_fits(one, value) for one in kind)
    match kind:
        case "integer":
            whole = isinstance(value, float) and value.is_integer()
            return whole or (isinstance(value, int) and not isinstance(value, bool))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case str() if kind in _TYPES:
            return isinstance(value, _TYPES[kind])
        case _:
            return True


def _expected(kind: Any) -> str:
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _same(one: Any, other: Any) -> bool:
    # 1 and 1.0 are one number in JSON Schema, 1 and true are not.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if type(one) is not type(other) or not isinstance(one, dict | list):
        return bool(one == other)
    try:
        return len(one) == len(other) and canonical(one) == canonical(other)
    except ValueError:
        return True


def _plain(schema: Mapping[str, Any], value: Any, place: tuple[Any, ...]) -> Found:
    """The keywords that look at one value alone."""
    found: Found = []
    listed = schema.get("enum")
    if isinstance(listed, list) and not any(_same(one, value) for one in listed):
        shown = ", ".join(_received(one).partition(" ")[2] or "null" for one in listed[:20])
        found.append((place, f"expected one of {shown}; received {_received(value)}"))
    if "const" in schema and not _same(schema["const"], value):
        found.append((place, f"expected {_received(schema['const'])}"))
    for low, high, size, unit in _measures(value):
        bound = schema.get(low)
        if _number(bound) and size < bound:
            found.append((place, f"expected at least {bound}{unit}; received {size:g}{unit}"))
        bound = schema.get(high)
        if _number(bound) and size > bound:
            found.append((place, f"expected at most {bound}{unit}; received {size:g}{unit}"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        bound = schema.get("exclusiveMinimum")
        if _number(bound) and value <= bound:
            found.append((place, f"expected more than {bound}; received {value:g}"))
        bound = schema.get("exclusiveMaximum")
        if _number(bound) and value >= bound:
            found.append((place, f"expected less than {bound}; received {value:g}"))
    return found


def _received(value: Any) -> str:
    """What came, without writing all of a large value out for it."""
    match value:
        case str():
            return words.received(value[:SHOWN_CHARS])
        case dict():
            return f"object of {len(value)} entries"
        case list():
            return f"array of {len(value)} items"
        case _:
            return words.received(value)


def _number(bound: Any) -> TypeGuard[int | float]:
    return isinstance(bound, int | float) and not isinstance(bound, bool)


def _measures(value: Any) -> list[tuple[str, str, Any, str]]:
    match value:
        case str():
            return [("minLength", "maxLength", len(value), " characters")]
        case list():
            return [("minItems", "maxItems", len(value), " items")]
        case dict():
            return [("minProperties", "maxProperties", len(value), " entries")]
        case bool():
            return []
        case int() | float():
            return [("minimum", "maximum", value, "")]
        case _:
            return []
