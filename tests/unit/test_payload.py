"""Hostile and ordinary payloads at the boundary (law 19 any-payload)."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endstop.core.payload import (
    ARGUMENTS_LIMIT,
    INT_BITS,
    PayloadLimits,
    Unserialisable,
    canonical,
    dumps,
    read_arguments,
    safe_text,
    to_data,
)
from endstop.core.text import InvalidJson, describe_error, loads, scrub

any_text = st.text(st.characters(codec=None, exclude_categories=()))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | any_text
hostile = st.recursive(
    scalars | st.binary() | st.decimals() | st.dates() | st.datetimes() | st.uuids(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers() | st.booleans() | st.none(), inner)
    ),
    max_leaves=20,
)
clean_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def nested(depth: int, *, as_dict: bool = False) -> Any:
    value: Any = []
    for _ in range(depth):
        value = {"a": value} if as_dict else [value]
    return value


# ------------------------------------------------------------------------------------------ text


def test_BH72_what_is_not_utf8_gets_a_visible_marker() -> None:
    assert safe_text("half \ud83c.") == "half \ufffd."
    assert safe_text(b"\xff\xfe ok") == "\ufffd\ufffd ok"
    assert safe_text("a\0b") == "a\u2400b"
    assert scrub("\ud83d\ude00 \ude00\ud83d") == "\U0001f600 \ufffd\ufffd"


@given(any_text | st.binary(), st.integers(0, 300))
def test_safe_text_encodes_fits_and_is_stable(text: str | bytes, limit: int) -> None:
    made = safe_text(text, limit)
    assert len(made) <= max(limit, 100)
    assert made.encode().decode() == made
    assert safe_text(made, limit) == made


def test_a_long_text_keeps_its_ends_and_says_what_is_missing() -> None:
    made = safe_text("HEAD" + "x" * 10_000 + "TAIL", 200)
    assert 190 < len(made) <= 200
    assert made.startswith("HEAD")
    assert made.endswith("TAIL")
    head, line, tail = made.split("\n")
    assert line == f"[… {10_008 - len(head) - len(tail)} characters left out …]"


def test_long_bytes_are_cut_before_they_are_decoded() -> None:
    made = safe_text(b"\xc3\xa9" * 1_000_000, 1_000)
    assert len(made) <= 1_000
    head, line, tail = made.split("\n")
    left_out = 2_000_000 - len(head.encode()) - len(tail.encode())
    assert line == f"[… {left_out} bytes left out …]"
    assert set(head + tail) == {"\u00e9"}


def test_an_exception_is_described_whatever_it_does() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert describe_error(ValueError("x")) == "ValueError: x"
    assert describe_error(KeyError()) == "KeyError"
    assert describe_error(Hostile()) == "Hostile: (its message could not be made)"
    assert describe_error(ValueError("\ud83c")) == "ValueError: \ufffd"
    assert len(describe_error(ValueError("x" * 10_000_000))) < 400


# ------------------------------------------------------------------------------------------ data


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Pair(NamedTuple):
    left: int
    right: int


@dataclass
class Point:
    x: int
    tags: set[str]


class Modelled:
    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"modelled": [1, Colour.RED]}


class Array:
    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Word.YES, "yes"),
        (Pair(1, 2), [1, 2]),
        (Point(1, {"b", "a"}), {"x": 1, "tags": ["a", "b"]}),
        (Modelled(), {"modelled": [1, "red"]}),
        (Array(), [1, 2]),
        (Decimal("1.10"), "1.10"),
        (Decimal("NaN"), None),
        (dt.date(2027, 1, 2), "2027-01-02"),
        (dt.datetime(2027, 1, 2, 3, tzinfo=dt.UTC), "2027-01-02T03:00:00+00:00"),
        (dt.time(3, 4), "03:04:00"),
        (dt.timedelta(minutes=1.5), 90.0),
        (Path("a/b"), "a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"caf\xc3\xa9 \xff", "caf\u00e9 \ufffd"),
        (bytearray(b"x"), "x"),
        (memoryview(b"xy")[::2], "x"),
        (frozenset({3, 1}), [1, 3]),
        (range(3), [0, 1, 2]),
        (deque([1]), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (
            {1: "a", False: "b", None: "c", 0.5: "d"},
            {"1": "a", "false": "b", "null": "c", "0.5": "d"},
        ),
        ({Colour.RED: 1, Path("p"): 2}, {"red": 1, "p": 2}),
        (float("nan"), None),
        ([float("inf")], [None]),
        ("a\0", "a\0"),
        ({"\ud83c": "\ud83c"}, {"\ufffd": "\ufffd"}),
        (2**64, 2**64),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_have_a_json_form(value: object, data: object) -> None:
    made = to_data(value)
    assert made == data
    assert type(made) is type(data)
    json.dumps(made, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"handle": [1, 2, 3, object()]}, r"^result\.handle\[3\]: is of type object"),
        ({"a b": [object()]}, r"^result\['a b'\]\[0\]: "),
        ({(1, 2): 1}, "^result: has a key of type tuple"),
        ({1: 1, "1": 2}, r"^result\['1'\]: appears twice"),
        ([10**5_000], r"^result\[0\]: is an integer of 16610 bits"),
        (nested(100_000), "nested more than 100 levels"),
        (nested(100_000, as_dict=True), "nested more than 100 levels"),
        ((i for i in [1]), "is of type generator"),
        (Point, "is of type type"),
        (len, "is of type builtin_function_or_method"),
        (1j, "is of type complex"),
    ],
    ids=range(11),
)
def test_values_that_have_none_are_refused_with_a_path(value: object, words: str) -> None:
    with pytest.raises(Unserialisable, match=words) as caught:
        to_data(value)
    assert caught.value.path.startswith("result")
    assert len(str(caught.value)) < 1_000


def test_cycles_are_refused_and_shared_values_are_not() -> None:
    shared = [1]
    assert to_data([shared, shared]) == [[1], [1]]
    loop: list[object] = [shared]
    loop.append({"again": loop})
    with pytest.raises(Unserialisable, match=r"^result\[1\]\.again: contains itself"):
        to_data(loop)


def test_a_small_value_that_unfolds_without_end_is_bounded() -> None:
    bomb: list[Any] = [1] * 10
    for _ in range(30):
        bomb = [bomb] * 10
    with pytest.raises(Unserialisable, match="more than 200000 values"):
        to_data(bomb)


class Endless(AbstractSet[int]):
    """A set that never ends."""

    def __contains__(self, item: object) -> bool:
        return True

    def __iter__(self) -> Iterator[int]:
        return count()

    def __len__(self) -> int:
        return 3


def test_a_value_without_end_is_bounded() -> None:
    with pytest.raises(Unserialisable, match="more than 200000 values"):
        to_data({"found": Endless()})


def test_limits_count_everything() -> None:
    limits = PayloadLimits(depth=2, items=5, chars=6)
    assert to_data([["abc"], "abc"], limits=limits) == [["abc"], "abc"]
    for value in ([[["a"]]], ["a"] * 5, ["abcd", "abc"], {"abcd": "abc"}, [b"abcdefg"]):
        with pytest.raises(Unserialisable):
            to_data(value, limits=limits)
    with pytest.raises(Unserialisable, match="more than 6 characters"):
        to_data(bytes(1_000), limits=limits)


class Raises:
    @property
    def model_dump(self) -> Any:
        raise RuntimeError("no dump")


class EndlessDump:
    def model_dump(self, *, mode: str) -> Any:
        return EndlessDump()


class BadMapping(dict[str, Any]):
    def items(self) -> Any:
        raise OSError("gone")


class Liar:
    @property
    def __class__(self) -> Any:
        raise ValueError("who knows")


@pytest.mark.parametrize("make", [Raises, EndlessDump, lambda: BadMapping(a=1), Liar])
def test_values_that_fight_back_are_refused(make: Any) -> None:
    with pytest.raises(Unserialisable):
        to_data([make()])


def test_a_walk_near_the_end_of_the_stack_is_refused_not_fatal() -> None:
    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        else:
            to_data(nested(90))

    used = 0
    frame: Any = sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back
    with pytest.raises(Unserialisable, match="nested too deeply"):
        deeper(sys.getrecursionlimit() - used - 60)


def test_the_copy_is_not_the_value() -> None:
    inner: list[int] = [1]
    made = to_data({"a": inner})
    inner.append(2)
    assert made == {"a": [1]}


def test_subclasses_become_plain() -> None:
    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    class Real(float):
        pass

    made = to_data([Text("a"), Number(1), Real(0.5), {Text("k"): 1}])
    assert made == ["a", 1, 0.5, {"k": 1}]
    assert [type(one) for one in made] == [str, int, float, dict]
    assert type(next(iter(made[3]))) is str


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(Unserialisable("result.a", "is odd")))
    assert (error.path, error.problem, str(error)) == ("result.a", "is odd", "result.a: is odd")


@given(hostile)
def test_whatever_comes_out_is_valid_json_in_utf8(value: object) -> None:
    try:
        made = to_data(value)
    except Unserialisable as error:
        str(error).encode()
        return
    text = json.dumps(made, allow_nan=False, ensure_ascii=False)
    text.encode()
    assert to_data(made) == made
    assert loads(dumps(value)) == made


@given(clean_data)
def test_clean_data_goes_through_unchanged(value: object) -> None:
    assert to_data(value) == value
    assert to_data(value, strict=True) == value
    assert json.loads(dumps(value)) == value


# ------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("raw", [None, "", " \n", "null", "{}", {}, b"", b"{}"], ids=repr)
def test_no_arguments(raw: Any) -> None:
    assert read_arguments(raw) == ({}, None)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"a": 1', "cut off"),
        ('{"a": "x', "cut off"),
        ('{"a": tr', "cut off"),
        ('{"a": "\\u12', "cut off"),
        ('{"a":', "cut off"),
        ('{"a": 1.', "cut off"),
        ('{"a": 1.5e+', "cut off"),
        ("{", "cut off"),
        ("[1]", "are a list, not an object"),
        ("3", "are a number"),
        ("true", "are a boolean"),
        ('"{}"', "not be wrapped in quotes"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ('{"o": [{"b": 1, "b": 1}]}', r"arguments\.o\[0\]: has the key 'b' twice"),
        ('{"a" 1}', "at line 1 column 6"),
        ("{'a': 1}", "at line 1 column 2"),
        ('{"a": 1} x', "extra data"),
        ('{"a": NaN}', r"arguments\.a: is NaN"),
        ('{"a": -Infinity}', r"arguments\.a: is NaN, infinite"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": ' + "[" * 150 + "]" * 150 + "}", "nested more than 100 levels"),
        ('{"a": ' + "9" * 5_000 + "}", "too many digits"),
        ('{"a": "' + "x" * 10_000_000 + '"}', "too large: 10000009 characters"),
        ({"a": float("nan")}, "is NaN"),
        ({"a": object()}, "is of type object"),
        ({"a": "x" * 10_000_000}, "characters"),
        (["a"], "are a list"),
        (b"\xff", "not valid JSON"),
    ],
    ids=range(29),
)
def test_BH73_unusable_arguments_are_a_problem_in_words(raw: Any, words: str) -> None:
    arguments, problem = read_arguments(raw)
    assert arguments is None
    assert problem is not None
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(problem)
    assert problem.startswith("The arguments ")
    assert len(problem) < 700
    problem.encode()


def test_arguments_are_copied_and_bounded() -> None:
    raw = {"a": [1]}
    arguments, problem = read_arguments(raw)
    assert problem is None
    raw["a"].append(2)
    assert arguments == {"a": [1]}
    assert read_arguments('{"a": "1234567890"}', limit=10)[0] is None
    assert read_arguments({"a": "1234567890"}, limit=10)[0] is None
    assert ARGUMENTS_LIMIT < 10_000_000


def test_BH72_surrogates_in_arguments_are_replaced_and_nul_stays() -> None:
    arguments, problem = read_arguments('{"a": "\\ud83c\\u0000", "b": "\\ud83d\\ude00"}')
    assert problem is None
    assert arguments == {"a": "\ufffd\0", "b": "\U0001f600"}


@given(any_text | st.binary() | st.dictionaries(any_text, hostile, max_size=3))
def test_reading_arguments_never_raises(raw: Any) -> None:
    arguments, problem = read_arguments(raw)
    assert (arguments is None) == (problem is not None)
    if arguments is not None:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()


@given(st.dictionaries(st.text(), clean_data, max_size=4), st.data())
def test_every_cut_of_good_arguments_is_found(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    assert read_arguments(text) == (value, None)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    problem = read_arguments(cut)[1]
    assert problem is not None
    assert "cut off" in problem


# --------------------------------------------------------------------------------------- writing


def test_dumps_is_compact_and_takes_care() -> None:
    assert dumps({"b": [1, "\u00e9"], "a": None}) == '{"b":[1,"\u00e9"],"a":null}'
    assert dumps(["\ud83c", float("nan"), Decimal(1)]) == '["\ufffd",null,"1"]'
    assert dumps({1: Colour.RED}) == '{"1":"red"}'


@pytest.mark.parametrize("write", [dumps, canonical])
@pytest.mark.parametrize("value", [nested(100_000), [10**5_000], object()], ids=range(3))
def test_writing_refuses_in_one_way(write: Any, value: object) -> None:
    with pytest.raises(Unserialisable):
        write(value)


def test_writing_a_cycle_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unserialisable, match="contains itself"):
        dumps(loop)


@given(st.dictionaries(st.text(), clean_data, max_size=4))
def test_canonical_does_not_depend_on_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical(turned) == canonical(value)
    assert json.loads(canonical(value)) == value


def test_canonical_tells_different_data_apart() -> None:
    made = [canonical(v) for v in (1, 1.0, "1", True, None, [1], {"1": 1})]
    assert len(set(made)) == len(made)
    assert canonical({1: "a", "b": 2}) == '{"1":"a","b":2}'


def test_the_largest_integer_can_be_printed_and_read() -> None:
    value = 2**INT_BITS - 1
    assert loads(dumps(to_data(value))) == value
    with pytest.raises(Unserialisable):
        to_data(value + 1)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "\ufeff{}", "[" * 100_000, "9" * 5_000])
def test_loads_raises_one_error(text: str) -> None:
    with pytest.raises(InvalidJson):
        loads(text)
