"""Arguments against a stranger's schema."""

from __future__ import annotations

import time
from typing import Any

import pytest

from endstop.adapters.mcp.checking import problems_of
from endstop.core.payload import read_arguments

POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "integer", "minimum": 0}},
    "required": ["x"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"point": POINT, "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "properties": {
        "at": {"$ref": "#/$defs/point"},
        "kind": {"enum": ["a", "b", 1, None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "not": {"not": {"const": "x"}},
        "tree": {"$ref": "#/$defs/tree"},
        "more": {"exclusiveMinimum": 0, "exclusiveMaximum": 10},
        "pair": {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        "pattern": {"type": "string", "pattern": "(a+)+$"},
    },
}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"at": {"x": 1}},
        {"at": {"x": 1.5, "y": 2.0}},
        {"kind": None},
        {"kind": 1.0},
        {"tags": ["abc", "d"]},
        {"either": 3},
        {"one": 1.5},
        {"not": "y"},
        {"tree": [[], [[[]]]]},
        {"more": 9.9},
        {"pair": ["a", 1]},
        {"unknown": object},
        {"pattern": "a" * 40 + "!"},
    ],
)
def test_what_fits_is_not_refused(value: dict[str, Any]) -> None:
    assert list(problems_of(SCHEMA, value)) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"at": {"y": 1}}, "`at.x`: required, but missing"),
        ({"at": {"x": "1"}}, "`at.x`: expected number; received string"),
        ({"at": {"x": 1, "y": -1}}, "`at.y`: expected at least 0"),
        ({"at": {"x": 1, "z": 1}}, "`at.z`: not allowed here; known are `x`, `y`"),
        ({"at": 5}, "`at`: expected object; received integer 5"),
        ({"kind": "c"}, '`kind`: expected one of "a", "b", 1, null; received string "c"'),
        ({"kind": True}, "`kind`: expected one of"),
        ({"tags": ["abcd"]}, "`tags[0]`: expected at most 3 characters"),
        ({"tags": ["a", "b", "c"]}, "`tags`: expected at most 2 items"),
        ({"either": []}, "`either`: expected"),
        ({"one": 1}, "`one`: fits 2 alternatives"),
        ({"not": "x"}, "`not`: is what it must not be"),
        ({"tree": [[], [1]]}, "`tree[1][0]`: expected array"),
        ({"more": 10}, "`more`: expected less than 10"),
        ({"pair": ["a", 1, 2]}, "`pair[2]`: nothing is allowed here"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(value: dict[str, Any], words: str) -> None:
    found = list(problems_of(SCHEMA, value))
    assert len(found) == 1
    assert found[0].startswith(words)


def bomb(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(levels):
        part = {"$ref": f"#/$defs/d{level}"}
        definitions[f"d{level + 1}"] = {"allOf": [part, part, part]}
    return {"$defs": definitions, "properties": {"x": {"$ref": f"#/$defs/d{levels}"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "http://example.com/schema.json"},
        {"$ref": 5},
        {"type": 5, "enum": 5, "required": 5, "properties": 5, "allOf": 5, "minimum": "x"},
        {"type": ["object", 7], "additionalProperties": {"$ref": "#/nowhere"}},
        bomb(20),
        {"properties": {"x": {"enum": [*range(2, 200_000)]}}},
        {"required": [str(n) for n in range(200_000)]},
    ],
)
def test_a_schema_that_is_none_refuses_nothing_and_takes_no_time(schema: dict[str, Any]) -> None:
    began = time.monotonic()
    assert list(problems_of(schema, {"x": 1})) == []
    assert time.monotonic() - began < 1.0, "law 19 any-payload: the work is bounded"


def test_deep_arguments_do_no_harm() -> None:
    nested, _ = read_arguments('{"tree": ' + "[" * 90 + "]" * 90 + "}")
    assert nested is not None
    list(problems_of(SCHEMA, nested))
