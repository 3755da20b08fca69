"""JSON-RPC of this house beside the SDK's dispatcher: no client and no handler tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from endstop.server import rpc
from tests.server.pair import ERRORS, METHODS, Pair, params_of, request


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "said", ["x", "", "none", "nan", "back", "empty", "late gone", "late bug", *ERRORS]
)
def test_answers_and_errors_are_the_same(pair: Pair, method: str, said: str) -> None:
    body = pair.compare(request(method, params_of(method, said)))
    refused = {*ERRORS, "nan"}
    if method in rpc.STREAMING:
        refused |= {"late gone", "late bug"}
    elif method != "SendMessage":
        refused.add("none")
    assert ('"error"' in body) == (said in refused)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "version",
    ["1.0", "absent", "", " 1.0", "1", "1.0.7", "1.1", "01.0", "2.0", "0.3", "x", "1.0, 1.0"],
)
def test_versions_are_the_same(pair: Pair, method: str, version: str) -> None:
    body = pair.compare(request(method, params_of(method, "x")), a2a_version=version)
    if version in ("absent", "", "2.0", "0.3", "x"):
        assert "-32009" in body


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "more",
    [
        {"id": "\u00fc"},
        {"id": None},
        {"id": True},
        {"id": 1.5},
        {"id": []},
        {"id": 10**30},
        {"id": ""},
        {"id": -1},
        {"jsonrpc": "1.0"},
        {"jsonrpc": 2.0},
        {"jsonrpc": None},
        {"extra": 1},
        {"params": None},
        {"params": []},
        {"params": [{}]},
        {"params": "x"},
        {"params": 0},
        {"params": {}},
        {"method": "GetTask "},
        {"method": None},
        {"method": 7},
        {"method": ["SendMessage"]},
        {"method": "rpc.x"},
        {"method": "tasks/get"},
        {"method": "message/stream"},
        {"method": "ListTasks"},
        {"method": ""},
    ],
    ids=str,
)
def test_envelopes_are_the_same(pair: Pair, method: str, more: dict[str, Any]) -> None:
    pair.compare(request(method, params_of(method, "x")) | more)


@pytest.mark.parametrize("lacking", ["jsonrpc", "id", "method", "params"])
@pytest.mark.parametrize("method", METHODS)
def test_envelopes_that_lack_something_are_the_same(pair: Pair, method: str, lacking: str) -> None:
    content = request(method, params_of(method, "x"))
    del content[lacking]
    pair.compare(content)
    pair.compare([content])


def test_headers_reach_the_handler_the_same(pair: Pair) -> None:
    content = request("SendMessage", {**params_of("SendMessage", "x"), "tenant": "acme"})
    for extensions in ("", "a", "a, b,,c ", "a,a"):
        pair.compare(content, A2A_Extensions=extensions, x_own='a,b;"c"')
        (_, _, told, _), *more = pair.handler.asked
        assert not more
        assert told["requested_extensions"] == {e.strip() for e in extensions.split(",")} - {""}
        assert told["tenant"] == "acme"
