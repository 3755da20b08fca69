"""What params hold, of every kind and of none: read by this house as the SDK reads it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.pair import ERRORS, METHODS, Pair, params_of, request

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
META = st.dictionaries(st.text(max_size=6), JSON, max_size=3)
CONTENTS = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=20)}),
    st.fixed_dictionaries({"raw": st.sampled_from(["", "aGk=", "aGk", "_-8=", "+/8=", "!"])}),
    st.fixed_dictionaries({"url": st.text(max_size=9)}),
    st.fixed_dictionaries({"data": JSON}),
    st.just({}),
    st.just({"text": "a", "url": "b"}),
)
REST = st.fixed_dictionaries(
    {},
    optional={
        "filename": st.text(max_size=5),
        "mediaType": st.text(max_size=5),
        "metadata": META,
        "unknown": JSON,
    },
)
PARTS = st.builds(lambda a, b: {**a, **b}, CONTENTS, REST)
MESSAGES = st.fixed_dictionaries(
    {
        "messageId": st.text(max_size=5) | st.sampled_from(["back", *ERRORS]),
        "role": st.sampled_from(["ROLE_USER", "ROLE_AGENT", "ROLE_UNSPECIFIED", "ROLE_X", 1, 9]),
        "parts": st.lists(PARTS, max_size=3),
    },
    optional={
        "contextId": st.text(max_size=5),
        "taskId": st.text(max_size=5),
        "metadata": META,
        "extensions": st.lists(st.text(max_size=4), max_size=2),
        "referenceTaskIds": st.lists(st.text(max_size=4), max_size=2),
    },
)
CONFIGURATIONS = st.fixed_dictionaries(
    {},
    optional={
        "historyLength": st.sampled_from([0, 1, -1, 2**31, "3", 2.0, 1.5, None, True]),
        "returnImmediately": st.booleans() | st.sampled_from(["true", 1, None]),
        "acceptedOutputModes": st.lists(st.text(max_size=4), max_size=2),
        "taskPushNotificationConfig": st.just({"url": "http://x", "token": "t"}),
    },
)
SENT = st.fixed_dictionaries(
    {"message": MESSAGES},
    optional={
        "configuration": CONFIGURATIONS,
        "metadata": META,
        "tenant": st.text(max_size=4),
        "unknown": JSON,
        "[odd.name]": JSON,
    },
)
BY_ID = st.fixed_dictionaries(
    {"id": st.text(max_size=5) | st.sampled_from(["none", *ERRORS])},
    optional={
        "historyLength": st.sampled_from([0, 5, -2, 2**31, "3", 1.0, None]),
        "tenant": st.text(max_size=4),
        "metadata": META,
        "unknown": JSON,
    },
)
ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        2.0,
        1e300,
        10**30,
        10**400,
        "",
        "5",
        "ROLE_USER",
        [],
        {},
        [None],
        [[]],
        {"a": 1},
        {"values": []},
        "\u2028",
    ]
)
SNAKE = {
    "messageId": "message_id",
    "contextId": "context_id",
    "mediaType": "media_type",
    "historyLength": "history_length",
    "returnImmediately": "return_immediately",
}


def places(found: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a document, by what holds it and where."""
    pairs = list(found.items() if isinstance(found, dict) else enumerate(found))
    for at, value in pairs:
        yield found, at
        if isinstance(value, dict | list):
            yield from places(value)


@st.composite
def odd_params(draw: st.DrawFn) -> tuple[str, Any]:
    """Params of a method, in which something may be what it should not be."""
    method = draw(st.sampled_from(METHODS))
    params = copy.deepcopy(draw(SENT if "Send" in method else BY_ID))
    how = draw(st.sampled_from(["as it is", "as it is", "odd", "gone", "snake", "both"]))
    holder, at = draw(st.sampled_from(list(places(params))))
    match how:
        case "odd":
            holder[at] = draw(ODD)
        case "gone":
            del holder[at]
        case "snake" | "both" if at in SNAKE:
            holder[SNAKE[at]] = holder[at] if how == "both" else holder.pop(at)
    return method, params


@settings(max_examples=400, deadline=None)
@given(odd_params())
def test_params_are_read_the_same(pair: Pair, asked: tuple[str, Any]) -> None:
    method, params = asked
    pair.compare(request(method, params), exactly=False)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "odd",
    [
        {"text": "a", "url": "b"},
        {"text": "a", "data": None},
        {"text": None},
        {"data": None},
        {"data": []},
        {"data": {}},
        {"data": {"a": [[], {}, None]}},
        {"raw": "aGk"},
        {"text": "a", "metadata": None},
        {"text": "a", "media_type": "b", "mediaType": "c"},
        {"text": "a", "[x]": 1},
        {"text": 7},
        7,
        None,
        [],
    ],
    ids=str,
)
def test_odd_parts_are_read_the_same(pair: Pair, method: str, odd: Any) -> None:
    params = params_of("SendMessage", "x")
    params["message"]["parts"].append(odd)
    pair.compare(request(method, params))


@pytest.mark.parametrize("depth", [1, 10, 16, 17, 18, 90, 99, 100, 101, 200])
def test_metadata_is_as_deep_as_the_sdk_lets_it(pair: Pair, depth: int) -> None:
    for opening, closing in (('{"a":', "}"), ("[", "]")):
        deep = json.loads('{"a":' + opening * depth + "1" + closing * depth + "}")
        pair.compare(request("SendMessage", {**params_of("SendMessage", "x"), "metadata": deep}))
